"""What pythons.py measures: rows of one library, by itself.

    measure.py LIBRARY SLICES ROW...    as a job of two PEs

Each line that it prints is a row and a figure: the median of SLICES slices at rank 0, in ns per
operation, or in GiB/s where the row's name says so. Each library gets the calls that its documents
teach for arrays that are not to be copied; names are looked up before the loop.
"""

import statistics
import sys
import time

import numpy as np

# Operations of a slice.
TRIPS = 200
COPIES = 20
BLOCK = 1 << 20


def show(me, row, figure):
    if me == 0:
        print(f"{row}\t{figure:.6g}", flush=True)


def timed(slices, count, once):
    """The median of ns per operation, over slices of `count` operations."""
    once(count // 10)
    figures = []
    for _ in range(slices):
        begin = time.perf_counter_ns()
        once(count)
        figures.append((time.perf_counter_ns() - begin) / count)
    return statistics.median(figures)


def there_and_back(slices, me, send, receive):
    """A round trip: `send(step)` tells the other PE, and `receive(step)` waits for it."""
    step = 0

    def trips(count):
        nonlocal step
        first, step = step + 1, step + count
        if me == 0:
            for at in range(first, step + 1):
                send(at)
                receive(at)
        else:
            for at in range(first, step + 1):
                receive(at)
                send(at)

    return timed(slices, TRIPS, trips)


def stores(slices, word):
    def calls(count):
        for _ in range(count):
            word.store(5)

    return timed(slices, 50 * TRIPS, calls)


def repeated(slices, call):
    def calls(count):
        for _ in range(count):
            call()

    return timed(slices, TRIPS, calls)


def rates(slices, me, meet, put):
    """GiB/s of `put()`, and of NumPy's copy between two arrays of this process, in turns. The other
    PE waits."""
    source, target, puts, copies = np.ones(BLOCK, "uint8"), np.empty(BLOCK, "uint8"), [], []

    def rate(call):
        begin = time.perf_counter_ns()
        for _ in range(COPIES):
            call()
        return COPIES * BLOCK / (1 << 30) * 1e9 / (time.perf_counter_ns() - begin)

    if me == 0:
        for call in (put, lambda: np.copyto(target, source)):
            rate(call)
        for _ in range(slices):
            puts.append(rate(put))
            copies.append(rate(lambda: np.copyto(target, source)))
    meet()
    if me == 0:
        show(me, "put of 1 MiB, GiB/s", statistics.median(puts))
        show(me, "copyto of 1 MiB, GiB/s", statistics.median(copies))


def memonet(slices, rows):
    import memonet

    job = memonet.init()
    me, team = job.pe, job.world
    word, cells = job.window(2, "int64"), job.window(BLOCK, "uint8")
    value, block = np.zeros(1, "int64"), np.ones(BLOCK, "uint8")
    other, wait, put = word.remote(1 - me, 0), word.wait_until, word.put
    store = other.store

    def put_value(step):
        value[0] = step
        put(1 - me, 1, value)

    if "store" in rows:
        import bare

        show(me, "store", stores(slices, other))
        show(me, "store of a bare class of PyO3", stores(slices, bare.Cell()))
        job.barrier()
        store(0)
        job.barrier()
    if "trip" in rows:
        trip = there_and_back(slices, me, store, lambda step: wait(0, "==", step))
        show(me, "8 bytes there and back: a store", trip)
        job.barrier()
        trip = there_and_back(slices, me, put_value, lambda step: wait(1, "==", step))
        show(me, "8 bytes there and back: an array", trip)
    if "all_reduce" in rows:
        show(me, "all_reduce of one float", repeated(slices, lambda: team.all_reduce(1.5)))
    if "barrier" in rows:
        show(me, "barrier", repeated(slices, job.barrier))
    if "block" in rows:
        rates(slices, me, job.barrier, lambda: cells.put(1 - me, 0, block))


def mpi4py(slices, rows):
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    me = comm.rank
    sent, received = np.zeros(1, "int64"), np.zeros(1, "int64")
    # With the count and the type given, mpi4py does not look for them in the array.
    to, into = [sent, 1, MPI.INT64_T], [received, 1, MPI.INT64_T]

    def send(step):
        sent[0] = step
        comm.Send(to, 1 - me)

    if "trip" in rows:
        trip = there_and_back(slices, me, send, lambda _: comm.Recv(into, 1 - me))
        show(me, "8 bytes there and back: an array", trip)
    if "all_reduce" in rows:
        number, result = [np.full(1, 1.5), 1, MPI.DOUBLE], [np.zeros(1), 1, MPI.DOUBLE]
        sums = repeated(slices, lambda: comm.Allreduce(number, result))
        show(me, "all_reduce of one float", sums)
        show(me, "all_reduce of one float, pickled", repeated(slices, lambda: comm.allreduce(1.5)))
    if "barrier" in rows:
        show(me, "barrier", repeated(slices, comm.Barrier))
    if "block" in rows:
        window, block = MPI.Win.Allocate(BLOCK, 1, comm=comm), np.ones(BLOCK, "uint8")
        source = [block, BLOCK, MPI.BYTE]
        window.Lock_all()

        def put():
            window.Put(source, 1 - me)
            window.Flush(1 - me)

        rates(slices, me, comm.Barrier, put)
        window.Unlock_all()
        window.Free()


def shmem4py(slices, rows):
    from shmem4py import shmem

    me = shmem.my_pe()
    word, value = shmem.zeros(1, "int64"), np.zeros(1, "int64")

    def put_value(step):
        value[0] = step
        shmem.put(word, value, 1 - me)

    def wait(step):
        shmem.wait_until(word, shmem.CMP_EQ, step)

    if "trip" in rows:
        shmem.barrier_all()
        show(me, "8 bytes there and back: an array", there_and_back(slices, me, put_value, wait))
    if "all_reduce" in rows:
        number, result = shmem.full(1, 1.5, "float64"), shmem.zeros(1, "float64")
        sums = repeated(slices, lambda: shmem.sum_reduce(result, number))
        show(me, "all_reduce of one float", sums)
    if "barrier" in rows:
        show(me, "barrier", repeated(slices, shmem.barrier_all))
    if "block" in rows:
        cells, block = shmem.zeros(BLOCK, "uint8"), np.ones(BLOCK, "uint8")

        def put():
            shmem.put(cells, block, 1 - me)
            shmem.quiet()

        rates(slices, me, shmem.barrier_all, put)
    shmem.barrier_all()


library, count, *wanted = sys.argv[1:]
{"memonet": memonet, "mpi4py": mpi4py, "shmem4py": shmem4py}[library](int(count), wanted)
