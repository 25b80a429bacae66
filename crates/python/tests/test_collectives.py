"""Teams, and collectives on values, arrays and objects."""

import memonet
import numpy as np
import pytest


def test_collectives(run):
    def body(job):
        t, me, n = job.world, job.pe, job.npes
        assert (t.rank, t.size, t.members) == (me, n, list(range(n)))
        total = n * (n - 1) // 2
        assert t.all_reduce(me) == total and isinstance(t.all_reduce(me), int)
        assert t.all_reduce(float(me), "max") == n - 1
        assert isinstance(t.all_reduce(np.float32(1.5)), np.float32)
        assert t.all_reduce(True) == n and t.all_reduce(me == 0, "and") is (n == 1)
        assert abs(t.all_reduce(1j, "product") - 1j**n) < 1e-12
        assert t.all_reduce(me + 1j) == total + n * 1j
        array = np.arange(6.0).reshape(2, 3) + me
        assert (t.all_reduce(array) == n * np.arange(6.0).reshape(2, 3) + total).all()
        assert (t.all_reduce(array.T, "min") == np.arange(6.0).reshape(2, 3).T).all()
        out = np.zeros((2, 3))
        assert t.all_reduce(array, out=out) is out and out[0, 0] == total
        assert (t.all_reduce(np.full(100000, me, "i4")) == total).all()
        assert t.reduce(me, root=n - 1) == (total if me == n - 1 else None)
        assert t.scan(1) == me + 1 and t.exclusive_scan(1) == me
        assert t.broadcast(2.5 if me == 0 else None) == 2.5
        assert t.broadcast(np.full(4, me), root=n - 1).tolist() == [n - 1] * 4
        assert t.broadcast(1 << 100) == 1 << 100
        assert t.all_gather(me * 1.5) == [pe * 1.5 for pe in range(n)]
        assert t.all_gather(np.array([me, 7])).tolist() == [[pe, 7] for pe in range(n)]
        gathered = t.gather(me, root=0)
        assert gathered == (list(range(n)) if me == 0 else None)
        assert t.scatter([10 * pe for pe in range(n)] if me == 0 else None) == 10 * me
        rows = np.arange(2.0 * n).reshape(n, 2) if me == 0 else None
        assert t.scatter(rows, into=np.empty(2)).tolist() == [2 * me, 2 * me + 1]
        assert t.all_to_all([me * 100 + pe for pe in range(n)]) == [pe * 100 + me for pe in range(n)]
        blocks = t.all_to_all(np.array([[me, pe] for pe in range(n)]))
        assert blocks.tolist() == [[pe, me] for pe in range(n)]
        assert [a.tolist() for a in t.collect(np.arange(me))] == [list(range(pe)) for pe in range(n)]
        assert t.broadcast_object({"a": me}) == {"a": 0}
        assert t.all_gather_object("x" * me) == ["x" * pe for pe in range(n)]

        half = t.split(me % 2, key=-me)
        assert half.members == list(range(me % 2, n, 2))[::-1]
        assert half.all_reduce(1) == len(half)
        assert (t.split(None if me else 1) is None) == (me > 0)
        pair = job.team([n - 1, 0]) if n > 1 else None
        if pair:
            assert pair.rank == (1 if me == 0 else 0)
            pair.barrier()
        t.barrier()

    run(3, body)


def test_numbers_of_numpy_are_plain_values(run):
    def body(job):
        t, me = job.world, job.pe
        for value in (np.int64(7), np.float32(1.5), np.float64(2.5), np.bool_(True), np.uint64(2**64 - 1)):
            assert t.broadcast(value if me == 0 else None) == value
            assert t.broadcast(value) == value
        assert t.broadcast(np.complex64(1j) if me == 1 else None, root=1) == 1j
        got = t.all_gather(np.float32(me))
        assert got.dtype == np.float32 and got.tolist() == [0, 1, 2]
        assert list(t.all_gather(np.int64(me) if me else 0.5)) == [0.5, 1, 2]
        assert t.gather(np.int16(me)) is None if me else t.gather(np.int16(me)).tolist() == [0, 1, 2]
        assert t.scatter(list(np.arange(3)) if me == 0 else None) == me
        assert t.all_to_all(list(np.arange(3) + 10 * me)) == [me, 10 + me, 20 + me]

    run(3, body)


def test_read_only_arrays_are_broadcast_by_their_root(run):
    def body(job):
        array = np.broadcast_to(2.5, 3) if job.pe == 0 else np.zeros(3)
        assert job.world.broadcast(array).tolist() == [2.5] * 3
        if job.pe == 0:
            return
        try:
            job.world._broadcast(np.broadcast_to(0.0, 3), 0)
            raise AssertionError("a read-only array was written")
        except ValueError as error:
            assert "read-only" in str(error), error

    run(2, body)


