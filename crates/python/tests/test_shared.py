"""Mutexes, regions and channels."""

import dataclasses

import memonet
import numpy as np
import pytest


def test_shared_data(run):
    def body(job):
        import dataclasses

        me, n = job.pe, job.npes
        m = memonet.Mutex(job, np.zeros((2, 3)))
        for _ in range(10):
            with m as array:
                array += 1
            assert array.size == 0, "the array is not to be used after its `with`"
        job.barrier()
        with m as array:
            assert (array == 10 * n).all()
        job.barrier()

        @dataclasses.dataclass
        class Best:
            score: float
            pe: int
            final: bool = False

        best = memonet.Mutex(job, Best(-1.0, -1), shadow=True)
        with best as seen:
            if seen.score < me:
                seen.score, seen.pe, seen.final = float(me), me, True
        job.barrier()
        with best as seen:
            assert seen == Best(n - 1.0, n - 1, True), seen
        job.barrier()

        with memonet.Region(job, 100 * n) as region:
            region[me * 100 : me * 100 + 100] = me
            region.barrier()
            assert (region[:] == np.repeat(np.arange(n), 100)).all() and region[-1] == n - 1
        odd = memonet.Region(job, 10, [("a", "i2"), ("b", "u1")], page=192, placement="cyclic")
        if me == 0:
            odd[3] = (5, 6)
        odd.barrier()
        assert odd[3].tolist() == (5, 6)

        with memonet.Multicast(job, dtype="float64") as channel:
            if me == 0:
                for length in range(20):
                    channel.publish(np.full(length, float(length)))
                channel.publish(np.arange(100000.0))
            else:
                blocks = list(channel)
                assert [len(block) for block in blocks] == [*range(20), 100000]
                assert blocks[7].tolist() == [7.0] * 7 and blocks[20][-1] == 99999
        job.barrier()

    run(3, body)


def test_views_keep_a_mutex_locked():
    def body(job):
        m = memonet.Mutex(job, np.arange(4))
        for keep in (lambda a: a[1:], memoryview, lambda a: a.reshape(2, 2), lambda a: a):
            with pytest.raises(BufferError, match="locked"):
                with m as array:
                    view = keep(array)
            assert memoryview(view)[0] in (0, 1) if not isinstance(view, np.ndarray) else view.size
            assert m.try_acquire() is None
            del view
            m.release()
            assert array.size == 0
        with m as array:
            copy = array.copy()
        assert copy.tolist() == [0, 1, 2, 3]
        with pytest.raises(RuntimeError, match="does not hold"):
            m.release()
        with pytest.raises(BufferError, match="while the mutex is held"):
            memoryview(m._data)
        with pytest.raises(TypeError):
            memonet.Mutex(job, object())

    memonet.threads(1, body)


def test_readers_and_writers(run):
    def body(job):
        import dataclasses

        me, n = job.pe, job.npes
        lock = memonet.RwLock(job, np.zeros((2, 3)))
        for _ in range(5):
            with lock.write() as array:
                array += 1
            assert array.size == 0
            with lock.read() as array:
                assert array.shape == (2, 3) and (array == array[0, 0]).all()
                assert not array.flags.writeable
            assert array.size == 0, "the array is not to be used after its `with`"
        job.barrier()
        # All read at a time.
        with lock.read(timeout=60.0) as array:
            job.barrier()
            assert (array == 5 * n).all()
        job.barrier()
        if me == 0:
            with lock.write() as array:
                array[:] = -1
                job.barrier()
                job.barrier()
        else:
            job.barrier()
            assert lock.try_read() is None and lock.try_write() is None
            try:
                lock.read(timeout=0.01)
                raise AssertionError("another PE writes")
            except memonet.Timeout:
                job.barrier()
        with lock.read() as array:
            assert (array == -1).all()
        job.barrier()

        @dataclasses.dataclass
        class Step:
            number: int
            size: float

        step = memonet.RwLock(job, Step(0, 0.5), shadow=True)
        with step.write() as data:
            data.number += 1
        job.barrier()
        with step.read() as data:
            assert data == Step(n, 0.5)
            data.number = -5
        job.barrier()
        with step.read() as data:
            assert data.number == n, "a reader's copy is not written back"
        job.barrier()

    run(3, body)


