"""Ctrl-C, exceptions, deaths, forks, and jobs of threads."""

import gc
import operator
import os
import signal
import subprocess
import sys
import threading
import weakref

import memonet
import pytest
from memonet import _launch


def test_ctrl_c_ends_waits(run_near):
    def body(job):
        w = job.window(1)
        if job.pe == 1:
            w.wait_until(0, "==", 1)

        def signal_soon(number):
            threading.Timer(0.2, os.kill, (os.getpid(), number)).start()

        def raised(call):
            try:
                call()
            except BaseException as error:
                return type(error)

        signal_soon(signal.SIGINT)
        assert raised(lambda: w.wait_until(0, "==", 1)) is KeyboardInterrupt
        # A handler that returns does not end the wait.
        handled = []
        signal.signal(signal.SIGUSR1, lambda *_: handled.append(1))
        signal_soon(signal.SIGUSR1)
        assert raised(lambda: w.wait_until(0, "==", 1, timeout=0.6)) is memonet.Timeout
        assert handled == [1]

        # A collective that was interrupted leaves its team unusable.
        def stop(*_):
            raise ZeroDivisionError

        signal.signal(signal.SIGUSR1, stop)
        signal_soon(signal.SIGUSR1)
        assert raised(job.world.barrier) is ZeroDivisionError
        assert raised(job.world.barrier) is memonet.Error
        assert raised(lambda: job.world.all_reduce(1)) is memonet.Error
        print("done", flush=True)
        job.exit(9)

    ended = run_near.start(2, body)
    assert (ended.returncode, ended.stdout) == (9, "done\n"), ended


# A PE of a simulated machine has no threads, and so no timers.
@pytest.mark.parametrize("run", ["near", "far"], indirect=True)
def test_ctrl_c_ends_every_kind_of_wait(run):
    def body(job):
        word, w, signals = job.window(1, "int64"), job.window(4, "int64"), job.window(1, "uint64")
        mutex, lock = memonet.Mutex(job, np.zeros(1)), memonet.RwLock(job, np.zeros(1))
        messages, steps = memonet.Messages(job, 8, 1), memonet.Supersteps(job, 1)
        channel = memonet.Multicast(job, 1, dtype="int64")
        rights = job.restricted(1, "int64", right=lambda home, holder: "read+write")
        barrier, region = job.world.new_barrier(), memonet.Region(job, 10)
        teams = [job.team([0, 1]) for _ in range(6)]
        if job.pe == 1:
            remote = rights.remote(0, 0)
            with mutex, lock.write():
                word.remote(0, 0).store(1)
                while True:  # the job ends
                    word.wait_until(0, "==", 1)
        word.wait_until(0, "==", 1)
        barrier.arrive()
        messages.send(0, b"full")
        waits = [
            lambda: w.wait_until(0, "==", 1),
            lambda: w.wait_until_any([0, 1], "==", 1),
            lambda: w.wait_until_all([0, 1], "==", 1),
            lambda: w.wait_until_some([0, 1], "==", 1, timeout=60.0),
            lambda: signals.wait_until(0, ">", 0, depends_on=[1]),
            mutex.acquire,
            lambda: mutex.acquire(timeout=60.0),
            lock.read,
            lock.write,
            barrier.wait,
            lambda: messages.send(0, b"more"),
            lambda: messages.recv(1),
            channel.recv,
            steps.step,
            lambda: rights.revoke(wait=True),
            teams[0].barrier,
            lambda: teams[1].all_reduce(1.0),
            lambda: teams[2].broadcast(None, 1),
            lambda: teams[3].all_gather_object("x"),
            lambda: teams[4].new_barrier(),
            lambda: teams[5].split(0),
            region.barrier,
            lambda: job.window(1),
        ]
        for number, wait in enumerate(waits):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                wait()
                raise AssertionError(f"wait {number} has ended")
            except KeyboardInterrupt:
                pass
            except memonet.Error as error:
                # What was interrupted before has made the world's barrier unusable.
                assert number >= len(waits) - 2, (number, error)
                assert "was interrupted" in str(error), error
                try:
                    time.sleep(10)
                    raise AssertionError("no signal came")
                except KeyboardInterrupt:
                    pass
        print("all", flush=True)
        job.exit(9)

    ended = run.start(2, body)
    assert (ended.returncode, ended.stdout) == (9, "all\n"), ended


