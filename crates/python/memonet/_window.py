"""Calls of windows and teams that are easier to say in Python."""

from . import _memonet
from ._errors import OutOfBounds
from ._memonet import Team, Window


def _count(source, start, count):
    if not isinstance(source, Window):
        raise TypeError(
            f"the source is a window, not {type(source).__name__}: `start` and `count` say which "
            "part of it"
        )
    if count is not None:
        return count
    first = source._element(start)
    if first > source.size:
        raise OutOfBounds(f"there is no element {first} in a window of {source.size}")
    return source.size - first


def transfer(target, pe, index, source, start=0, count=None, **signal):
    """Prepares a copy of `count` elements of this PE's part of `source` to `pe`'s part of `target`.

    `start()` copies what the source holds then, as often as one likes; `wait()` and `test()` say
    when the source may change again. With `signals=`, a window with dtype uint64, each start updates
    its word `signal` (0) of that PE after the copy, by `op` ("set" or "add") and `value` (1).
    """
    return target._prepare(pe, index, source, start, _count(source, start, count), **signal)


def put_nbi(self, pe, index, source, start=0, count=None):
    """Copies `count` elements of this PE's part of the window `source`, from `start` on, to `pe`'s
    part of this window, and does not wait until they are read: the source must not change until the
    next `job.quiet()` or barrier. Both windows have one dtype. Without `count`, all elements from
    `start` on."""
    _memonet.put_nbi(self, pe, index, source, start, _count(source, start, count))


def event(self, index, cmp, value):
    """Begins to wait, in a thread of the library, until a word of this PE's part compares so with
    `value`, as in `wait_until`. The `Event` has a file descriptor for `select` and `asyncio`, beside sockets::

        came = mail.event(0, ">=", 1)
        loop.add_reader(came, lambda: print(came.result()))

    `wait_until` is faster where there is nothing else to wait for. A PE of a simulated machine has
    no threads, and so no events: that is an `Error`.
    """
    return _memonet.event(self, index, cmp, value)


def new_barrier(self):
    """Makes a barrier of the members whose phases have two halves: `arrive`, then work that does not
    depend on the others, then `wait`. Several barriers may be under way at a time. Collective."""
    return _memonet.new_barrier(self)


def extend():
    """Adds what windows and teams have in Python alone."""
    Window.prepare = transfer
    Window.put_nbi = put_nbi
    Window.event = event
    Team.new_barrier = new_barrier
