"""Supersteps: what is put in one is received in the next."""

import threading

import memonet
import numpy as np
import pytest


def test_supersteps(run):
    def body(job):
        me, n = job.pe, job.npes
        steps = memonet.Supersteps(job, (2, 3), "int64")
        assert steps.shape == (2, 3) and steps.dtype == np.int64 and steps.delay == 1
        for step in range(1, 6):
            assert steps.superstep == step
            for pe in range(n):
                steps.put(pe, (0, me), 100 * step + me)
            steps.put((me + 1) % n, (1, 1), np.array([step, 7, 8, -step])[::3])
            steps.step()
            got = steps.received
            assert got is steps.received and not got.flags.writeable
            assert got.tolist() == [[100 * step + pe for pe in range(3)], [0, step, -step]]
        steps.step()
        assert not steps.received.any(), "nobody has put"
        job.barrier()
        steps.free()

    run(3, body)


def test_overlapped_and_odd_elements(run):
    def body(job):
        me, n = job.pe, job.npes
        with memonet.Supersteps(job, 4, "complex128", overlapped=True) as steps:
            assert steps.delay == 2
            for step in range(1, 8):
                steps.put((me + 1) % n, 1, np.array([step + 1j * me] * 2))
                value = step - 2 + 1j * ((me - 1) % n) if step > 2 else 0
                assert steps.received.tolist() == [0, value, value, 0], step
                steps.step()
            job.barrier()

    run(3, body)


def test_arrays_keep_what_they_show(run):
    def body(job):
        steps = memonet.Supersteps(job, 1000, "float32")
        steps.put(job.pe, 0, np.ones(1000, "float32"))
        steps.step(timeout=60.0)
        array = steps.received
        steps.free()
        for _ in range(4):
            job.window(1000).local[:] = 5
        assert (array == 1).all()
        job.barrier()

    run(2, body)


def test_an_old_array_is_a_source():
    def body(job):
        steps = memonet.Supersteps(job, 1000, "int64")
        steps.step()
        old = steps.received
        steps.step()
        assert steps.received is not old
        # The window that `old` shows is that to which puts of this superstep go.
        steps.put(0, 0, np.arange(1000))
        steps.put(0, 10, old[:990])
        steps.step()
        assert steps.received is old and old.tolist() == [*range(10), *range(990)]

    memonet.threads(1, body)


def test_deadlines_and_ctrl_c(run_near):
    def body(job):
        word, steps = job.window(1, "int64"), memonet.Supersteps(job, 2)
        if job.pe == 0:
            steps.put(1, 0, 1.5)
            try:
                steps.step(timeout=0.05)
                raise AssertionError("PE 1 has not come")
            except memonet.Timeout:
                pass
            try:
                steps.put(1, 0, 2.5)
                raise AssertionError("the superstep has ended here")
            except memonet.Error as error:
                assert "call `step`" in str(error), error
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                steps.step()
                raise AssertionError("PE 1 has not come")
            except KeyboardInterrupt:
                pass
            assert steps.superstep == 1
            word.remote(1, 0).store(1)
        else:
            word.wait_until(0, "==", 1)
        steps.step()
        assert steps.superstep == 2 and steps.received[0] == (1.5 if job.pe else 0)
        job.barrier()

    run_near(2, body)


def test_a_death(run_near):
    def body(job):
        steps = memonet.Supersteps(job, 1)
        steps.step()
        if job.pe == 1:
            os._exit(3)
        try:
            steps.step()
            steps.step()
            raise AssertionError("PE 1 is gone")
        except memonet.PeerFailed as failed:
            assert failed.pe == 1
        print("told", flush=True)

    ended = run_near.start(2, body, options=["--keep-going"])
    assert "told" in ended.stdout, ended


def test_threads_of_a_pe(run_near):
    def body(job):
        word, steps = job.window(1, "int64"), memonet.Supersteps(job, (4, 100000))

        def put(row):
            steps.put(1 - job.pe, (row, 0), np.full(100000, row + 1.0))

        threads = [threading.Thread(target=put, args=(row,)) for row in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        steps.step()
        assert (steps.received == np.arange(1.0, 5.0)[:, None]).all()
        if job.pe == 0:
            def step():
                while True:
                    try:
                        return steps.step()
                    except RuntimeError as error:  # the other thread puts just now
                        assert "another thread" in str(error), error

            other = threading.Thread(target=step)
            other.start()
            # Puts and steps while another thread is in a step.
            for call in (lambda: put(0), steps.step, lambda: steps.received):
                while True:
                    try:
                        call()
                    except RuntimeError as error:
                        assert "another thread" in str(error), error
                        break
            word.remote(1, 0).store(1)
            other.join()
        else:
            word.wait_until(0, "==", 1)
            steps.step()
        job.barrier()

    run_near(2, body)


def test_mistakes():
    def body(job):
        steps = memonet.Supersteps(job, (2, 3), "float32")
        with pytest.raises(IndexError):
            steps.put(1, 0, 1.0)
        with pytest.raises(IndexError):
            steps.put(0, 5, np.zeros(2, "float32"))
        with pytest.raises(IndexError):
            steps.put(0, (2, 0), 1.0)
        with pytest.raises(IndexError, match="2 dimensions"):
            steps.put(0, (1,), 1.0)
        with pytest.raises(TypeError, match="astype"):
            steps.put(0, 0, np.zeros(2))
        with pytest.raises(TypeError, match="references"):
            memonet.Supersteps(job, 1, object)
        with pytest.raises(ValueError, match="read-only"):
            steps.received[0, 0] = 1
        with pytest.raises(memonet.Error, match="overflows"):
            memonet.Supersteps(job, 3, "c16").put(0, 2**63, np.zeros(1, "c16"))
        with pytest.raises(memonet.OutOfMemory):
            memonet.Supersteps(job, 1 << 44)
        steps.free()
        steps.free()
        for call in (steps.step, lambda: steps.put(0, 0, 1.0), lambda: steps.received):
            with pytest.raises(RuntimeError, match="freed"):
                call()

    memonet.threads(1, body)
