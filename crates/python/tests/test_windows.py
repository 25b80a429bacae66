"""Windows: arrays, puts, gets, words, signals and waits."""

import memonet
import numpy as np
import pytest


def test_blocks_and_words(run):
    def body(job):
        me, n = job.pe, job.npes
        right, left = (me + 1) % n, (me - 1) % n
        w = job.window((4, 5))
        assert w.shape == (4, 5) and w.dtype == np.float64 and len(w) == 4 and w.size == 20
        assert not w.local.any()
        job.barrier()
        w.at(right)[1, 2:4] = [me, 7.0]
        w.at(right)[:, 0] = np.arange(4.0) + me
        w.put(right, (3, 1), np.full(4, me + 10.0))
        job.barrier()
        assert w.local[1].tolist() == [1.0 + left, 0, left, 7, 0]
        assert w.local[:, 0].tolist() == [left, 1 + left, 2 + left, 3 + left]
        assert w.local[3, 1:].tolist() == [left + 10.0] * 4
        assert w.get(right, (3, 4)) == me + 10
        assert w.get(right, 16, count=4).tolist() == [me + 10.0] * 4
        assert w.at(right)[::2, ::-2].tolist() == [[0, 0, me], [0, 0, 2 + me]]
        assert w.at(right)[1, 2] == me
        into = np.zeros((2, 8))
        w.get(right, 15, into[:, ::4][0])
        assert into[0, ::4].tolist() == [3 + me, me + 10]
        job.barrier()

        words = job.window(3, "int64")
        assert words.fetch_add(0, 0, me + 1) >= 0
        job.barrier()
        assert words.remote(0, 0).load() == n * (n + 1) // 2
        mine = words.remote(me, 1)
        assert mine.swap(5) == 0 and mine.compare_swap(5, 7) == 5 and mine.compare_swap(5, 9) == 7
        assert mine.fetch_or(8) == 7 and mine.fetch_and(9) == 15 and mine.fetch_xor(1) == 9
        assert words.local[1] == 8 and mine.fetch() == 8
        words.remote(right, 2).store(-3)
        assert words.wait_until(2, "<", 0) == -3
        job.barrier()

    run(3, body)


def test_signals_and_waits(run):
    def body(job):
        me, n = job.pe, job.npes
        right, left = (me + 1) % n, (me - 1) % n
        w, came = job.window(10000), job.window(n, "uint64")
        block = np.arange(20000.0)[::2] + me
        w.put_signal(right, 0, block, came, me)
        # The left PE may have seen this PE's signal already, and added its next.
        assert came.wait_until(left, ">=", 1) in (1, 6)
        assert (w.local == block - me + left).all()
        for pe in range(n):
            came.signal(pe, me, 5, "add")
        came.wait_until_all(range(n), ">=", 5)
        assert came.wait_until_any([left, me], ">=", 5) == 0
        assert came.wait_until_some([left], "==", 6) == [0]
        assert came.test(left, "==", 6) and not came.test(left, "<", 6)
        try:
            came.wait_until(0, ">", 100, timeout=0.01, depends_on=[me])
            raise AssertionError("there is nobody to wait for")
        except TimeoutError as late:
            assert isinstance(late, memonet.Timeout)
        job.barrier()
        with memonet.transfer(w, right, 0, w2 := job.window(10000), signals=came, op="add") as copy:
            for step in range(3):
                w2.local[:] = step + me
                copy.start()
                copy.wait()
                came.wait_until(0, ">=", (6 if left == 0 else 5) + step + 1)
                assert (w.local == step + left).all()
                job.barrier()

    run(2, body)


def test_dtypes(run_near):
    def body(job):
        right = (job.pe + 1) % job.npes
        for dtype in ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"]:
            w = job.window(5, dtype)
            w.put(right, 1, 3)
            w.put(right, 2, np.array([4, 5], dtype))
            job.barrier()
            assert w.local.tolist() == [0, 3, 4, 5, 0], (dtype, w.local)
            assert w.remote(right, 3).load() == 5
        for dtype, value in [("c16", 1 + 2j), ("?", True), ("f2", 1.5), (">f8", 2.5), ("S3", b"abc")]:
            w = job.window(2, dtype)
            w.at(right)[1] = value
            job.barrier()
            assert w.local[1] == value, (dtype, w.local)
        pair = np.dtype([("a", "f8"), ("b", "i4")])
        w = job.window((2, 2), pair)
        w.put(right, (1, 1), np.array((2.5, 7), pair))
        job.barrier()
        assert w.local[1, 1].item() == (2.5, 7) and w.at(right)[1, 1]["b"] == 7
        job.barrier()

    run_near(2, body)