def test_views_keep_a_lock():
    def body(job):
        lock = memonet.RwLock(job, np.arange(4))
        for enter in (lock.read, lock.write):
            guard = enter()
            with pytest.raises(BufferError, match="locked"):
                with guard as array:
                    view = array[1:]
            assert view.tolist() == [1, 2, 3] and lock.try_write() is None
            del view
            guard.release()
            assert array.size == 0
        with lock.read() as array:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
            with lock.try_read() as other:
                assert other.tolist() == [0, 1, 2, 3]
        # A guard that is dropped gives the data back.
        lock.write()
        assert lock.try_write() is not None
        lock.free()
        with pytest.raises(RuntimeError, match="freed"):
            lock.read()

    memonet.threads(1, body)


def test_an_exception_gives_the_data_back():
    def body(job):
        mutex, lock = memonet.Mutex(job, np.zeros(4)), memonet.RwLock(job, np.zeros(4))

        def fails(array):
            view = array[1:]
            try:
                raise KeyError(view.size)
            except KeyError:
                raise ValueError("in a function that has the array, and a view") from None

        for enter in (lambda: mutex, lock.read, lock.write):
            with pytest.raises(ValueError, match="in a function"):
                with enter() as array:
                    fails(array)
            assert array.size == 0
            # What the program keeps by itself is said, and not passed over.
            kept = []
            guard = enter()
            with pytest.raises(BufferError, match="locked") as locked:
                with guard as array:
                    kept.append(array[1:])
                    fails(array)
            assert "in a function" in str(locked.value.__context__)
            kept.clear()
            del locked
            guard.release()
        mutex.acquire(timeout=1.0)
        mutex.release()
        assert lock.try_write() is not None

    memonet.threads(1, body)


def test_fields_that_do_not_fit_are_not_written():
    @dataclasses.dataclass
    class Best:
        pe: int
        score: float

    def body(job):
        mutex, lock = memonet.Mutex(job, Best(1, 2.0)), memonet.RwLock(job, Best(1, 2.0))
        for enter in (lambda: mutex, lock.write):
            for wrong in (None, 2**70):
                with pytest.raises((TypeError, OverflowError)):
                    with enter() as best:
                        best.pe, best.score = wrong, 3.0
                with enter() as best:
                    assert best == Best(1, 2.0)

    memonet.threads(1, body)


def test_a_mutex_is_freed_while_a_thread_waits(run_near):
    def body(job):
        import time

        mutex, word = memonet.Mutex(job, np.zeros(4)), job.window(1, "int64")
        if job.pe == 0:
            with mutex as array:
                word.remote(1, 0).store(1)
                word.wait_until(0, "==", 1)
                array[0] = 5
        else:
            got = []
            thread = threading.Thread(target=lambda: got.append(mutex.acquire()))
            word.wait_until(0, "==", 1)
            thread.start()
            time.sleep(0.3)  # so long that it waits, nearly always
            mutex.free()
            word.remote(0, 0).store(1)
            thread.join()
            if got:
                blocks = [bytearray(size) for size in range(16, 2000, 8)]
                assert got.pop()[0] == 5 and blocks
                mutex.release()
        job.barrier()

    run_near(2, body)


def test_statistics(run):
    def body(job):
        mutex, lock = memonet.Mutex(job, np.zeros(1)), memonet.RwLock(job, np.zeros(1))
        region = memonet.Region(job, 1000)
        for shared in (mutex, lock, region):
            assert shared.stats()["uses"] == 0, shared
        for _ in range(3):
            with mutex as array, lock.write() as data:
                array += 1
                data += 1
        region[0:1000] = 1
        region.barrier()
        assert mutex.stats()["uses"] == lock.stats()["uses"] == 3
        counts = region.stats()
        assert sorted(counts) == ["bytes", "handovers", "hits", "messages", "uses"], counts
        assert counts["uses"] >= 1 and counts["hits"] <= counts["uses"], counts
        job.barrier()

    run(2, body)
