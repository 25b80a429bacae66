"""Calls of windows that are easier to say in Python."""

from ._memonet import Window


def transfer(target, pe, index, source, start=0, count=None, **signal):
    """Prepares a copy of `count` elements of this PE's part of `source` to `pe`'s part of `target`.

    `start()` copies what the source holds then, as often as one likes; `wait()` and `test()` say
    when the source may change again. With `signals=`, a window with dtype uint64, each start updates
    its word `signal` (0) of that PE after the copy, by `op` ("set" or "add") and `value` (1).
    """
    if count is None:
        count = source.size - (start if isinstance(start, int) else 0)
    return target._prepare(pe, index, source, start, count, **signal)


def extend():
    """Adds what windows have in Python alone."""
    Window.prepare = transfer
