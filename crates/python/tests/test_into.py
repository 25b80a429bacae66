"""Collectives from windows to windows, puts that do not wait, and barriers in two halves."""

import memonet
import numpy as np
import pytest


def test_reductions(run):
    def body(job):
        t, me, n = job.world, job.pe, job.npes
        for dtype in ("float64", "int32", "uint8"):
            w, sums = job.window(6, dtype), job.window((2, 3), dtype)
            w.local[:] = np.arange(6) + me
            t.all_reduce_into(sums, w)
            total = n * np.arange(6) + n * (n - 1) // 2
            assert (sums.local.reshape(-1) == total).all(), sums.local
            t.all_reduce_into(w.span(0, 2), w.span(0, 2), "max")
            assert w.local.tolist() == [n - 1, n, *(np.arange(2, 6) + me)]
            t.reduce_into(sums.span(stop=1), w.span(-1), "min", root=n - 1)
            assert sums.local[0, 0] == (5 if me == n - 1 else total[0])
            w.local[:] = 1
            t.scan_into(w, w)
            assert (w.local == me + 1).all()
            t.exclusive_scan_into(sums.span(0, 1), w.span(0, 1))
            assert sums.local[0, 0] == me * (me + 1) // 2
        bits = job.window(1, "uint64")
        bits.local[0] = 1 << me
        t.all_reduce_into(bits, bits, "or")
        assert bits.local[0] == (1 << n) - 1
        # A team of its own.
        half = t.split(me % 2)
        bits.local[0] = me
        half.all_reduce_into(bits, bits)
        assert bits.local[0] == sum(range(me % 2, n, 2))
        # So long that it goes in pieces.
        long = job.window(100_000)
        long.local[:] = me
        t.all_reduce_into(long, long)
        assert (long.local == n * (n - 1) // 2).all()

    run(3, body)


def test_moves(run):
    def body(job):
        t, me, n = job.world, job.pe, job.npes
        for dtype in ("int64", "complex128"):
            one, all_of = job.window(2, dtype), job.window((n, 2), dtype)
            one.local[:] = [me, 7]
            t.all_gather_into(all_of, one)
            assert all_of.local.tolist() == [[pe, 7] for pe in range(n)]
            t.all_to_all_into(other := job.window(2 * n, dtype), all_of)
            assert other.local.reshape(n, 2).tolist() == [[me, 7]] * n
            t.broadcast_into(one, one, root=n - 1)
            assert one.local[0] == n - 1
            all_of.local[:] = 5 + me
            t.gather_into(all_of, one, root=0)
            assert all_of.local[0, 0] == (n - 1 if me == 0 else 5 + me)
            all_of.local[:] = np.arange(2 * n).reshape(n, 2)
            t.scatter_into(one, all_of, root=1)
            assert one.local.tolist() == [2 * me, 2 * me + 1]
            ragged = job.window(n * (n + 1) // 2 + 1, dtype)
            all_of.local[:] = me
            came = t.collect_into(ragged.span(0, ragged.size - 1), all_of.span(0, me + 1))
            assert came == n * (n + 1) // 2
            ranks = [pe for pe in range(n) for _ in range(pe + 1)]
            assert ragged.local.tolist() == [*ranks, 0]

    run(3, body)


def test_mistakes_of_ends():
    def body(job):
        t, w, other = job.world, job.window(4), job.window(4, "int32")
        assert len(w.span(1, 3)) == 2 and len(w.span(3, 1)) == 0 and len(w.span(-1, 99)) == 1
        cases = [
            (TypeError, "windows and spans", lambda: t.all_reduce_into(np.zeros(4), w)),
            (TypeError, "int32 and float64", lambda: t.all_reduce_into(w, other)),
            (TypeError, "integers", lambda: t.all_reduce_into(w, w, "xor")),
            (TypeError, "combine numbers", lambda: t.all_reduce_into(c := job.window(1, "c16"), c)),
            (ValueError, "operator", lambda: t.all_reduce_into(w, w, "plus")),
            (memonet.Mismatch, None, lambda: t.all_reduce_into(w.span(0, 2), w.span(2, 3))),
            (memonet.Error, "overlap", lambda: t.all_reduce_into(w.span(0, 2), w.span(1, 3))),
            (memonet.OutOfBounds, None, lambda: t.broadcast_into(w, w, root=1)),
        ]
        for kind, text, mistake in cases:
            with pytest.raises(kind, match=text):
                mistake()

    memonet.threads(1, body)


def test_dtypes_of_one_size_differ():
    def body(job):
        t, big, pairs = job.world, job.window(2, ">f8"), job.window(2, "c8")
        for to, source in [(big, pairs), (pairs, big)]:
            for call in (
                lambda: t.broadcast_into(to, source),
                lambda: to.put_nbi(0, 0, source),
                lambda: memonet.transfer(to, 0, 0, source),
            ):
                with pytest.raises(TypeError, match="one dtype"):
                    call()
        with pytest.raises(TypeError, match="one dtype"):
            job.window(1, "?").put_nbi(0, 0, job.window(1, "u1"))
        for source in (np.zeros(2), pairs.span(0, 1)):
            for call in (lambda: big.put_nbi(0, 0, source), lambda: memonet.transfer(big, 0, 0, source)):
                with pytest.raises(TypeError, match="the source is a window, not"):
                    call()
        again = job.window(2, np.dtype(">f8"))
        memonet.transfer(again, 0, 0, big).free()

    memonet.threads(1, body)


def test_bools_have_no_sum(run):
    def body(job):
        t, w, all_of = job.world, job.window(2, "?"), job.window(2, "?")
        w.local[:] = [True, job.pe == 0]
        for op, said in [("and", [True, False]), ("or", [True, True]), ("max", [True, True])]:
            t.all_reduce_into(all_of, w, op)
            assert all_of.local.tolist() == said
        for call in (
            lambda: t.all_reduce_into(all_of, w),
            lambda: t.scan_into(all_of, w, "product"),
            lambda: t.exclusive_scan_into(all_of, w),
        ):
            try:
                call()
                raise AssertionError("bools were counted")
            except TypeError as error:
                assert "no bool" in str(error), error

    run(2, body)


def test_puts_that_do_not_wait(run):
    def body(job):
        me, n = job.pe, job.npes
        right, left = (me + 1) % n, (me - 1) % n
        for dtype in ("int64", "complex64"):
            source, target = job.window(50_000, dtype), job.window((2, 50_000), dtype)
            source.local[:] = me + 1
            target.put_nbi(right, (1, 0), source)
            target.put_nbi(right, 3, source, 10, 2)
            job.quiet()
            source.local[:] = -1
            job.barrier()
            assert (target.local[1] == left + 1).all()
            assert target.local[0, :6].tolist() == [0, 0, 0, left + 1, left + 1, 0]
        try:
            job.window(1, "int32").put_nbi(right, 0, source)
            raise AssertionError("two dtypes")
        except TypeError as error:
            assert "complex64 and int32" in str(error), error
        for index, start, count in ((0, 49_999, 2), (99_999, 0, 2)):
            try:
                target.put_nbi(right, index, source, start, count)
                raise AssertionError("beyond the end")
            except IndexError:
                pass

    run(2, body)


def test_barriers_in_two_halves(run):
    def body(job):
        t, me = job.world, job.pe
        one, two = t.new_barrier(), t.new_barrier()
        w = job.window(2, "int64")
        for step in range(1, 6):
            w.put((me + 1) % job.npes, 0, step)
            one.arrive()
            two.arrive()
            two.wait()
            one.wait(timeout=60.0)
            assert one.test() and w.local[0] >= step and one.phase == step
        if me == 0:
            one.arrive()
            try:
                one.wait(timeout=0.05)
                raise AssertionError("nobody else has arrived")
            except memonet.Timeout:
                assert not one.test()
        job.barrier()
        if me > 0:
            one.arrive()
        one.wait()

    run(3, body)
