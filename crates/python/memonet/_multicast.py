"""Channels: one PE publishes blocks, and many read them all, in order."""

from ._errors import Closed
from ._memonet import MulticastData


class Multicast:
    """This PE's end of a channel on which PE `writer` publishes arrays to `readers`. Collective.

    Readers are all other PEs, unless given. ::

        with memonet.Multicast(job, writer=0, dtype="float64") as channel:
            if job.pe == 0:
                channel.publish(numpy.arange(3.0))
            else:
                for block in channel:        # until the writer leaves
                    print(block)

    `capacity` is how many bytes a reader may have unread before it stops the writer. A reader that
    stops it for `drop_slow` seconds is dropped. With `survive_readers` the channel goes on without
    readers that die.
    """

    def __init__(
        self,
        job,
        writer=0,
        readers=None,
        dtype=None,
        *,
        capacity=None,
        drop_slow=None,
        survive_readers=False,
    ):
        import numpy

        if readers is None:
            readers = [pe for pe in range(job.npes) if pe != writer]
        self._dtype = numpy.dtype(dtype)
        if self._dtype.hasobject or self._dtype.itemsize == 0:
            raise TypeError(f"elements of {self._dtype} cannot be sent: use numbers")
        self._data = MulticastData(
            job, writer, readers, self._dtype, capacity, drop_slow, survive_readers
        )

    @property
    def dtype(self):
        """The dtype of the elements."""
        return self._dtype

    @property
    def delivery(self):
        """How blocks reach the readers: "near", "tree", "datagrams" or "hosts"."""
        return self._data.delivery()

    def publish(self, block):
        """Publishes an array of any length. Waits where a reader is too far behind. Writer only."""
        import numpy

        block = numpy.ascontiguousarray(block, self._dtype).reshape(-1)
        self._data.publish(block.view("uint8"))

    def _block(self, data):
        import numpy

        return numpy.frombuffer(data, self._dtype)

    def recv(self):
        """Waits for the next block: an array of one dimension, which cannot be written. Readers
        only. Raises `Closed` when the writer has left and all is read."""
        return self._block(self._data.recv())

    def try_recv(self):
        """The next block if it has come, otherwise None."""
        data = self._data.try_recv()
        return None if data is None else self._block(data)

    def __iter__(self):
        while True:
            try:
                block = self.recv()
            except Closed:
                return
            yield block

    def free(self):
        """Gives up this PE's end. The writer's ends the channel, once all is read."""
        self._data.free()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()