def test_ctrl_c_leaves_no_mutex_locked(run_near):
    def body(job):
        mutex = memonet.Mutex(job, np.zeros(2))
        for trial in range(60):
            delay = 0.01 + trial % 7 * 0.001
            timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
            try:
                # The signal may come before the start returns.
                timer.start()
                while True:
                    with mutex as array:
                        array[0] += 1
            except KeyboardInterrupt:
                pass
            array = mutex.try_acquire()
            assert array is not None, trial
            mutex.release()

    run_near(1, body)


def test_what_a_handler_raises_is_not_lost(run_near):
    def body(job):
        lock, flag = memonet.RwLock(job, np.zeros(1)), job.window(1, "uint64")

        class Stop(Exception):
            pass

        def handler(*_):
            # Meanwhile what the wait is for comes.
            time.sleep(1.0)
            raise Stop

        job.barrier()
        if job.pe == 1:
            with lock.read():
                flag.signal(0, 0, 1)
                time.sleep(0.7)
        else:
            signal.signal(signal.SIGALRM, handler)
            flag.wait_until(0, "==", 1)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            try:
                with lock.write():
                    raise AssertionError("what the handler has raised is lost")
            except Stop:
                pass
            assert lock.try_write() is not None
        job.barrier()

    run_near(2, body)


def test_handlers_of_libraries_may_call_the_one_before(run_near):
    def body(job):
        import faulthandler

        seen = []
        word = job.window(1, "int64")

        def wait():
            try:
                word.wait_until(0, "==", 1, timeout=0.2)
            except memonet.Timeout:
                pass

        signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        wait()
        faulthandler.register(signal.SIGUSR1, chain=True)
        wait()
        os.kill(os.getpid(), signal.SIGUSR1)
        wait()
        assert seen == [1]

    run_near(1, body)


def test_what_outlives_its_job(run_near):
    def body(job):
        import gc

        w, steps = job.window(4), memonet.Supersteps(job, 3)
        gone = job.window(4)
        array, received = w.local, steps.received
        capsule = np.from_dlpack(gone)
        gone.free()
        for call in (lambda: gone.local, gone.__dlpack__, lambda: np.asarray(gone)):
            try:
                call()
                raise AssertionError("the window was freed")
            except RuntimeError as error:
                assert "freed" in str(error), error
        messages, remote = memonet.Messages(job, 8), w.remote(job.pe, 0)
        mutex = memonet.Mutex(job, np.zeros(3))
        job.barrier()
        job.finalize()
        array[:] = 3
        capsule[:] = 4
        remote.store(5.0)
        assert array.tolist() == [5, 3, 3, 3] and not received.any()
        for call in (
            job.barrier,
            messages.recv,
            steps.step,
            mutex.acquire,
            lambda: job.window(1),
            lambda: w.wait_until(0, "==", 9.0, timeout=0.1),
        ):
            try:
                call()
            except memonet.Error:
                pass
        del w, steps, messages, mutex, job
        gc.collect()
        assert (array[1:] == 3).all() and (capsule == 4).all() and remote.load() == 5

    run_near(2, body)