def test_mistakes_are_exceptions():
    def body(job):
        w, words = job.window(4), job.window(2, "int64")
        cases = [
            (IndexError, lambda: w.put(2, 0, 1.0)),
            (IndexError, lambda: w.put(-1, 0, 1.0)),
            (IndexError, lambda: w.put(0, -1, 1.0)),
            (IndexError, lambda: w.put(0, 1 << 70, 1.0)),
            (IndexError, lambda: job.window((2, 2)).get(0, (0, -1))),
            (IndexError, lambda: job.is_near(-1)),
            (IndexError, lambda: job.is_near(1)),
            (IndexError, lambda: words.wait_until_any([-1], "==", 0)),
            (IndexError, lambda: words.wait_until(0, "==", 0, depends_on=[-1])),
            (IndexError, lambda: job.team([-1])),
            (IndexError, lambda: memonet.Multicast(job, 0, [-1])),
            (IndexError, lambda: memonet.Multicast(job, -1)),
            (IndexError, lambda: job.world.reduce(1.0, root=-1)),
            (IndexError, lambda: words.wait_until(0, "==", 1, timeout=1, depends_on=[1])),
            (IndexError, lambda: w.at(2)),
            (IndexError, lambda: w.put(0, 3, np.zeros(2))),
            (IndexError, lambda: w.put(0, 3, np.zeros(4)[::2])),
            (IndexError, lambda: w.wait_until(4, "==", 0)),
            (IndexError, lambda: w.at(0)[[0, 1]]),
            (IndexError, lambda: w.put(0, (1, 1), 1.0)),
            (TypeError, lambda: w.put(0, 0, np.zeros(2, "f4"))),
            (TypeError, lambda: w.put(0, 0, "text")),
            (TypeError, lambda: w.put(0, 0, [1.0])),
            (TypeError, lambda: w.get(0, 0, [1.0])),
            (TypeError, lambda: w.put(0, 0, 1j)),
            (TypeError, lambda: words.put(0, 0, 1.5)),
            (TypeError, lambda: w.fetch_add(0, 0, 1)),
            (TypeError, lambda: job.window(1, object)),
            (TypeError, lambda: job.window(3, ("f8", 2))),
            (TypeError, lambda: job.window(1, "c16").wait_until(0, "==", 0)),
            (TypeError, lambda: w.put_signal(0, 0, 1.0, w)),
            (OverflowError, lambda: words.put(0, 0, 1 << 63)),
            (OverflowError, lambda: job.window(1, "u8").remote(0, 0).store(-1)),
            (ValueError, lambda: w.wait_until(0, "=", 0)),
            (ValueError, lambda: w.signal(0, 0, op="sub")),
            (ValueError, lambda: w.at(0).__setitem__(slice(0, 2), np.zeros(3))),
            (ValueError, lambda: w.get(0, 0, np.broadcast_to(0.0, 2))),
            (ValueError, lambda: job.window(-1)),
            (ValueError, lambda: job.window((2, -1))),
        ]
        for kind, mistake in cases:
            try:
                mistake()
            except kind as error:
                assert str(error)
            except memonet.Error as error:
                assert kind is TypeError, (kind, error)
            else:
                raise AssertionError(f"nothing raised, but {kind} expected")
        return len(cases)

    assert memonet.threads(1, body) == [39]


def test_numbers_out_of_range_name_the_range():
    def body(job):
        for dtype, number, least, most in [
            ("u1", 300, 0, 255),
            ("i2", -40000, -(2**15), 2**15 - 1),
            ("i8", 2**63, -(2**63), 2**63 - 1),
            ("u8", -1, 0, 2**64 - 1),
        ]:
            w = job.window(1, dtype)
            word = w.remote(0, 0)
            for call in (
                lambda: word.store(number),
                lambda: w.put(0, 0, number),
                lambda: w.test(0, "==", number),
                lambda: w.wait_until(0, "==", number, timeout=0.0),
            ):
                with pytest.raises(OverflowError, match=f"{w.dtype}.* {least} to {most}"):
                    call()

    memonet.threads(1, body)


