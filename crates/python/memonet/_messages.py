"""Messages of pickled objects."""

from ._memonet import Messages


def send_object(self, pe, x, *, timeout=None):
    """`send` of an object, pickled. Pickled, it has `most` bytes at most. mpi4py: `comm.send`."""
    import pickle

    self.send(pe, pickle.dumps(x, pickle.HIGHEST_PROTOCOL), timeout=timeout)


def recv_object(self, source=None, *, timeout=None):
    """`recv` of an object that `send_object` has sent; gives it and its sender. mpi4py:
    `comm.recv`."""
    import pickle

    data, sender = self.recv(source, timeout=timeout)
    return pickle.loads(data), sender


def extend():
    """Adds the methods to messages."""
    Messages.send_object, Messages.recv_object = send_object, recv_object
