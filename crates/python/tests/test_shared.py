"""Mutexes, regions and channels."""

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
