"""Events: waits with a file descriptor."""

import asyncio
import select

import memonet
import pytest


def test_asyncio(run_near):
    def body(job):
        import asyncio

        mail = job.window(2, "int64")
        other = 1 - job.pe

        async def talk():
            loop, seen = asyncio.get_running_loop(), asyncio.Queue()
            with mail.event(0, ">=", 1) as event:
                loop.add_reader(event, lambda: seen.put_nowait(event.result()))
                for step in range(1, 21):
                    if job.pe == 0:
                        mail.remote(other, 0).store(step)
                    ticks = asyncio.create_task(asyncio.sleep(0))
                    while (word := await seen.get()) is None or word < step:
                        pass
                    await ticks  # other tasks go on meanwhile
                    event.arm(">=", step + 1)
                    if job.pe == 1:
                        mail.remote(other, 0).store(step)
                loop.remove_reader(event)

        asyncio.run(asyncio.wait_for(talk(), 60))
        job.barrier()

    run_near(2, body)


def test_asyncio_of_threads():
    async def wait_for(event):
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.add_reader(event, lambda: ended.done() or ended.set_result(None))
        await ended
        loop.remove_reader(event)
        return event.result()

    def body(job):
        w = job.window(3, "float64")
        if job.pe == 0:
            w.remote(1, 2).store(2.5)
        else:
            event = w.event(2, "!=", 0)
            assert asyncio.run(wait_for(event)) == 2.5
            event.free()
            with pytest.raises(RuntimeError, match="freed"):
                event.fileno()
        job.barrier()

    memonet.threads(2, body)
    memonet.threads(2, body, fabric="far:delay_us=50")


def test_select_sees_a_death(run_near):
    def body(job):
        import select

        mail = job.window(1, "int64")
        event = mail.event(0, "==", 1)
        assert event.result() is None
        assert select.select([event], [], [], 0) == ([], [], [])
        job.barrier()
        if job.pe == 1:
            os._exit(5)
        assert select.select([event], [], [], 60)[0] == [event]
        try:
            event.result()
        except memonet.PeerFailed as failed:
            assert failed.pe == 1
            print("told", flush=True)
        os._exit(0)

    ended = run_near.start(2, body, options=["--keep-going"])
    assert "told" in ended.stdout, ended


def test_mistakes():
    def body(job):
        w = job.window(2)
        with pytest.raises(IndexError):
            w.event(2, "==", 1)
        with pytest.raises(ValueError, match="comparison"):
            w.event(0, "=", 1)
        with pytest.raises(TypeError):
            w.event(0, "==", "x")
        with pytest.raises(TypeError, match="no words"):
            job.window(1, "c16").event(0, "==", 1)
        w.local[1] = 4
        event = w.event(1, ">", 3)
        assert select.select([event], [], [], 10)[0] and event.result() == 4

        class Number:
            """A number whose code uses the event, as another thread may meanwhile."""

            def __index__(self):
                with pytest.raises(RuntimeError, match="another call"):
                    event.fileno()
                return 4

        event.arm(">", Number())
        assert event.result() is None and not select.select([event], [], [], 0)[0]

    memonet.threads(1, body)


def test_simulated_machines_have_none():
    def body(job):
        try:
            job.window(1).event(0, "==", 1)
        except memonet.Error as error:
            return str(error)

    said = memonet.simulate(body, "rdma-100g", 2, patience=60, echo=False).results
    assert all("no threads" in text for text in said), said
