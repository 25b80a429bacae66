"""Windows of which each PE reaches only the parts to which it has a right."""

from . import _memonet
from ._memonet import Job, Window


def restricted(self, shape, dtype=None, *, right):
    """Makes a window whose parts not every PE may reach. Collective.

    `right(home, holder)` says what PE `holder` may do with the part of PE `home`: "none", "read",
    "write" or "read+write". It is the same function at every PE. The home itself may do all. A PE
    maps only the parts to which it has a right; other calls raise `AccessDenied`. ::

        log = job.restricted(16, "int64", right=lambda home, holder: "read")
    """
    return _memonet.restricted(self, shape, dtype, right)


def attach(self, key, dtype=None, shape=None):
    """Opens one PE's part of a restricted window by its key, which `Window.key` gave that PE. The
    window that it gives reaches that part alone; it has one dimension, unless `shape` is given.
    Raises `AccessDenied` where the key was revoked, or this PE had no right from the beginning."""
    return _memonet.attach(self, bytes(memoryview(key)), dtype, shape)


def key(self):
    """The key to this PE's part of a restricted window: 40 bytes, to be given to other PEs."""
    return _memonet.key(self)


def revoke(self, *, wait=False, timeout=None):
    """Takes back all rights to this PE's part of a restricted window: from now on other PEs get
    `AccessDenied`, and keys made before open nothing. Remotes that they have resolved stay valid
    until they are dropped; with `wait`, waits for that, for `timeout` seconds at most."""
    _memonet.revoke(self, wait, timeout)


def extend():
    """Adds the methods to jobs and windows."""
    Job.restricted, Job.attach = restricted, attach
    Window.key, Window.revoke = key, revoke
