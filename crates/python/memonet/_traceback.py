"""What a PE prints when an exception that nobody has caught ends it.

The exception of one PE ends the job, and the others get `PeerFailed` in their waits. Their
tracebacks would bury the one that says what went wrong. So they print none: `memonet run` reports
who has failed, and how.
"""

import os
import sys

from ._errors import PeerFailed

# `memonet run` sets one of them.
_OF_LAUNCHER = ("MEMONET_JOB_FD", "MEMONET_MACHINE_FD")


def _ends(kind, raised, trace):
    import traceback

    try:
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError):
        pass  # there is none, or nobody reads it: the exception is what is to be said
    if isinstance(raised, PeerFailed) and raised._is_reported:
        is_told = any(name in os.environ for name in _OF_LAUNCHER)
        text = "" if is_told else f"memonet: this PE ends, as {raised}\n"
    else:
        text = "".join(traceback.format_exception(kind, raised, trace))
    if text and sys.stderr is not None:
        # At once, so that lines of several PEs do not mix.
        sys.stderr.write(text)
        sys.stderr.flush()


def install():
    """Prints exceptions of this process so, unless the program has a hook of its own."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _ends
