"""What memonet's calls raise. Each class is also the exception of Python that one would expect."""


class Error(Exception):
    """A memonet call failed. The message says why, and what to do."""


class PeerFailed(Error, ConnectionError):
    """A PE that the call depends on is gone.

    `pe` is its number, `cause` says how it went.
    """

    pe: int
    cause: str
    # Whether it has failed, and not left in order: then its launcher says so.
    _is_reported = False


class Timeout(Error, TimeoutError):
    """The time limit of a wait has passed."""


class Interrupted(Error):
    """The wait was ended from outside. After a collective call its team cannot be used any more."""


class OutOfBounds(Error, IndexError):
    """There is no such element, or no such PE."""


class AccessDenied(Error, PermissionError):
    """This PE has no right to the memory."""


class Mismatch(Error, ValueError):
    """Two lengths, or the calls of two PEs, do not match."""


class OutOfMemory(Error, MemoryError):
    """The segment has no room for that."""


class Closed(Error):
    """The writer of a channel has left, and all that it published was read."""
