"""Reports, traces and statistics name the lines of Python programs."""

import json
import re
import time

import memonet


def test_reports_of_long_waits(run):
    def body(job):
        w = job.window(4)  # this line makes the window

        def wait():
            w.wait_until(3, ">=", 5, timeout=2.0)  # this line waits for a word

        try:
            if job.pe == 0:
                wait()
            else:
                job.barrier()  # this line waits for the barrier
        finally:
            if job.pe == 0:
                job.barrier()

    if run.way == "simulated":
        return  # no launcher asks there: the end of a deadlock is below
    ended = run.start(2, body, options=["--watch", "1"])
    path = run.folder / "body.py"
    lines = path.read_text().splitlines()
    for pe, call, text in [
        (0, "Window::wait_until", "# this line waits for a word"),
        (1, "Job::barrier", "# this line waits for the barrier"),
    ]:
        line = next(n for n, source in enumerate(lines, 1) if text in source)
        told = f"PE {pe} has waited [0-9.]+ s in {call} at [^ ]*{path.name}:{line} "
        assert re.search(told, ended.stderr), (told, ended.stderr)
    made = next(n for n, source in enumerate(lines, 1) if "# this line makes the window" in source)
    told = f"for word 3 of the window made at [^ ]*{path.name}:{made} to be >= 5.0; it is 0.0"
    assert re.search(told, ended.stderr), (told, ended.stderr)
    assert "crates/" not in ended.stderr, ended.stderr


def test_reports_of_pes_that_compute(run_near):
    def body(job):
        mutex = memonet.Mutex(job, 0)
        if job.pe == 0:
            job.barrier()
        with mutex:
            pass
        time.sleep(60)

    said = run_near.start(2, body, options=["--timeout", "1.5"]).stderr
    assert "might wait was Mutex::lock" in said and "crates/" not in said, said


def test_a_deadlock_of_a_simulated_machine(tmp_path):
    def body(job):
        job.window(1).wait_until(0, "==", 1)  # nobody writes it

    try:
        memonet.simulate(body, "rdma-100g", 2, patience=60, echo=False)
        raise AssertionError("they wait for ever")
    except memonet.LaunchError as error:
        line = body.__code__.co_firstlineno + 1
        assert "deadlock" in str(error) and f"test_sight.py:{line}" in str(error), error


def test_traces(run):
    def body(job):
        w = job.window(4, "int64")
        job.barrier()
        w.put(1 - job.pe, 1, 5)  # a put
        w.remote(1 - job.pe, 0).store(7)
        w.wait_until(0, "==", 7)  # a wait
        job.world.all_reduce(1.5)

    path = run.folder / "trace.json"
    run(2, body, options=["--trace", str(path)])
    program = run.folder / "body.py"
    lines = program.read_text().splitlines()
    slices = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    for call, text in [("Window::put", "# a put"), ("Window::wait_until", "# a wait")]:
        line = next(n for n, source in enumerate(lines, 1) if text in source)
        places = [e["args"].get("called at", "") for e in slices if e["name"].startswith(call)]
        # A thread that found the word at once has no slice of a wait.
        assert all(place.endswith(f"{program.name}:{line}") for place in places), places
        assert places or "wait" in call, slices
    assert "crates/" not in path.read_text()


def test_statistics(run_near):
    def body(job):
        w = job.window(8)
        for _ in range(10):
            w.put(1 - job.pe, 0, np.zeros(8))
        job.barrier()

    path = run_near.folder / "run.json"
    run_near(2, body, options=["--stats", f"json:{path}"])
    told = path.read_text()
    assert '"put"' in told and "barrier" in told, told
