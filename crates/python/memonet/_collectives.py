"""Collectives on arrays and plain values, and on pickled objects where asked.

All members make the same call, with arrays of one shape and dtype, or with plain values. Calls do
not compare arrays, unless MEMONET_CHECK=1 is set.
"""

import struct

from ._errors import Mismatch
from ._memonet import Team

# A plain value that travels by itself: its type, a mark that arrays do not have, and its bytes.
_RECORD = struct.Struct("=c7s16s")
_MARK = b"memonet"
_INT, _FLOAT, _COMPLEX, _BOOL, _NONE = b"i", b"f", b"c", b"b", b"n"


def _is_plain(x):
    return x is None or isinstance(x, (bool, int, float, complex))


def _numpy():
    import numpy

    return numpy


def _plain(x):
    """A number of NumPy's as the plain value that it is; anything else as it is."""
    if _is_plain(x):
        return x
    np = _numpy()
    if not isinstance(x, (np.number, np.bool_)) or x.dtype.kind not in "biufc":
        return x
    value = x.item()
    return value if _is_plain(value) else x  # not so for a long double


def _array(x, op=None):
    """An array of a value."""
    np = _numpy()
    # All members have the same type, whatever their values are.
    integer = isinstance(x, int) and not isinstance(x, bool)
    array = np.asarray(x, np.int64 if integer else None)
    if array.dtype.hasobject:
        raise TypeError(
            f"a collective takes numbers and arrays of numbers, not {type(x).__name__}: "
            "the calls that end in _object pickle what you give"
        )
    if array.dtype.kind == "b" and op in ("sum", "product", "prod"):
        array = array.astype(np.int64)
    return array


def _compare(team, array):
    """With MEMONET_CHECK=1, members that give different arrays get an error. So they do without it
    for arrays of strings, whose dtype NumPy takes from their values."""
    if not team._is_checked and array.dtype.kind not in "SU":
        return
    import zlib

    team._compare(zlib.crc32(f"{array.dtype.str}{array.shape}".encode()))


def _combine(team, x, op, form, root, out):
    value = _plain(x)
    # Plain integers are int64: those of uint64 go as an array.
    is_long = value is not x and x.dtype.char in "LQ"
    if value is not None and _is_plain(value) and not is_long:
        return _combine_plain(team, x, value, op, form, root, out)
    np = _numpy()
    array = _array(x, op)
    if out is None:
        result = np.array(array, order="C")
    else:
        _check_out(out, array)
        result = out
        if out is not x:
            np.copyto(out, array)
    _compare(team, result)
    team._combine(result, result.dtype, op, form, root)
    # NumPy, too, gives a number for numbers.
    return result[()] if out is None else result


def _combine_plain(team, x, value, op, form, root, out):
    if out is not None:
        _check_out(out, _array(x, op))
    result = team._combine_number(value, op, form, root)
    if out is not None:
        np = _numpy()
        np.copyto(out, np.asarray(result))
        return out
    return result if value is x else _like(x, value, result)


def _check_out(out, array):
    """Refuses an `out` that has not the dtype and shape of the result."""
    if not isinstance(out, _numpy().ndarray):
        raise TypeError(
            f"out is a {type(out).__name__}, and no array to fill: make it as "
            "numpy.empty_like(x) does"
        )
    if (out.dtype, out.shape) != (array.dtype, array.shape):
        raise ValueError(
            f"out has dtype {out.dtype} and shape {out.shape}, and the result has "
            f"{array.dtype} and {array.shape}: make it as numpy.empty_like(x) does"
        )


def _like(x, value, result):
    """A result as a number of `x`'s class. `value` is `x` as a plain number: where the result has
    another type, members gave numbers of different types."""
    if type(result) is not type(value):
        return result
    # Integers wrap, as NumPy's do.
    return _numpy().asarray(result).astype(x.dtype)[()]


def reduce(self, x, op="sum", root=0, out=None):
    """`all_reduce` whose result only the member with rank `root` gets; the others get None."""
    result = _combine(self, x, op, "root", root, out if self.rank == root else None)
    return result if self.rank == root else None


def scan(self, x, op="sum", out=None):
    """`all_reduce` of the values of this member and of all lower ranks alone."""
    return _combine(self, x, op, "scan", 0, out)


def exclusive_scan(self, x, out=None):
    """The sum of the values of all lower ranks; 0 at rank 0."""
    return _combine(self, x, "sum", "exclusive", 0, out)


def _pack(x):
    if x is None:
        return _RECORD.pack(_NONE, _MARK, b"")
    if isinstance(x, bool):
        return _RECORD.pack(_BOOL, _MARK, struct.pack("=?", x))
    if isinstance(x, int):
        return _RECORD.pack(_INT, _MARK, x.to_bytes(16, "little", signed=True))
    if isinstance(x, float):
        return _RECORD.pack(_FLOAT, _MARK, struct.pack("=d", x))
    return _RECORD.pack(_COMPLEX, _MARK, struct.pack("=dd", x.real, x.imag))


def _unpack(record):
    kind, mark, data = _RECORD.unpack(record)
    if mark != _MARK or kind not in (_NONE, _BOOL, _INT, _FLOAT, _COMPLEX):
        raise Mismatch("this PE takes part with a plain value, and another one with an array")
    if kind == _NONE:
        return None
    if kind == _BOOL:
        return data[0] != 0
    if kind == _INT:
        return int.from_bytes(data, "little", signed=True)
    if kind == _FLOAT:
        return struct.unpack_from("=d", data)[0]
    return complex(*struct.unpack("=dd", data))


