"""A mutex that owns its data."""

from ._memonet import MutexData, Turns
from ._shown import Layout, Shown, leave


class Mutex(Turns):
    """Data of the whole job that one thread of one PE uses at a time. Making it is collective.

    `initial` is a number, an array or a dataclass of numbers, and equal at all PEs. ::

        total = memonet.Mutex(job, numpy.zeros(3))
        with total as array:       # an array that shows the data, here alone
            array += 1

    Inside of the `with`, `array` shows the data without a copy. When it is left, `array` becomes
    empty. No view of it may be left then: that is a `BufferError`, and the mutex stays locked. Of a
    dataclass, the `with` gives a copy, whose fields are written back when it is left.

    With `shadow`, the last released data outlive a PE that dies while it holds them.
    """

    def __init__(self, job, initial, *, shadow=False):
        layout = Layout(initial)
        self._data = MutexData(job, layout.initial, layout.dtype, layout.shape, shadow)
        self._shown = Shown(layout, self._data)

    @property
    def dtype(self):
        """The dtype of the data."""
        return self._shown.layout.dtype

    @property
    def shape(self):
        """The shape of the data."""
        return self._shown.layout.shape

    def __repr__(self):
        return f"<memonet.Mutex {self.shape} {self.dtype}>"

    def acquire(self, timeout=None):
        """Waits for the data, for so many seconds at most; gives them. `release` gives them back."""
        before = self._data.mine
        try:
            self._data.lock(timeout)
            return self._shown.show()
        except BaseException as raised:
            self._undo(before, raised)
            raise

    def try_acquire(self):
        """The data, if no other thread or PE has them; otherwise None."""
        before = self._data.mine
        try:
            return self._shown.show() if self._data.try_lock() else None
        except BaseException as raised:
            self._undo(before, raised)
            raise

    __enter__ = acquire

    def _undo(self, before, raised):
        """Gives back what a signal keeps the caller from getting, which came after turn `before`."""
        if self._data.mine not in (None, before):
            self._leave(raised)

    def _leave(self, raised):
        """The end of a turn, which `raised` may end. `Turns` calls it."""
        leave(self._shown.release, raised)

    def stats(self):
        """What this PE has done with the mutex so far: a dictionary of `uses`, `hits` (that needed
        nothing from another PE), `handovers`, `messages` and their `bytes`."""
        return self._data.stats()

    def free(self):
        """Gives up this PE's handle. The memory is used again when all PEs have."""
        self._data.free()
