"""What a PE prints when an exception that nobody has caught ends it.

The exception of one PE ends the job, and the others get `PeerFailed` in their waits. Their
tracebacks would bury the one that says what went wrong. So they print none: `memonet run` reports
who has failed, and how. In a job that goes on without PEs that fail, each end is one of its own,
and has its traceback.
"""

import _signal  # what `signal` wraps: importing that takes long, and a Ctrl-C may come meanwhile
import io
import os
import sys

from ._errors import PeerFailed

# `memonet run` sets one of them.
_OF_LAUNCHER = ("MEMONET_JOB_FD", "MEMONET_MACHINE_FD")


def _ends(kind, raised, trace):
    """Prints the exception. Another Ctrl-C meanwhile would bury it: Python prints what interrupts a
    hook as the hook's failure."""
    try:
        before = _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    except ValueError:
        before = None  # a program calls it in another thread, which gets no signals
    try:
        _print(kind, raised, trace)
    finally:
        # Afterwards the interpreter may wait for threads. A handler that was not Python's is None.
        if before is not None:
            _signal.signal(_signal.SIGINT, before)


def _text(kind, raised, trace):
    """What the interpreter would print. The module `traceback` is not imported here: that evaluates
    text, after which the interpreter does not know any more that a Ctrl-C ends the process."""
    text = io.StringIO()
    before, sys.stderr = sys.stderr, text
    try:
        sys.__excepthook__(kind, raised, trace)
        return text.getvalue()
    finally:
        sys.stderr = before


def _print(kind, raised, trace):
    try:
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError):
        pass  # there is none, or nobody reads it: the exception is what is to be said
    hidden = raised.__context__
    while isinstance(hidden, PeerFailed):
        hidden = hidden.__context__
    goes_on = os.environ.get("MEMONET_KEEP_GOING") == "1"
    if isinstance(raised, PeerFailed) and raised._is_reported and hidden is not None:
        # The death only met what this exception began, in a `finally` or at the end of a `with`.
        text = _text(type(hidden), hidden, hidden.__traceback__)
    elif isinstance(raised, PeerFailed) and raised._is_reported and not goes_on:
        is_told = any(name in os.environ for name in _OF_LAUNCHER)
        text = "" if is_told else f"memonet: this PE ends, as {raised}\n"
    else:
        text = _text(kind, raised, trace)
    if text and sys.stderr is not None:
        # At once, so that lines of several PEs do not mix.
        sys.stderr.write(text)
        sys.stderr.flush()


def install():
    """Prints exceptions of this process so, unless the program has a hook of its own."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _ends