def test_ctrl_c_beside_waits_of_another_thread(run_near):
    def body(job):
        w, team = job.window(2, "int64"), job.team([0])
        if job.pe == 1:
            job.barrier()
            return
        other = threading.Thread(target=w.wait_until, args=(1, "==", 1))
        other.start()
        # Calls that end at once, while the other thread runs the hook of its wait.
        for _ in range(1000):
            team.barrier()
        for _ in range(3):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                w.wait_until(0, "==", 1)
                raise AssertionError("nobody has written the word")
            except KeyboardInterrupt:
                pass
        w.local[1] = 1
        other.join()
        job.barrier()

    run_near(2, body)


def test_waits_depend_on_whom_they_name(run_near):
    def body(job):
        w = job.window(1, "int64")
        if job.pe == 2:
            os._exit(0)
        if job.pe == 1:
            try:
                w.wait_until(0, "==", 1)
            except memonet.PeerFailed:
                w.remote(0, 0).store(1)
        else:
            w.wait_until(0, "==", 1, depends_on=[1])
            print("went on", flush=True)

    ended = run_near.start(3, body, options=["--keep-going"])
    assert "went on" in ended.stdout, ended


def test_threads_wait_by_themselves(run_near):
    def body(job):
        words, done = job.window(2, "int64"), []

        def wait(index):
            words.wait_until(index, "==", 1)
            done.append(index)

        threads = [threading.Thread(target=wait, args=(index,)) for index in (0, 1)]
        for thread in threads:
            thread.start()
        other = 1 - job.pe
        for index in (1, 0):
            words.remote(other, index).store(1)
            threads[index].join()
        assert sorted(done) == [0, 1]
        job.barrier()

    run_near(2, body)


def test_an_exception_ends_the_job(run_near):
    def body(job):
        if job.pe == 1:
            raise ValueError("this is what went wrong")
        job.barrier()

    ended = run_near.start(3, body)
    assert ended.returncode == 1
    assert "ValueError: this is what went wrong" in ended.stderr
    assert "memonet: PE 1" in ended.stderr, ended.stderr


def test_the_traceback_is_what_one_reads_last(run):
    def body(job):
        w = job.window(1, "int64")
        print("some output of PE", job.pe)
        job.barrier()
        if job.pe == 2:
            raise ValueError("this is what went wrong")
        # In each of these ways, PEs get to know that PE 2 has failed.
        if job.pe == 0:
            job.barrier()
        elif job.pe == 1:
            w.wait_until(0, "==", 1)
        else:
            job.world.all_reduce(1.0)

    for _ in range(10 if run.way == "near" else 2):
        ended = run.start(4, body)
        assert ended.returncode == 1, ended
        said = ended.stderr.splitlines()
        its = [line for line in said if not line.startswith("memonet:")]
        assert its[0] == "Traceback (most recent call last):", ended.stderr
        assert its[-1] == "ValueError: this is what went wrong", ended.stderr
        assert ended.stderr.count("Traceback") == 1 and "PeerFailed" not in ended.stderr
        # Then the launcher's report, which says it again.
        after = said[said.index(its[-1]) + 1 :]
        assert after and all(line.startswith("memonet:") for line in after), ended.stderr
        assert any("PE 2" in line for line in after), ended.stderr


def test_exceptions_of_all_do_not_mix(run_near):
    def body(job):
        def deep(n):
            if n == 0:
                raise ValueError(f"of PE {job.pe}")
            deep(n - 1)

        job.barrier()
        try:
            deep(5)
        except ValueError as error:
            job.barrier()
            raise RuntimeError(f"later, of PE {job.pe}") from error

    for _ in range(5):
        said = run_near.start(4, body).stderr
        its = [line for line in said.splitlines() if not line.startswith("memonet:")]
        while its:  # each block is one PE's
            end = next(at for at, line in enumerate(its) if line.startswith("RuntimeError"))
            block, its = its[: end + 1], its[end + 1 :]
            pe = block[-1].split()[-1]
            assert block[0].startswith("Traceback") and f"ValueError: of PE {pe}" in block, said


