"""A parameter server: memonet run -n 4 python examples/parameter_server.py [STEPS]

The parameters of a linear model lie in blocks, each in a mutex of its own. Every PE has data that
the others do not have. In each step it reads the parameters, computes a gradient of a batch of its
data, and subtracts it from each block, while the others do the same: nobody waits for a round to
end, and no update is lost.
"""

import sys
from typing import Any

import memonet
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

BLOCKS, WIDTH = 4, 8  # parameters: 32
BATCH = 64
RATE = 0.05


class Server:
    """Parameters that all PEs read and change. Making it is collective."""

    def __init__(self, job: memonet.Job) -> None:
        self.blocks = [memonet.Mutex(job, np.zeros(WIDTH)) for _ in range(BLOCKS)]
        self.updates = memonet.Mutex(job, 0)

    def read(self) -> Array:
        """All parameters. Blocks may have different ages."""
        copies = []
        for block in self.blocks:
            with block as values:
                copies.append(values.copy())
        return np.concatenate(copies)

    def subtract(self, gradient: Array, first: int) -> None:
        """Changes block after block, from block `first` on, so that PEs meet less often."""
        for step in range(BLOCKS):
            at = (first + step) % BLOCKS
            with self.blocks[at] as values:
                values -= gradient[at * WIDTH : (at + 1) * WIDTH]
        with self.updates as count:
            count += 1


def train(job: memonet.Job, truth: Array, steps: int) -> tuple[Array, int]:
    """Parameters after so many steps of each PE, and how many updates they have seen."""
    random = np.random.default_rng([7, job.pe])
    inputs = random.normal(size=(1000, truth.size))
    outputs = inputs @ truth
    server = Server(job)
    for _ in range(steps):
        rows = random.choice(len(inputs), BATCH)
        error = inputs[rows] @ server.read() - outputs[rows]
        server.subtract(RATE * error @ inputs[rows] / BATCH, first=job.pe)
    job.barrier()
    with server.updates as count:
        updates = int(count)
    result = server.read()
    job.barrier()  # nobody leaves while others read
    return result, updates


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    job = memonet.init()
    truth = np.random.default_rng(0).normal(size=BLOCKS * WIDTH)
    found, updates = train(job, truth, steps)
    error = np.abs(found - truth).max()
    assert updates == steps * job.npes, "an update was lost"
    assert error < 0.01, f"the model is off by {error}"
    if job.pe == 0:
        print(f"{found.size} parameters after {updates} updates by {job.npes} PEs: off by {error:.1e}")


if __name__ == "__main__":
    main()
