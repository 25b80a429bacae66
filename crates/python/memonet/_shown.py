"""Arrays that show shared data while this PE holds them, and nothing afterwards."""

import sys


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
                f"field {field.name} of {kind.__name__} is {hint}: shared data are int, float, bool "
                "and complex, or give an array"
            )
        columns.append((field.name, types[hint]))
    return numpy.dtype(columns)


class Layout:
    """What shared data look like, and the bytes with which they begin."""

    def __init__(self, initial):
        import dataclasses
        import numpy

        self.kind = None
        if dataclasses.is_dataclass(initial) and not isinstance(initial, type):
            self.kind = type(initial)
            data = numpy.array(dataclasses.astuple(initial), _fields(self.kind))
        else:
            data = numpy.array(initial, order="C")
        if data.dtype.hasobject:
            raise TypeError("shared data are numbers, arrays of numbers, and dataclasses of numbers")
        self.dtype, self.shape = data.dtype, data.shape
        # Bytes: a structure has no format that others understand.
        self.initial = data.reshape(-1).view("uint8")


class Shown:
    """The data that `buffer` exports while this PE holds them."""

    def __init__(self, layout, buffer):
        self.layout, self.buffer = layout, buffer
        self._given = self._alike = None

    def show(self):
        """An array that shows the data; of a dataclass, a copy."""
        import numpy

        layout = self.layout
        # `frombuffer` keeps the data exported, which `ndarray` does not.
        whole = numpy.frombuffer(self.buffer, "uint8").view(layout.dtype).reshape(layout.shape)
        if layout.kind is not None:
            self._given = layout.kind(*whole[()].tolist())
        else:
            # A view, so that all views of it keep `whole`, and not it.
            self._given = whole.view()
        return self._given

    def hide(self, write=True):
        """Empties the array. Writes a dataclass back, unless the data may only be read."""
        import dataclasses
        import numpy

        given = self._given
        if given is None:
            pass  # nothing was given, or it was taken back before a view kept the data
        elif self.layout.kind is not None:
            if write:
                # All fields, or none.
                row = numpy.array(dataclasses.astuple(given), self.layout.dtype)
                numpy.frombuffer(self.buffer, self.layout.dtype)[0] = row
        else:
            # An array with the two references that `given` has here.
            alike = self._alike = numpy.empty(0)
            others = sys.getrefcount(given) - sys.getrefcount(alike)
            # One is the caller's variable.
            if others > 1:
                raise BufferError(
                    "the array of the shared data has another name, or a view or memoryview of it "
                    "is left, so they stay locked: copy what you need, and del the others before "
                    "you leave"
                )
            # In place: the caller's variable shows nothing any more.
            given.__setstate__((1, (0,), numpy.dtype("uint8"), False, b""))
        self._given = given = None

    def release(self, write=True):
        """`hide`, and gives the data back."""
        try:
            self.hide(write)
        except BufferError:
            raise
        except Exception:
            # What does not fit is not written.
            self._given = None
            self.buffer.release()
            raise
        self.buffer.release()


def leave(release, raised):
    """Releases shared data at the end of a `with`, which `raised` may end."""
    try:
        release()
    except BufferError:
        if raised is None:
            raise
    else:
        return
    # The functions that the exception has ended may be all that keeps the array.
    import traceback

    seen = []
    while raised is not None and raised not in seen:
        seen.append(raised)
        traceback.clear_frames(raised.__traceback__)
        raised = raised.__cause__ or raised.__context__
    release()
