"""Memory under release consistency."""

from ._memonet import RegionData


class Region:
    """One array of the whole job, zero at first, which all PEs read and write. Collective.

    What a PE writes, others see after it has released and they have acquired, or after a `barrier`.
    Several PEs may write different elements of one page. ::

        region = memonet.Region(job, 1000, "float64")
        region[job.pe * 10 : job.pe * 10 + 10] = 1.0
        region.barrier()
        everything = region[:]       # a copy

    `page` is the size, in bytes, of what travels at a time. `placement` says which PE is the home of which page: "block", "cyclic" or "first_touch". With
    `checked`, releases look for data races.
    """

    def __init__(self, job, size, dtype=None, *, page=4096, placement="block", checked=False):
        import numpy

        self._dtype, self._size = numpy.dtype(dtype), int(size)
        if self._dtype.hasobject or self._dtype.itemsize == 0:
            raise TypeError(f"elements of {self._dtype} cannot be shared: use numbers")
        self._data = RegionData(job, self._size, self._dtype, page, placement, checked)

    @property
    def dtype(self):
        """The dtype of the elements."""
        return self._dtype

    def __len__(self):
        return self._size

    def __repr__(self):
        return f"<memonet.Region {self._size} {self._dtype}>"

    def _range(self, key):
        if isinstance(key, slice):
            start, stop, step = key.indices(self._size)
            if step != 1:
                raise IndexError("a region is read and written in ranges without a step")
            return start, max(stop - start, 0)
        try:
            return range(self._size)[key], 1
        except IndexError:
            raise IndexError(f"index {key} of a region of {self._size} elements") from None

    def __getitem__(self, key):
        import numpy

        start, count = self._range(key)
        into = numpy.empty(count, self._dtype)
        self._data.read(start, into)
        return into if isinstance(key, slice) else into[0]

    def __setitem__(self, key, value):
        import numpy

        start, count = self._range(key)
        block = numpy.empty(count, self._dtype)
        block[:] = value
        self._data.write(start, block)

    def release(self):
        """Makes what this PE has written visible to the PEs that acquire later."""
        self._data.release()

    def acquire(self):
        """Makes this PE see what other PEs have released. It also releases."""
        self._data.acquire()

    def barrier(self):
        """Releases, waits until all PEs have called, and acquires. Collective."""
        self._data.barrier()

    def stats(self):
        """What this PE has done with the region so far: a dictionary of `uses`, `hits` (that needed
        nothing from another PE), `handovers`, `messages` and their `bytes`."""
        return self._data.stats()

    def free(self):
        """Gives up this PE's handle. The memory is used again when all PEs have."""
        self._data.free()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()
