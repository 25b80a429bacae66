"""Joining a job, and jobs whose PEs are threads."""

from . import _memonet, _traceback


def init():
    """Joins the job in which this process was started: by `memonet run`, or alone as a job of one
    PE. A second call gives the same job."""
    job = _memonet.init()
    _traceback.install()
    return job


def threads(n, f, *, fabric=None):
    """Runs `f(job)` on `n` PEs that are threads of this process; gives what each returned, by PE.

    For notebooks, tests and examples. Python runs one of its threads at a time, so these PEs compute
    in turns. An exception in one PE ends the waits of the others, and is raised here. Ctrl-C ends
    the waits of all.
    """
    import threading

    stop = _memonet.Threads()
    outcome = []

    def run():
        try:
            outcome.append((_memonet.threads(n, f, stop, fabric), None))
        except BaseException as raised:  # raised again in the caller's thread
            outcome.append((None, raised))

    thread = threading.Thread(target=run, name="memonet.threads")
    thread.start()
    try:
        thread.join()
    except BaseException:
        stop.stop()
        thread.join()
        raise
    results, raised = outcome[0]
    if raised is not None:
        raise raised
    return results