def test_lists_of_words_are_iterables(run):
    def body(job):
        w = job.window(4, "int64")
        w.local[1:3] = 1
        for indices in ([1, 2], (1, 2), range(1, 3), np.array([1, 2]), iter([1, 2])):
            w.wait_until_all(indices, "==", 1)
        assert w.wait_until_some((index for index in range(4)), "==", 1) == [1, 2]
        assert job.team(pe for pe in range(job.npes)).size == job.npes

    run(2, body)


def test_elements_of_another_dtype_are_refused():
    """Also where they have as many bytes, and where only a part of the dtypes differs."""

    def body(job):
        pair = np.dtype([("a", "i4"), ("b", "f4")])
        for dtype, others in {
            "?": ["u1", "i1", "S1"],
            "u8": ["i8", "f8", "c8", "M8[s]"],
            "c8": ["f8", "i8", ">c8", pair],
            "f2": ["u2", ">f2"],
            ">f8": ["f8", ">i8"],
            "M8[s]": ["M8[ns]", "m8[s]", "i8"],
            "U1": ["S4", "i4", ">U1"],
            pair: [[("a", "f4"), ("b", "i4")], [("a", "i4"), ("c", "f4")], "V8", "f8"],
        }.items():
            w = job.window(2, dtype)
            w.put(0, 0, np.zeros(2, dtype))
            w.get(0, 0, np.zeros(4, dtype)[::2])
            for wrong in [np.zeros(2, other) for other in others]:
                for call in (w.put, w.get):
                    with pytest.raises(TypeError, match="here are"):
                        call(0, 0, wrong)
        # Buffers have no dtype.
        w = job.window(2, pair)
        w.put(0, 0, memoryview(np.ones(2, pair)))
        assert w.local.tolist() == [(1, 1)] * 2
        with pytest.raises(TypeError, match="here are"):
            w.put(0, 0, memoryview(np.ones(2, [("a", "f4"), ("b", "i4")])))

    memonet.threads(1, body)


def test_bools_are_0_and_1():
    def body(job):
        w = job.window(3, "?")
        remote = w.remote(0, 1)
        for write in (
            lambda value: w.put(0, 1, value),
            lambda value: w.at(0).__setitem__(1, value),
            remote.store,
            remote.swap,
            lambda value: w.compare_swap(0, 1, w.get(0, 1), value),
        ):
            for value in (5, True, 0, 256, -1, False, np.int64(7), np.bool_(True), 2.5):
                write(value)
                assert w.local.view("u1")[1] == bool(value), value
            if write is not remote.swap:
                continue
            with pytest.raises(TypeError):
                write("text")
        with pytest.raises(TypeError, match="bools"):
            w.put(0, 0, b"\x07\x02")
        w.put(0, 0, memoryview(np.ones(3, bool)))
        assert w.local.view("u1").tolist() == [1, 1, 1]
        with memonet.Supersteps(job, 2, "?") as steps:
            steps.put(0, 0, 5)
            steps.step()
            assert steps.received.view("u1").tolist() == [1, 0]

    memonet.threads(1, body)


def test_single_dates_are_put(run_near):
    def body(job):
        w, date = job.window(2, "M8[D]"), np.datetime64("2020-01-01")
        w.put(job.pe, 1, date)
        assert w.get(job.pe, 1) == date
        for call, wrong in (
            (lambda: w.put(0, 1, np.datetime64("2020-01-01", "s")), TypeError),
            (lambda: w.get(0, 1, date), ValueError),
        ):
            try:
                call()
                raise AssertionError("it took another")
            except wrong as error:
                assert "array" in str(error), error
        entry = np.dtype([("a", "i4"), ("b", "f4")])
        log = job.window(2, entry)
        log.put(job.pe, 1, np.ones(1, entry)[0])
        assert log.local[1].tolist() == (1, 1.0)
        job.barrier()

    run_near(1, body)


def test_negative_numbers_are_out_of_bounds():
    def body(job):
        w = job.window(3)
        for call in (
            lambda: job.world.gather(1, root=-1),
            lambda: job.world.split_strided(-1, 1, 1),
            lambda: memonet.Region(job, -1),
            lambda: memonet.transfer(w, 0, 0, w, start=5),
            lambda: memonet.transfer(w, 0, 0, w, count=-1),
            lambda: w.put_nbi(0, 0, w, start=5),
            lambda: w.get(0, 0, count=-1),
        ):
            with pytest.raises(memonet.OutOfBounds):
                call()

    memonet.threads(1, body)


