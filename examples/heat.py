"""Heat in a plate, one strip of rows on each PE: memonet run -n 4 python examples/heat.py [N [STEPS]]

Each PE has its rows, and a row above and below that show its neighbours' border rows. In each step
it puts its own border rows into its neighbours' memory, with a signal. There are two plates, used in
turn, so a PE may be one step ahead of a neighbour, and no barrier is needed.
"""

import sys
from typing import Any

import memonet
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def border(plates: Array, top: bool, bottom: bool) -> None:
    """The upper edge of the plate is hot, and the lower one is warm."""
    if top:
        plates[:, 0] = 1.0
    if bottom:
        plates[:, -1] = 0.25


def solve(job: memonet.Job, n: int, steps: int) -> Array:
    """The rows of this PE after so many steps."""
    rows = [n // job.npes + (pe < n % job.npes) for pe in range(job.npes)]
    most, mine = max(rows), rows[job.pe]
    above, below = job.pe - 1, job.pe + 1
    plates = job.window((2, most + 2, n))
    came = job.window(2, "uint64")  # the last step from above, and from below
    # This PE's rows, with a row of each neighbour; strips may differ by a row.
    strips = plates.local[:, : mine + 2]
    border(strips, above < 0, below == job.npes)
    neighbours = [side for side, pe in enumerate((above, below)) if 0 <= pe < job.npes]
    for step in range(1, steps + 1):
        old, new = (step - 1) % 2, step % 2
        inner = strips[old]
        average = (inner[:-2, 1:-1] + inner[2:, 1:-1] + inner[1:-1, :-2] + inner[1:-1, 2:]) / 4
        strips[new, 1:-1, 1:-1] = average
        if above >= 0:
            plates.put_signal(above, (new, rows[above] + 1, 0), strips[new, 1], came, 1, step)
        if below < job.npes:
            plates.put_signal(below, (new, 0, 0), strips[new, mine], came, 0, step)
        job.fence()  # or a network might bring the next step's signal before this one's
        came.wait_until_all(neighbours, ">=", step)
    return strips[steps % 2, 1:-1].copy()


def alone(n: int, steps: int) -> Array:
    """The whole plate, by one process."""
    plate = np.zeros((n + 2, n))
    border(plate[None], True, True)
    for _ in range(steps):
        inner = (plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]) / 4
        plate[1:-1, 1:-1] = inner
    return plate[1:-1]


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    job = memonet.init()
    strips = job.world.collect(solve(job, n, steps).reshape(-1))
    if job.pe == 0:
        plate = np.concatenate(strips).reshape(n, n)
        assert np.array_equal(plate, alone(n, steps)), "not what one process computes"
        print(f"{n} x {n} after {steps} steps on {job.npes} PEs: mean {plate.mean():.6f}")


if __name__ == "__main__":
    main()
