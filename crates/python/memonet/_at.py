"""Another PE's part of a window, indexed as an array: `w.at(pe)[i:j] = array`.

A view of this PE's own part says which bytes are meant: they lie at the same place of every part.
"""

from ._memonet import Window


def _is_element(own, dtype):
    """Whether a value of dtype `own` may come from an array of `dtype`. NumPy gives its numbers in
    this machine's byte order, and its texts as long as they are."""
    import numpy

    if own.kind in "SU":
        return own.kind == dtype.kind and own.itemsize <= dtype.itemsize
    return numpy.can_cast(own, dtype, "equiv")


class At:
    """The part of a PE. Made by `Window.at`."""

    __slots__ = ("_window", "_pe")

    def __init__(self, window, pe):
        window._check_pe(pe)
        self._window = window
        self._pe = pe

    def __repr__(self):
        return f"{self._window!r}.at({self._pe})"

    def _view(self, key):
        # With `...`, NumPy gives a view of one element, too.
        key = key if isinstance(key, tuple) else (key,)
        if not any(part is Ellipsis for part in key):
            key += (Ellipsis,)
        return self._window.local[key]

    def __setitem__(self, key, value):
        import numpy

        view = self._view(key)
        dtype = self._window.dtype
        if isinstance(value, numpy.generic) and _is_element(value.dtype, dtype):
            value = numpy.asarray(value, dtype)
        elif hasattr(value, "__array__"):
            value = numpy.asarray(value)
        elif hasattr(value, "__dlpack__"):
            value = numpy.from_dlpack(value)
        else:
            value = numpy.asarray(value, dtype)
        if value.shape != view.shape:
            value = numpy.broadcast_to(value, view.shape)
        self._window._put_view(self._pe, view, value)

    def __getitem__(self, key):
        import numpy

        view = self._view(key)
        into = numpy.empty(view.shape, view.dtype)
        self._window._get_view(self._pe, view, into)
        return into if into.ndim else into[()]


def at(self, pe):
    """The part of PE `pe`, to be indexed as an array of `shape` is.

    `w.at(pe)[2:4] = array` copies an array there, and `w.at(pe)[2:4]` copies one from there. An
    index is made of integers, slices and `...`.
    """
    return At(self, pe)


def extend():
    """Adds the method to windows."""
    Window.at = at