def test_other_ends_have_tracebacks(run_near):
    def left(job):
        if job.pe == 1:
            job.finalize()
        else:
            job.barrier()

    # Leaving in order is no failure, so the report of those who waited is all that there is.
    said = run_near.start(2, left).stderr
    assert "PeerFailed: PE 1" in said and "job.barrier()" in said, said

    def unlaunched(job):
        if job.pe == 1:
            os._exit(3)
        # As under another launcher, which reports nothing.
        del os.environ["MEMONET_JOB_FD"], os.environ["MEMONET_KEEP_GOING"]
        job.barrier()

    said = run_near.start(2, unlaunched, options=["--keep-going"]).stderr
    assert "memonet: this PE ends, as PE 1 failed" in said and "Traceback" not in said, said

    def hidden(job):
        if job.pe == 1:
            os._exit(3)
        try:
            raise ZeroDivisionError("what went wrong")
        finally:
            job.barrier()

    said = run_near.start(2, hidden, options=["--keep-going"]).stderr
    assert "ZeroDivisionError: what went wrong" in said and "PeerFailed" not in said, said

    def twice(job):
        class Slow:
            def flush(self):
                sys.stdout = sys.__stdout__
                os.kill(os.getpid(), signal.SIGINT)

        def elsewhere():
            try:
                raise ValueError("in a thread")
            except ValueError:
                sys.excepthook(*sys.exc_info())

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        sys.stdout = Slow()
        raise KeyboardInterrupt

    said = run_near.start(1, twice).stderr
    assert "raise KeyboardInterrupt" in said and "excepthook" not in said, said
    assert "ValueError: in a thread" in said and said.count("Traceback") == 2, said

    def own(job):
        def hook(kind, raised, trace):
            print("the program's own hook", file=sys.stderr)

        sys.excepthook = hook
        raise ValueError

    said = run_near.start(1, own).stderr
    assert "own hook" in said and "Traceback" not in said, said


def test_a_ctrl_c_ends_the_process_as_without_this_module():
    def ended(first):
        program = f"{first}; raise KeyboardInterrupt"
        return subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)

    plain, ours = ended("pass"), ended("import memonet; memonet.init()")
    assert ours.returncode == plain.returncode and ours.stderr == plain.stderr, ours


def test_departures_are_told(run_near):
    def body(job):
        if job.pe == 1:
            os._exit(3)
        if job.pe == 2:
            job.finalize()
            return
        try:
            job.departed(-1)
        except IndexError:
            print("no PE", end="; ")
        while None in (job.departed(1), job.departed(2)):
            time.sleep(0.01)
        print(job.departed(1), job.departed(2), job.departed(0), sep="; ", flush=True)

    ended = run_near.start(3, body, options=["--keep-going"])
    assert ended.stdout == "no PE; ended with exit status 3; finalised; None\n", ended


def test_pes_of_a_job_that_goes_on_say_why_they_end(run_near):
    def body(job):
        job.barrier()
        if job.pe == 1:
            os._exit(3)
        if job.pe == 0:
            job.barrier()  # it fails

    said = run_near.start(3, body, options=["--keep-going"]).stderr
    its = [line for line in said.splitlines() if not line.startswith("memonet:")]
    assert its[0].startswith("Traceback") and "job.barrier()  # it fails" in said, said
    assert its[-1].startswith("memonet") and "PeerFailed: PE 1 failed" in its[-1], said
    assert said.count("Traceback") == 1, said
    # A job in such a job is one by itself.
    inner = "import memonet, os; job = memonet.init(); os._exit(3) if job.pe else job.barrier()"

    def outer(job):
        import subprocess

        inside = [*os.environ["INNER"].split("|"), sys.executable, "-c", os.environ["PROGRAM"]]
        ended = subprocess.run(inside, capture_output=True, text=True)
        print(ended.stderr)

    environment = {"INNER": f"{_launch.command()}|run|-n|2", "PROGRAM": inner}
    ended = run_near(1, outer, options=["--keep-going"], environment=environment)
    assert "PE 1" in ended.stdout and "Traceback" not in ended.stdout, ended


