"""Sample sort: memonet run -n 4 python examples/sample_sort.py [KEYS]

Each PE has KEYS random numbers. Samples of all of them give splitters, so that each PE gets the
keys between two splitters, about as many as the others. A PE asks for room in each target's window
by one atomic, and puts its keys there. Nobody knows in advance who sends how much, or when.
"""

import sys
from typing import Any

import memonet
import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[Any]

SAMPLES = 64  # of each PE: the longest part is then some tenths longer than the average


def splitters(job: memonet.Job, keys: Keys) -> Keys:
    """The keys at which the part of each PE but the first begins."""
    samples = np.random.default_rng(job.pe).choice(keys, SAMPLES)
    every = np.sort(job.world.all_gather(samples).reshape(-1))
    return every[SAMPLES :: SAMPLES][: job.npes - 1]


def sort(job: memonet.Job, keys: Keys) -> Keys:
    """The part of all PEs' keys that is this PE's, sorted: ranks have ascending parts."""
    keys = np.sort(keys)
    bounds = np.searchsorted(keys, splitters(job, keys))
    blocks = np.split(keys, bounds)  # block i goes to PE i

    # How much each PE gets is known by a sum, so windows are as long as the longest part.
    lengths = job.world.all_reduce(np.array([len(block) for block in blocks]))
    part = job.window(int(lengths.max()), keys.dtype)
    taken = job.window(1, "int64")  # keys for which room has been given, of each PE

    for step in range(job.npes):
        pe = (job.pe + step) % job.npes  # not all to the same PE at a time
        begin = taken.fetch_add(pe, 0, len(blocks[pe]))
        part.put(pe, begin, blocks[pe])
    job.barrier()
    return np.sort(part.local[: lengths[job.pe]])


def check(job: memonet.Job, given: Keys, mine: Keys) -> None:
    """PE 0 sorts all keys by itself, and compares."""
    before, after = job.world.collect(given), job.world.collect(mine)
    if job.pe == 0:
        assert np.array_equal(np.sort(np.concatenate(before)), np.concatenate(after))
        longest = max(map(len, after)) * job.npes / sum(map(len, after))
        print(f"{sum(map(len, after))} keys sorted on {job.npes} PEs: longest part {longest:.2f}")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    job = memonet.init()
    keys = np.random.default_rng([1, job.pe]).normal(size=count)
    check(job, keys, sort(job, keys))


if __name__ == "__main__":
    main()