def test_an_array_for_a_plain_value_is_a_mismatch(run_near):
    def body(job):
        try:
            job.world.broadcast(np.arange(105.0, 108.0) if job.pe == 0 else None)
            assert job.pe == 0
        except memonet.Mismatch:
            assert job.pe == 1
        job.barrier()

    run_near(2, body)


def test_strings_of_different_lengths_are_a_mismatch(run):
    def body(job):
        t, texts = job.world, np.array([("ab", "abcd")[job.pe]])
        for call in (t.all_gather, t.gather, t.broadcast):
            try:
                call(texts)
                raise AssertionError("two dtypes were made one")
            except memonet.Mismatch:
                pass
        assert t.all_gather(texts.astype("U4")).tolist() == [["ab"], ["abcd"]]

    run(2, body)


def test_numbers_of_different_types_have_the_widest(run):
    def body(job):
        t, me = job.world, job.pe
        # The sum of no floats is the integer 0.
        mine = [[], [1.5, 2], [3, 4]][me]
        total = t.all_reduce(sum(mine))
        assert total == 10.5 and type(total) is float
        assert t.all_reduce((3, 2.5, True)[me], "max") == 3
        assert t.all_reduce((3, 2.5, True)[me], "product") == 7.5
        assert t.all_reduce((1, 2j, 0.5)[me]) == 1.5 + 2j
        assert t.all_reduce((1, 2j, 0.5)[me], "product") == 1j
        assert t.all_reduce((np.float32(1.5), 2, 0)[me]) == 3.5
        total = t.all_reduce(np.int8(100))
        assert type(total) is np.int8 and total == 44  # it wraps
        kept = t.reduce((1, 2, 0.5)[me], root=1)
        assert kept == (3.5 if me == 1 else None)
        before = t.scan((1, 2.5, 3)[me])
        assert before == (1, 3.5, 6.5)[me] and type(before) is (int, float, float)[me]
        before = t.exclusive_scan((1, 2.5, 3)[me])
        assert before == (0, 1, 3.5)[me] and type(before) is (int, float, float)[me]
        assert type(t.exclusive_scan(1.5)) is float
        assert t.all_reduce(True, "xor") is True and t.all_reduce((True, 4, False)[me], "or") == 5
        assert t.all_reduce(1 << 62) == (3 << 62) - (1 << 64)
        assert t.all_reduce(float("inf"), "product") == float("inf")
        assert t.all_reduce(np.uint64(1 << 63), "max") == 1 << 63
        for x, op in [((1, 2, 0.5)[me], "and"), ((1, 2j, 0)[me], "max")]:
            try:
                t.all_reduce(x, op)
                raise AssertionError("there is no such result")
            except TypeError as error:
                assert "integers" in str(error) or "complex" in str(error), error
        t.barrier()

    run(3, body)


def test_views_larger_than_memory(run):
    def body(job):
        huge = np.broadcast_to(np.float64(1), 1 << 45)
        with memonet.Messages(job, 100) as messages:
            for copies in (
                lambda: job.world.collect(huge),
                lambda: job.world.all_reduce(huge),
                lambda: messages.send(0, huge),
            ):
                try:
                    copies()
                except MemoryError:
                    pass
                else:
                    raise AssertionError("it copied more than there is memory")
            assert job.world.all_reduce(1) == job.npes

    run(2, body)


def test_dates_are_moved(run):
    def body(job):
        t, n = job.world, job.npes
        dates = np.datetime64("2020-01-01", "D") + np.arange(n) + 10 * job.pe
        assert (t.all_gather(dates)[:, 0] == np.datetime64("2020-01-01") + 10 * np.arange(n)).all()
        assert t.all_to_all(dates)[1] == np.datetime64("2020-01-11") + job.pe
        assert [len(part) for part in t.collect(dates[: job.pe])] == list(range(n))
        assert t.scatter(dates, into=np.zeros(1, "M8[D]")) == np.datetime64("2020-01-01") + job.pe
        assert (t.broadcast(dates)[0]) == np.datetime64("2020-01-01")
        region = memonet.Region(job, n, "M8[D]")
        region[job.pe] = dates[0]
        region.barrier()
        assert region[n - 1] == dates[0]
        with memonet.Messages(job, 100) as messages:
            messages.send((job.pe + 1) % n, dates)
            data, _ = messages.recv()
            assert (np.frombuffer(data, "i8").view("M8[D]") == dates).all()
            job.barrier()

    run(3, body)


