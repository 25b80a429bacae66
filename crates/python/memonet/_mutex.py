"""A mutex that owns its data."""

import sys

from ._memonet import MutexData


def _fields(kind):
    """The dtype of a dataclass whose fields are numbers."""
    import dataclasses
    import numpy
    import typing

    types = {int: "i8", float: "f8", bool: "?", complex: "c16"}
    hints = typing.get_type_hints(kind)
    columns = []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if hint not in types:
            raise TypeError(
                f"field {field.name} of {kind.__name__} is {hint}: a mutex holds int, float, bool "
                "and complex, or give it an array"
            )
        columns.append((field.name, types[hint]))
    return numpy.dtype(columns)


class Mutex:
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
        import dataclasses
        import numpy

        self._class = None
        if dataclasses.is_dataclass(initial) and not isinstance(initial, type):
            self._class = type(initial)
            dtype = _fields(self._class)
            data = numpy.array(dataclasses.astuple(initial), dtype)
        else:
            data = numpy.array(initial, order="C")
        if data.dtype.hasobject:
            raise TypeError("a mutex holds numbers, arrays of numbers, and dataclasses of numbers")
        self._dtype, self._shape = data.dtype, data.shape
        # Bytes: a structure has no format that others understand.
        self._data = MutexData(job, data.reshape(-1).view("uint8"), shadow)
        self._given = self._alike = None

    @property
    def dtype(self):
        """The dtype of the data."""
        return self._dtype

    @property
    def shape(self):
        """The shape of the data."""
        return self._shape

    def __repr__(self):
        return f"<memonet.Mutex {self._shape} {self._dtype}>"

    def _show(self):
        import numpy

        # `frombuffer` keeps the data exported, which `ndarray` does not.
        whole = numpy.frombuffer(self._data, "uint8").view(self._dtype).reshape(self._shape)
        if self._class is not None:
            self._given = self._class(*whole[()].tolist())
        else:
            # A view, so that all views of it keep `whole`, and not it.
            self._given = whole.view()
        return self._given

    def acquire(self, timeout=None):
        """Waits for the data, for so many seconds at most; gives them. `release` gives them back."""
        self._data.lock(timeout)
        return self._show()

    def try_acquire(self):
        """The data, if no other thread or PE has them; otherwise None."""
        return self._show() if self._data.try_lock() else None

    def release(self):
        """Gives the data back. The array that `acquire` gave becomes empty."""
        import dataclasses
        import numpy

        given = self._given
        if given is None:
            pass  # nothing was given, or it was taken back before a view kept the mutex locked
        elif self._class is not None:
            numpy.frombuffer(self._data, self._dtype)[0] = dataclasses.astuple(given)
        else:
            # An array with the two references that `given` has here.
            alike = self._alike = numpy.empty(0)
            others = sys.getrefcount(given) - sys.getrefcount(alike)
            # One is the caller's variable.
            if others > 1:
                raise BufferError(
                    "the mutex's array has another name, or a view or memoryview of it is left, so "
                    "the mutex stays locked: copy what you need, and del the others before you leave"
                )
            # In place: the caller's variable shows nothing any more.
            given.__setstate__((1, (0,), numpy.dtype("uint8"), False, b""))
        self._given = given = None
        self._data.release()

    __enter__ = acquire

    def __exit__(self, kind, *_):
        try:
            self.release()
        except BufferError:
            # The traceback of an exception may be what keeps the views: it says more.
            if kind is None:
                raise

    def free(self):
        """Gives up this PE's handle. The memory is used again when all PEs have."""
        self._data.free()