def test_elements_that_are_no_words(run):
    def body(job):
        right = (job.pe + 1) % job.npes
        for dtype, number in [("c16", 1 + 2j), ("f2", 1.5), (">f8", 2), ("longdouble", 0.5)]:
            w = job.window(2, dtype)
            w.put(right, 1, number)
            job.barrier()
            assert w.local[1] == number and w.get(right, 1) == number
        # NumPy gives no buffers of dates and times.
        w, dates = job.window((2, 3), "M8[D]"), np.arange("2020-01-01", "2020-01-07", dtype="M8[D]")
        w.put(right, (1, 0), dates[::2])
        w.at(right)[0] = dates[:3]
        job.barrier()
        assert (w.local[0] == dates[:3]).all() and (w.local[1] == dates[::2]).all()
        assert w.get(right, 3) == dates[0] and w.at(right)[1, 1] == dates[2]
        assert (w.get(right, 0, np.zeros(6, "M8[D]")[::2]) == dates[:3]).all()
        entry = np.dtype([("id", "i4"), ("when", "M8[D]")])
        log, entries = job.window(3, entry), np.zeros(6, entry)
        entries["when"] = dates
        log.put(right, 0, entries[::2])
        assert (log.get(right, 1, np.zeros(4, entry)[::2])["when"] == dates[2:5:2]).all()
        log.at(right)[2] = entries[5]
        job.barrier()
        assert (log.local["when"] == dates[[0, 2, 5]]).all()
        # One element of an array has a dtype of its own.
        texts, given = job.window(2, "S4"), np.array([b"a", b"bcd"], "S4")
        large = job.window(2, ">i4")
        texts.at(right)[1] = given[0]
        large.at(right)[1] = np.arange(3, dtype=">i4")[2]
        job.barrier()
        assert texts.local.tolist() == [b"", b"a"] and large.local.tolist() == [0, 2]

    run(2, body)


def test_where_sources_begin(run):
    def body(job):
        to, source = job.window((4, 5), "int64"), job.window((4, 5), "int64")
        other = (job.pe + 1) % job.npes
        source.local[:] = np.arange(20).reshape(4, 5) + 100 * job.pe
        for start in (5, np.int64(5), (1, 0)):
            to.local[:] = 0
            job.barrier()
            to.put_nbi(other, 0, source, start)
            job.barrier()
            assert to.local.reshape(-1).tolist() == [*(np.arange(5, 20) + 100 * other), *[0] * 5]
            job.barrier()
            to.local[:] = 0
            job.barrier()
            to.prepare(other, (0, 0), source, start).start()
            job.barrier()
            assert to.local[0, 0] == 100 * other + 5
            job.barrier()

    run(2, body)


def test_a_wrong_signal_puts_nothing():
    def body(job):
        window, signals = job.window(10, "int64"), job.window(1, "uint64")
        with pytest.raises(memonet.OutOfBounds):
            window.put_signal(0, 0, np.arange(10)[::2], signals, 7, 1)
        assert not window.local.any()

    memonet.threads(1, body)