def test_a_death_is_an_exception(run):
    def body(job):
        w = job.window(1)
        if job.pe == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            w.wait_until(0, "==", 1)
        except memonet.PeerFailed as error:
            assert error.pe == 1 and "SIGKILL" in error.cause, error
            print("told", flush=True)

    ended = run.start(2, body)
    assert ended.returncode != 0 and "told" in ended.stdout, ended


def test_children_are_not_the_pe(run_near):
    def body(job):
        w = job.window(1, "int64")
        child = os.fork()
        if child == 0:
            w.put(1 - job.pe, 0, 5)
            try:
                job.barrier()
            except memonet.Error as error:
                os._exit(0 if "forked off" in str(error) else 2)
            os._exit(3)
        assert os.waitpid(child, 0)[1] == 0
        w.wait_until(0, "==", 5)
        job.barrier()

    run_near(2, body)


def test_children_give_nothing_back(run_near):
    def body(job):
        def child(call):
            """Calls it in a process that is forked off."""
            pid = os.fork()
            if pid == 0:
                try:
                    call()
                except memonet.Error as error:
                    os._exit(0 if "forked off" in str(error) else 2)
                os._exit(1)
            assert os.waitpid(pid, 0)[1] >> 8 == 0

        def drop(held):
            held.clear()
            job.barrier()  # is refused

        mutex, lock = memonet.Mutex(job, np.zeros(4)), memonet.RwLock(job, np.zeros(4))
        rights = job.restricted(4, "int64", right=lambda home, holder: "read+write")
        remotes = [rights.remote(1 - job.pe, 0)]
        if job.pe == 0:
            child(mutex.acquire)
            child(lock.try_read)
            guard, array = lock.write(), mutex.acquire()
            array[0] = 7
            child(mutex.release)
            child(guard.release)
            child(lambda: drop(remotes))
            with guard as data:
                data[0] = 8
                job.barrier()
                job.barrier()
            mutex.release()
            remotes.clear()
        else:
            job.barrier()
            assert mutex.try_acquire() is None and lock.try_read() is None
            try:
                rights.revoke(wait=True, timeout=0.2)
                raise AssertionError("PE 0 has a remote")
            except memonet.Timeout:
                job.barrier()
            with mutex as array, lock.read() as data:
                assert (array[0], data[0]) == (7, 8)
            rights.revoke(wait=True, timeout=60.0)
        job.barrier()

    run_near(2, body)


def test_threads():
    def body(job):
        w = job.window(1, "int64")
        w.remote((job.pe + 1) % job.npes, 0).store(job.pe + 5)
        w.wait_until(0, ">", 0)
        job.barrier()
        return job.world.all_reduce(int(w.local[0]))

    assert memonet.threads(4, body) == [26] * 4
    assert memonet.threads(3, body, fabric="far:delay_us=20") == [18] * 3
    for n in (0, -1):
        with pytest.raises(memonet.Error, match="at least one PE"):
            memonet.threads(n, body)

    def one_fails(job):
        if job.pe == 1:
            raise ValueError("one")
        with pytest.raises(memonet.PeerFailed):
            job.barrier()

    with pytest.raises(ValueError, match="one"):
        memonet.threads(2, one_fails)

    class Thing:
        pass

    things = []

    def all_fail(job):
        thing = Thing()
        things.append(weakref.ref(thing))
        raise ValueError(thing)

    with pytest.raises(ValueError):
        memonet.threads(3, all_fail)
    gc.collect()
    assert [thing() for thing in things] == [None] * 3

    def two_jobs(job):
        mine = job.window(1, "uint64")
        theirs = memonet.threads(1, lambda other: other.window(1))[0]
        with pytest.raises(memonet.Error):
            theirs.put_signal(0, 0, 1.0, mine)

    memonet.threads(1, two_jobs)

    soon = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    soon.start()
    with pytest.raises(KeyboardInterrupt):
        memonet.threads(2, lambda job: job.window(1).wait_until(0, "==", 1))