def test_mistakes_are_exceptions():
    def body(job):
        t = job.world
        for out in (np.ones(3), np.ones(2, "f4"), np.ones((2, 1))):
            with pytest.raises(ValueError, match="empty_like"):
                t.all_reduce(np.ones(2), out=out)
        for out in (3, [1.0, 1.0], np.float64(1.0), memoryview(np.ones(2))):
            with pytest.raises(TypeError, match="empty_like"):
                t.all_reduce(np.ones(2), out=out)
        with pytest.raises(TypeError, match="numbers of 1, 2, 4 or 8 bytes"):
            t.all_reduce(np.zeros(2, "m8[s]"))
        with pytest.raises(IndexError):
            t.broadcast(1, root=-1)
        with pytest.raises(TypeError, match="_object"):
            t.all_reduce({"a": 1})
        with pytest.raises(TypeError, match="combines integers"):
            t.all_reduce(1.5, "xor")
        with pytest.raises(TypeError, match="numbers"):
            t.all_reduce(np.zeros(2, "f2"))
        with pytest.raises(ValueError, match="operator"):
            t.all_reduce(1, "plus")
        with pytest.raises(OverflowError):
            t.all_reduce(1 << 64)
        with pytest.raises(IndexError):
            t.broadcast(1, root=1)
        assert t.broadcast(np.broadcast_to(1.5, 2)).tolist() == [1.5, 1.5]  # a root only reads
        for wrong in ("text", b"text", [1, 2], np.datetime64("2020"), np.longdouble(1)):
            with pytest.raises(TypeError, match="broadcast_object"):
                t.broadcast(wrong)
        for wrong in ("text", b"text"):
            for call in (t.all_gather, t.gather):
                with pytest.raises(TypeError, match="all_gather_object"):
                    call(wrong)

    memonet.threads(1, body)


def test_windows_are_alike(run):
    def body(job):
        me = job.pe
        for shape, dtype, text in [
            (4, ("int32", "float32")[me], '"f4" in rows of 4'),
            ((2, 3), ("int64", "float64")[me], '"i8" in rows of 3'),
            (((2, 3), (3, 2))[me], "float64", '"f8" in rows of 2'),
            (3 + me, "float64", '32 bytes of "f8"'),
            (5, ("c16", "V16")[me], '"c16" in rows of 5'),
            (5, ("float64", ">f8")[me], '">f8" in rows of 5'),
        ]:
            try:
                job.window(shape, dtype)
                raise AssertionError("two windows were made one")
            except memonet.Mismatch as error:
                assert text in str(error), error
        assert job.window(4, "f8").dtype == np.float64  # all went on in step

    run(2, body)


def test_what_is_shared_is_alike(run):
    def body(job):
        import dataclasses

        me, dtype = job.pe, ("int64", "float64")[job.pe]

        @dataclasses.dataclass
        class Data:
            number: (int, float)[job.pe]
            rest: int = 0

        array = np.zeros((2, 3), dtype)
        for make, ours, theirs in [
            (lambda: job.restricted((2, 3), dtype, right=lambda *_: "read"), "i8", "f8"),
            (lambda: memonet.Mutex(job, array), "i8", "f8"),
            (lambda: memonet.Mutex(job, array.T if me else array), "in rows of 3", "in rows of 2"),
            (lambda: memonet.Mutex(job, Data(1)), "i8i8", "f8i8"),
            (lambda: memonet.Mutex(job, 5, shadow=me == 0), "", ""),
            (lambda: memonet.RwLock(job, array), "i8", "f8"),
            (lambda: memonet.Region(job, 10, dtype), "i8", "f8"),
            (lambda: memonet.Multicast(job, 0, dtype=dtype), "i8", "f8"),
            (lambda: memonet.Supersteps(job, 10, dtype), "i8", "f8"),
        ]:
            try:
                make()
                raise AssertionError("what differs was made one")
            except memonet.Mismatch as error:
                for text in (ours, theirs):
                    assert text in str(error), error
        assert memonet.Mutex(job, 1.5).dtype == np.float64  # all went on in step
        job.barrier()

    run(2, body)


def test_checks_find_different_arrays(run_near):
    def body(job):
        try:
            job.world.all_reduce(np.zeros(2 + job.pe))
            raise SystemExit(3)
        except memonet.Error as error:
            assert "dtype and shape" in str(error), error
        os._exit(7)

    ended = run_near.start(2, body, environment={"MEMONET_CHECK": "1"})
    assert ended.returncode == 7, ended


def test_complex_numbers_of_another_byte_order_are_refused():
    def body(job):
        for call in (job.world.all_reduce, job.world.reduce, job.world.scan):
            with pytest.raises(TypeError, match="there is no"):
                call(np.ones(3, ">c8"))

    memonet.threads(1, body)
