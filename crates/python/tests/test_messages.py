"""Messages from any PE to any other."""

import memonet
import numpy as np
import pytest


def test_messages(run):
    def body(job):
        me, n = job.pe, job.npes
        right, left = (me + 1) % n, (me - 1) % n
        with memonet.Messages(job, 100, depth=2) as messages:
            assert messages.most == 100
            messages.send(right, b"from %d" % me)
            assert messages.recv() == (b"from %d" % left, left)
            # Whatever has a buffer; arrays with gaps, too.
            for data in (bytearray(b"x"), np.arange(4.0), np.arange(24).reshape(2, 12)[:, ::2], b""):
                messages.send(right, data)
                got, sender = messages.recv(left, timeout=60.0)
                assert (got, sender) == (memoryview(data).tobytes(), left)
            assert np.frombuffer(got, "uint8").size == 0
            messages.send(me, np.float32(2.5))
            assert np.frombuffer(messages.recv(me)[0], "float32")[0] == 2.5

            job.barrier()
            assert messages.try_recv() is None and messages.try_recv(right) is None
            try:
                messages.recv(timeout=0.01)
                raise AssertionError("nobody has sent")
            except memonet.Timeout:
                pass
            # Room for two.
            assert [messages.try_send(me, b"%d" % i) for i in range(3)] == [True, True, False]
            try:
                messages.send(me, b"2", timeout=0.01)
                raise AssertionError("there is no room")
            except memonet.Timeout:
                pass
            assert [messages.try_recv(me), messages.try_recv()] == [(b"0", me), (b"1", me)]

            job.barrier()
            messages.send_object(right, {"pe": me, "list": [1, 2]})
            assert messages.recv_object() == ({"pe": left, "list": [1, 2]}, left)
            job.barrier()

    run(3, body)


def test_many(run):
    def body(job):
        me, n = job.pe, job.npes
        messages = memonet.Messages(job, 4000, 3)
        each, sent, got = 10, [0] * job.npes, [0] * job.npes

        def block(sender, number):
            return np.full(sender * 131 + number * 37, number, "uint16")

        while sum(got) + sum(sent) < 2 * each * n:
            for pe in range(n):
                if sent[pe] < each and messages.try_send(pe, block(me, sent[pe])):
                    sent[pe] += 1
            while (came := messages.try_recv()) is not None:
                data, pe = came
                assert (np.frombuffer(data, "uint16") == block(pe, got[pe])).all()
                assert len(data) == 2 * block(pe, got[pe]).size
                got[pe] += 1
        job.barrier()
        assert messages.try_recv() is None

    run(3, body)


def test_a_large_message_of_an_array_that_changes(run_near):
    def body(job):
        # Larger than what is sent with the interpreter's lock in hand.
        messages, array = memonet.Messages(job, 1 << 20, 1), np.zeros(1 << 17)
        for step in range(5):
            array[:] = step
            messages.send(1 - job.pe, array)
            array[:] = -1
            got = np.frombuffer(messages.recv()[0])
            assert got.size == array.size and (got == step).all()
        job.barrier()

    run_near(2, body)


def test_ends(run_near):
    def body(job):
        messages = memonet.Messages(job, 10, 1)
        if job.pe == 1:
            messages.send(0, b"last words")
            os._exit(3)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        while messages.try_recv() is None:
            pass
        try:
            while True:
                messages.recv(0)  # of this PE, which sends nothing
        except KeyboardInterrupt:
            pass
        for call in (messages.recv, lambda: [messages.send(1, b"") for _ in range(3)]):
            try:
                call()
                raise AssertionError("PE 1 is gone")
            except memonet.PeerFailed as failed:
                assert failed.pe == 1
        print("told", flush=True)

    ended = run_near.start(2, body, options=["--keep-going"])
    assert "told" in ended.stdout, ended


def test_threads_keep_their_deadlines_and_ctrl_c(run_near):
    def body(job):
        messages = memonet.Messages(job, 10, 1)
        messages.send(job.pe, b"1")
        other = threading.Thread(target=messages.send, args=(job.pe, b"2"))
        other.start()
        try:
            messages.send(job.pe, b"3", timeout=0.1)
            raise AssertionError("there is no room")
        except memonet.Timeout:
            pass
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            messages.send(job.pe, b"3")
            raise AssertionError("there is no room")
        except KeyboardInterrupt:
            pass
        assert [messages.recv(), messages.recv()] == [(b"1", job.pe), (b"2", job.pe)]
        other.join()

    run_near(1, body)


def test_mistakes():
    def body(job):
        messages = memonet.Messages(job, 4)
        with pytest.raises(memonet.Error, match="longer than the most"):
            messages.send(0, b"12345")
        with pytest.raises(memonet.Error, match="longer than the most"):
            messages.try_send(0, np.zeros(1))
        for call in (messages.send, messages.try_send):
            with pytest.raises(IndexError):
                call(1, b"")
            with pytest.raises(TypeError):
                call(0, "text")
        for call in (messages.recv, messages.try_recv):
            with pytest.raises(IndexError):
                call(1)
            with pytest.raises(memonet.OutOfBounds, match="from 0 on"):
                call(-1)
        for none in (-1.0, float("nan")):
            with pytest.raises(ValueError, match="no time limit"):
                messages.recv(timeout=none)
        messages.send(0, b"1")
        messages.recv(timeout=float("inf"))
        with pytest.raises(memonet.Error, match="depth of 0"):
            memonet.Messages(job, 4, 0)
        with pytest.raises(memonet.OutOfMemory):
            memonet.Messages(job, 1 << 45)
        messages.free()
        messages.free()
        with pytest.raises(RuntimeError, match="freed"):
            messages.recv()

    memonet.threads(1, body)


def test_threads_as_pes():
    def body(job):
        messages = memonet.Messages(job, 8, 1)
        for step in range(20):
            messages.send((job.pe + 1) % job.npes, b"%d" % step)
            assert messages.recv()[0] == b"%d" % step
        job.barrier()

    memonet.threads(3, body)
    memonet.threads(3, body, fabric="far:delay_us=20")
