"""A lock for readers and writers that owns its data."""

from ._memonet import RwLockData
from ._shown import Layout, Shown, leave


class _Guard:
    """The data, while this thread may use them: a `with` gives them, and gives them back."""

    def __init__(self, layout, guard, write):
        self._write = write
        self._shown = Shown(layout, guard)

    def release(self):
        """Gives the data back. The array that the `with` gave becomes empty."""
        self._shown.release(self._write)

    def __enter__(self):
        return self._shown.show()

    def __exit__(self, _kind, raised, _trace):
        leave(self.release, raised)


class RwLock:
    """Data of the whole job that many threads of many PEs read at a time, or one changes. Making it
    is collective.

    `initial` is a number, an array or a dataclass of numbers, and equal at all PEs. ::

        table = memonet.RwLock(job, numpy.zeros(100))
        with table.write() as array:     # here alone
            array[job.pe] = 1
        with table.read() as array:      # cannot be written; others may read meanwhile
            print(array.sum())

    Arrays show the data without a copy, and become empty when the `with` is left, as those of a
    `Mutex`. Readers and writers enter in the order in which they asked. A thread that reads or
    writes must not ask again before it has given the data back: a writer may stand in between.

    With `shadow`, the last released data outlive a PE that dies while it writes them.
    """

    def __init__(self, job, initial, *, shadow=False):
        self._layout = Layout(initial)
        layout = self._layout
        self._data = RwLockData(job, layout.initial, layout.dtype, layout.shape, shadow)

    @property
    def dtype(self):
        """The dtype of the data."""
        return self._layout.dtype

    @property
    def shape(self):
        """The shape of the data."""
        return self._layout.shape

    def __repr__(self):
        return f"<memonet.RwLock {self.shape} {self.dtype}>"

    def _enter(self, write, at_once, timeout=None):
        guard = self._data.enter(write, at_once, timeout)
        return None if guard is None else _Guard(self._layout, guard, write)

    def read(self, timeout=None):
        """Waits, for so many seconds at most, until the data may be read. Use it in a `with`, which
        gives an array that cannot be written, or a copy of a dataclass."""
        return self._enter(False, False, timeout)

    def write(self, timeout=None):
        """Waits, for so many seconds at most, until the data may be changed. Use it in a `with`,
        which gives an array, or a dataclass whose fields are written back."""
        return self._enter(True, False, timeout)

    def try_read(self):
        """As `read`, if nobody writes or waits to write; otherwise None."""
        return self._enter(False, True)

    def try_write(self):
        """As `write`, if nobody reads or writes; otherwise None."""
        return self._enter(True, True)

    def stats(self):
        """What this PE has done with the lock so far: a dictionary of `uses`, `hits` (that needed
        nothing from another PE), `handovers`, `messages` and their `bytes`."""
        return self._data.stats()

    def free(self):
        """Gives up this PE's handle. The memory is used again when all PEs have."""
        self._data.free()