def _records(values):
    return _numpy().frombuffer(b"".join(map(_pack, values)), "uint8")


def _values(records):
    data = records.tobytes()
    return [_unpack(data[at : at + _RECORD.size]) for at in range(0, len(data), _RECORD.size)]


def _is_array(x):
    """Whether a call can fill it in place."""
    if hasattr(x, "__array__") or hasattr(x, "__array_interface__"):
        return not isinstance(x, _numpy().generic)
    try:
        return not memoryview(x).readonly
    except TypeError:
        return False


def broadcast(self, x, root=0):
    """Gives all members the value of the member with rank `root`.

    An array is filled in place, and all members give one of the same size. Of a plain value (None,
    a bool or a number) the others may give anything plain, such as None.
    """
    value = _plain(x)
    if _is_plain(value):
        record = _records([value]).copy()
        self._broadcast(record, root)
        return _values(record)[0]
    if not _is_array(x):
        raise TypeError(
            f"broadcast takes a number or an array, not {type(x).__name__}: broadcast_object "
            "pickles what you give"
        )
    array = _array(x)
    if array is not x and not array.flags.writeable:
        array = array.copy()
    _compare(self, array)
    self._broadcast(array, root)
    return array


def _gathered(x):
    """What a member gives to a gathering, and whether that is a record."""
    value = _plain(x)
    if _is_plain(value):
        return _records([value]), True
    if isinstance(x, (str, bytes)):
        raise TypeError(
            f"{type(x).__name__}s of members differ in length: all_gather_object pickles them"
        )
    return _array(x), False


def _values_like(x, records):
    """A list for a plain value, and an array for a number of NumPy's."""
    values = _values(records)
    if _is_plain(x):
        return values
    alike = {type(value) for value in values} == {type(x.item())}
    return _numpy().array(values, x.dtype if alike else None)


def all_gather(self, x):
    """The values of all members: a list of plain values, or an array of one more dimension."""
    np = _numpy()
    array, is_record = _gathered(x)
    if not is_record:
        _compare(self, array)
    into = np.empty((self.size, *array.shape), array.dtype)
    self._gather(array, into)
    return _values_like(x, into) if is_record else into


def gather(self, x, root=0):
    """`all_gather` whose result only the member with rank `root` gets; the others get None."""
    np = _numpy()
    array, is_record = _gathered(x)
    if not is_record:
        _compare(self, array)
    into = np.empty((self.size, *array.shape), array.dtype) if self.rank == root else None
    self._gather(array, into, root)
    if into is None:
        return None
    return _values_like(x, into) if is_record else into


def scatter(self, x, root=0, into=None):
    """Gives each member its part of what the member with rank `root` gives.

    The root gives a list of plain values, one for each rank, and gets its own; the others give None.
    Or it gives an array whose first dimension is the rank, and all give `into`, the array for one
    part.
    """
    np = _numpy()
    if into is None:
        values = list(map(_plain, x)) if self.rank == root else []
        if not all(map(_is_plain, values)):
            raise TypeError("scatter of arrays needs `into`, the array for this member's part")
        mine = np.empty(_RECORD.size, "uint8")
        self._scatter(_records(values) if self.rank == root else None, mine, root)
        return _values(mine)[0]
    _compare(self, into)
    self._scatter(np.asarray(x, into.dtype) if self.rank == root else None, into, root)
    return into


def all_to_all(self, x):
    """Sends element i to rank i, and gives what all members sent to this one, by rank.

    A list of plain values gives a list, and an array, whose first dimension is the rank, an array.
    """
    np = _numpy()
    values = list(map(_plain, x)) if isinstance(x, (list, tuple)) else [x]
    if isinstance(x, (list, tuple)) and all(map(_is_plain, values)):
        if len(values) != self.size:
            raise ValueError(f"{len(values)} values for a team of {self.size}")
        records = _records(values)
        into = np.empty_like(records)
        self._all_to_all(records, into)
        return _values(into)
    array = _array(x)
    if array.ndim == 0 or array.shape[0] % self.size:
        raise ValueError(f"an array of shape {array.shape} has no equal parts for {self.size} ranks")
    _compare(self, array)
    into = np.empty(array.shape, array.dtype)
    self._all_to_all(array, into)
    return into


def collect(self, x):
    """The arrays of all members, by rank: of one dimension, each with a length of its own."""
    np = _numpy()
    array = np.atleast_1d(_array(x))
    if array.ndim != 1:
        raise ValueError("collect takes arrays of one dimension")
    return [np.frombuffer(block, array.dtype).copy() for block in self._collect(array)]


def broadcast_object(self, x, root=0):
    """Gives all members the root's object, pickled. The others may give anything."""
    import pickle

    np = _numpy()
    data = pickle.dumps(x) if self.rank == root else b""
    length = broadcast(self, len(data), root)
    block = np.zeros(length, "uint8")
    if self.rank == root:
        block[:] = np.frombuffer(data, "uint8")
    self._broadcast(block, root)
    return x if self.rank == root else pickle.loads(block.tobytes())


def all_gather_object(self, x):
    """The objects of all members, pickled, by rank."""
    import pickle

    block = _numpy().frombuffer(pickle.dumps(x), "uint8")
    return [pickle.loads(block) for block in self._collect(block)]


def extend():
    """Adds the methods to teams."""
    for method in (
        reduce,
        scan,
        exclusive_scan,
        broadcast,
        all_gather,
        gather,
        scatter,
        all_to_all,
        collect,
        broadcast_object,
        all_gather_object,
    ):
        setattr(Team, method.__name__, method)
