"""memonet: a send is a store.

The processes of a parallel program (PEs) read and write each other's arrays::

    import memonet

    job = memonet.init()                      # one PE of the job that `memonet run` has started
    w = job.window(10, "int64")               # 10 integers on every PE, zero at first
    right = (job.pe + 1) % job.npes
    w.at(right)[2:4] = [job.pe, 7]            # into the neighbour's memory
    job.barrier()
    print(w.local[2:4])                       # an ndarray that shows this PE's own part

Start it with ``memonet run -n 4 python program.py``. docs/python.md of the repository has more.
"""

from . import _at, _collectives, _into, _messages, _restricted, _window
from ._errors import (
    AccessDenied,
    Closed,
    Error,
    Interrupted,
    Mismatch,
    OutOfBounds,
    OutOfMemory,
    PeerFailed,
    Timeout,
)
from ._into import Span
from ._job import init, threads
from ._memonet import (
    Barrier,
    Event,
    Job,
    Messages,
    Remote,
    Supersteps,
    Team,
    Transfer,
    Window,
)
from ._multicast import Multicast
from ._mutex import Mutex
from ._region import Region
from ._rwlock import RwLock
from ._window import transfer

__all__ = [
    "AccessDenied",
    "Barrier",
    "Closed",
    "Error",
    "Event",
    "Interrupted",
    "Job",
    "LaunchError",
    "Messages",
    "Mismatch",
    "Multicast",
    "Mutex",
    "OutOfBounds",
    "OutOfMemory",
    "PeerFailed",
    "Region",
    "Remote",
    "RwLock",
    "Simulation",
    "Span",
    "Supersteps",
    "Team",
    "Timeout",
    "Transfer",
    "Window",
    "init",
    "launch",
    "machines",
    "plot_trace",
    "simulate",
    "threads",
    "transfer",
]

# What starts processes imports as much as all else: PEs do not need it.
_LATER = {
    "LaunchError": "_launch",
    "launch": "_launch",
    "plot_trace": "_plot",
    "Simulation": "_simulate",
    "machines": "_simulate",
    "simulate": "_simulate",
}


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module = importlib.import_module(f".{_LATER[name]}", __name__)
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__():
    return sorted({*globals(), *__all__})


_at.extend()
_collectives.extend()
_into.extend()
_messages.extend()
_restricted.extend()
_window.extend()
