"""Collectives on arrays and plain values, and on pickled objects where asked.

All members make the same call, with arrays of one shape and dtype, or with plain values of one type.
"""

import struct

from ._memonet import Team

# A plain value that travels by itself: its type, and its bytes.
_RECORD = struct.Struct("=c7x16s")
_INT, _FLOAT, _COMPLEX, _BOOL, _NONE = b"i", b"f", b"c", b"b", b"n"


def _is_plain(x):
    return x is None or isinstance(x, (bool, int, float, complex))


def _numpy():
    import numpy

    return numpy


def _array(x, op=None):
    """An array of a value, and whether the result is to be a plain value."""
    np = _numpy()
    plain = _is_plain(x)
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
    return array, plain


def _compare(team, array):
    """With MEMONET_CHECK=1, members that give different arrays get an error."""
    if not team._is_checked:
        return
    import zlib

    team._compare(zlib.crc32(f"{array.dtype.str}{array.shape}".encode()))


def _combine(team, x, op, form, root, out):
    if out is None and type(x) in (int, float):
        if team._is_checked:
            _compare(team, _array(x)[0])
        return team._combine_number(x, op, form, root)
    np = _numpy()
    array, plain = _array(x, op)
    if out is None:
        result = np.array(array, order="C")
    else:
        result = out
        if not isinstance(out, np.ndarray):
            raise TypeError(
                f"out is a {type(out).__name__}, and no array to fill: make it as "
                "numpy.empty_like(x) does"
            )
        if (out.dtype, out.shape) != (array.dtype, array.shape):
            raise ValueError(
                f"out has dtype {out.dtype} and shape {out.shape}, and the result has "
                f"{array.dtype} and {array.shape}: make it as numpy.empty_like(x) does"
            )
        if out is not x:
            np.copyto(out, array)
    _compare(team, result)
    team._combine(result, result.dtype, op, form, root)
    if out is not None:
        return result
    # NumPy, too, gives a number for numbers.
    return result.item() if plain else result[()]


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
        return _RECORD.pack(_NONE, b"")
    if isinstance(x, bool):
        return _RECORD.pack(_BOOL, struct.pack("=?", x))
    if isinstance(x, int):
        return _RECORD.pack(_INT, x.to_bytes(16, "little", signed=True))
    if isinstance(x, float):
        return _RECORD.pack(_FLOAT, struct.pack("=d", x))
    return _RECORD.pack(_COMPLEX, struct.pack("=dd", x.real, x.imag))


def _unpack(record):
    kind, data = _RECORD.unpack(record)
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


def broadcast(self, x, root=0):
    """Gives all members the value of the member with rank `root`.

    An array is filled in place, and all members give one of the same size. Of a plain value the
    others may give anything plain, such as None.
    """
    if _is_plain(x):
        record = _records([x]).copy()
        self._broadcast(record, root)
        return _values(record)[0]
    array, _ = _array(x)
    if array is not x and not hasattr(x, "__array_interface__"):
        array = array.copy()
    _compare(self, array)
    self._broadcast(array, root)
    return array


def all_gather(self, x):
    """The values of all members: a list of plain values, or an array of one more dimension."""
    np = _numpy()
    if _is_plain(x):
        into = np.empty(_RECORD.size * self.size, "uint8")
        self._gather(_records([x]), into)
        return _values(into)
    array, _ = _array(x)
    _compare(self, array)
    into = np.empty((self.size, *array.shape), array.dtype)
    self._gather(array, into)
    return into


def gather(self, x, root=0):
    """`all_gather` whose result only the member with rank `root` gets; the others get None."""
    np = _numpy()
    plain = _is_plain(x)
    array = _records([x]) if plain else _array(x)[0]
    _compare(self, array)
    into = np.empty((self.size, *array.shape), array.dtype) if self.rank == root else None
    self._gather(array, into, root)
    if into is None:
        return None
    return _values(into) if plain else into


def scatter(self, x, root=0, into=None):
    """Gives each member its part of what the member with rank `root` gives.

    The root gives a list of plain values, one for each rank, and gets its own; the others give None.
    Or it gives an array whose first dimension is the rank, and all give `into`, the array for one
    part.
    """
    np = _numpy()
    if into is None:
        if self.rank == root and not all(map(_is_plain, x)):
            raise TypeError("scatter of arrays needs `into`, the array for this member's part")
        mine = np.empty(_RECORD.size, "uint8")
        self._scatter(_records(x) if self.rank == root else None, mine, root)
        return _values(mine)[0]
    _compare(self, into)
    self._scatter(np.asarray(x, into.dtype) if self.rank == root else None, into, root)
    return into


def all_to_all(self, x):
    """Sends element i to rank i, and gives what all members sent to this one, by rank.

    A list of plain values gives a list, and an array, whose first dimension is the rank, an array.
    """
    np = _numpy()
    if isinstance(x, (list, tuple)) and all(map(_is_plain, x)):
        if len(x) != self.size:
            raise ValueError(f"{len(x)} values for a team of {self.size}")
        records = _records(x)
        into = np.empty_like(records)
        self._all_to_all(records, into)
        return _values(into)
    array, _ = _array(x)
    if array.ndim == 0 or array.shape[0] % self.size:
        raise ValueError(f"an array of shape {array.shape} has no equal parts for {self.size} ranks")
    _compare(self, array)
    into = np.empty(array.shape, array.dtype)
    self._all_to_all(array, into)
    return into


def collect(self, x):
    """The arrays of all members, by rank: of one dimension, each with a length of its own."""
    np = _numpy()
    array = np.atleast_1d(_array(x)[0])
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