def test_dlpack_both_ways():
    class Tensor:
        """What another library has: neither a buffer nor an array."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    def body(job):
        w, array = job.window(4), np.arange(2.0)
        w.put(0, 0, Tensor(array + 1))
        w.at(0)[2:] = Tensor(array + 3)
        assert w.local.tolist() == [1, 2, 3, 4]
        into = Tensor(array)
        assert w.get(0, 2, into) is into and array.tolist() == [3, 4]
        assert np.shares_memory(np.from_dlpack(w), w.local)
        with pytest.raises(TypeError, match="here are"):
            w.put(0, 0, Tensor(np.arange(2)))

    memonet.threads(1, body)


def test_own_part_may_overlap():
    def body(job):
        w = job.window(100, "int64")
        w.local[:] = range(100)
        w.put(0, 1, w.local[:99])
        assert w.local.tolist() == [0, *range(99)]
        w.at(0)[:50] = w.local[98::-2]
        assert w.local[:50].tolist() == list(range(97, -1, -2)) + [0]

    memonet.threads(1, body)


def test_arrays_keep_their_memory():
    def body(job):
        right = (job.pe + 1) % job.npes
        kept = []
        for step in range(20):
            with job.window(1000, "int64") as w:
                array = w.local[10:20]
                array[:] = step
                kept.append(array)
            with pytest.raises(RuntimeError, match="freed"):
                w.put(right, 0, 1)
            with pytest.raises(RuntimeError, match="freed"):
                w.local
            # Each PE drops others, in another order; windows are made meanwhile.
            if step % 3 == job.pe:
                kept.pop(0)
            other = job.window(1000, "int64")
            assert not other.local.any(), "memory in use was given away"
            other.local[:] = -1
            del other
        assert all((array == array[0]).all() and array[0] >= 0 for array in kept)
        job.barrier()
        return kept

    # They outlive their job, too.
    for kept in memonet.threads(2, body):
        assert all((array >= 0).all() for array in kept)


def test_other_libraries_see_the_memory():
    def body(job):
        w = job.window((2, 3), "float32")
        w.local[:] = 5
        seen = np.from_dlpack(w)
        seen[0, 0] = 6
        assert w.local[0, 0] == 6 and np.asarray(w).shape == (2, 3)
        assert memoryview(w.local).format == "f"
        w.put(0, 0, memoryview(np.full(2, 9, "float32")))
        assert w.local[0].tolist() == [9, 9, 5]
        assert job.window(4, "u1").put(0, 0, b"abc") is None

    memonet.threads(1, body)


def test_arrays_of_all_kinds(run):
    def body(job):
        class Sub(np.ndarray):
            pass

        right, w = (job.pe + 1) % job.npes, job.window(12, "float32")
        whole = np.arange(12, dtype="float32")
        for array in (
            whole,
            whole.reshape(3, 4),
            whole.reshape(4, 3).T,
            whole[::-1],
            whole[2:2],
            whole.view(Sub),
            np.array(5, "float32"),
            np.broadcast_to(whole[:1], 12),
            np.frombuffer(whole.tobytes(), "float32"),
            np.frombuffer(b"x" + whole.tobytes(), "uint8")[1:].view("float32"),
            whole.astype(np.dtype("float32", metadata={"a": 1})),
        ):
            job.barrier()
            w.local[:] = -1
            job.barrier()
            w.put(right, 0, array)
            job.barrier()
            assert w.local[: array.size].tolist() == np.ravel(array).tolist()
            assert (w.local[array.size :] == -1).all()
            into = np.zeros_like(array) if array.flags.writeable else np.zeros(array.shape, "f4")
            got = w.get(job.pe, 0, into)
            assert (got == array).all() and (got is into or array.ndim == 0)
        for wrong in (whole.astype("f8"), whole.astype(">f4"), whole.astype("i4"), np.array(["a"])):
            for call in (w.put, w.get):
                try:
                    call(right, 0, wrong)
                    raise AssertionError("elements of another dtype")
                except TypeError:
                    pass
        whole.flags.writeable = False
        try:
            w.get(right, 0, whole)
            raise AssertionError("the array is read-only")
        except ValueError:
            pass
        try:
            w.get(job.pe, 0, w.local[2:4])
            raise AssertionError("it is the window itself")
        except ValueError:
            pass
        w.put(job.pe, 1, w.local[:11])  # overlaps
        job.barrier()

    run(2, body)


def test_what_is_beneath_checks_arrays_too(run):
    """The methods that the public ones call: a program that finds them breaks no memory."""

    def body(job):
        w, gaps = job.window((100, 2)), np.zeros((10, 2))[:, 0]
        region, mutex = memonet.Region(job, 64), memonet.Mutex(job, np.zeros(4))
        channel = memonet.Multicast(job)
        calls = [
            lambda: w._get_view(1, w.local[:, 0], np.zeros(1)),
            lambda: w._put_view(1, w.local[:, 0], np.zeros(1)),
            lambda: region._data.read(0, gaps),
            lambda: region._data.write(0, gaps),
        ]
        if job.pe == 0:
            calls.append(lambda: channel._data.publish(gaps))
        for call in calls:
            try:
                call()
                raise AssertionError("the array does not fit")
            except ValueError:
                pass
        with mutex as array:
            array[:] = 1
        job.barrier()

    run(2, body)