def test_launch(capsys, tmp_path):
    def body(job):
        print(f"PE {job.pe}")
        return job.world.all_reduce(job.pe)

    assert memonet.launch(body, 3) == [3, 3, 3]
    assert sorted(capsys.readouterr().out.split("\n")) == ["", "PE 0", "PE 1", "PE 2"]
    program = tmp_path / "program.py"
    program.write_text("import sys; sys.exit(int(sys.argv[1]))")
    with pytest.raises(memonet.LaunchError) as failed:
        memonet.launch(program, 1, 4)
    assert failed.value.status == 4
    for early in (lambda job: sys.exit(0), lambda job: job.exit(0)):
        with pytest.raises(memonet.LaunchError, match="PE 0 .* before its function returned"):
            memonet.launch(early, 2)
    for launch in (memonet.launch, lambda f, n: memonet.simulate(f, "rdma-100g", n)):
        with pytest.raises(TypeError, match="not NoneType"):
            launch(None, 2)
    with pytest.raises(TypeError, match="list of words"):
        memonet.launch(body, 2, options="--watch")


@pytest.mark.parametrize("launch", ["launch", "simulate"])
def test_ctrl_c_ends_a_launch_that_prints_much(launch):
    """Also a job that nobody reads any more."""
    start = {"launch": "memonet.launch(floods, 2)", "simulate": 'memonet.simulate(floods, "rdma-100g", 2)'}
    program = f"""
import memonet, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
def floods(job):
    while True:
        print("flood " * 1000)
try:
    {start[launch]}
except KeyboardInterrupt:
    print("interrupted")
"""
    command = [sys.executable, "-u", "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            started.stdout.readline()
            started.send_signal(signal.SIGINT)
            said = started.communicate(timeout=30)[0]
        finally:
            started.kill()
    assert started.returncode == 0 and said.endswith("interrupted\n"), said[-200:]


def test_functions_without_cloudpickle(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)

    def local(job):
        return job.pe

    for function in (local, lambda job: job.pe):
        with pytest.raises(TypeError, match="pip install cloudpickle"):
            memonet.launch(function, 2)
        with pytest.raises(TypeError, match="pip install cloudpickle"):
            memonet.simulate(function, "rdma-100g", 2)
    # What other processes can import needs no cloudpickle.
    assert memonet.launch(operator.attrgetter("pe"), 2) == [0, 1]


def test_functions_need_a_folder_that_hosts_share():
    start = [sys.executable, "-c", _launch._PROGRAM, "/nowhere/memonet-1"]
    ended = subprocess.run(start, capture_output=True, text=True)
    assert ended.returncode == 1 and ended.stderr.startswith("/nowhere"), ended
    assert "set TMPDIR" in ended.stderr and len(ended.stderr.splitlines()) == 1, ended


def test_simulate():
    names = memonet.machines()
    assert {"dimmnet-1/D", "rdma-100g"} <= set(names)

    def program(job):
        w = job.window(1, "int64")
        for step in range(1, 11):
            if job.pe == 0:
                w.remote(1, 0).store(step)
                w.wait_until(0, "==", step)
            else:
                w.wait_until(0, "==", step)
                w.remote(0, 0).store(step)
        job.barrier()
        return job.pe

    def run(trace):
        return memonet.simulate(program, "rdma-100g", 2, patience=60, trace=trace)

    runs = [run(trace) for trace in (False, True)]
    assert runs[0].results == [0, 1] and runs[0].events is None and runs[1].events
    # A run is a function of machine and program. Ten times there and back take 14 microseconds.
    assert runs[0].seconds == runs[1].seconds > 14e-6, runs[0]
