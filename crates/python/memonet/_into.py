"""Collectives from windows to windows, without a copy on the way.

Each call names a destination and a source: a window, or a range of its elements, as in
`w.span(10, 20)`. All members name the same ranges of the same windows. In the calls that combine
and in `broadcast_into`, source and destination may be the same range; otherwise they must not
overlap.
"""

from ._memonet import Team, Window, combine_into, move_into


class Span:
    """Elements `start` to `stop` of a window, at every PE alike: the end of a collective call.
    Made by `Window.span`."""

    __slots__ = ("window", "start", "stop")

    def __init__(self, window, start, stop):
        self.window, self.start, self.stop = window, start, stop

    def __len__(self):
        return self.stop - self.start

    def __repr__(self):
        return f"{self.window!r}.span({self.start}, {self.stop})"


def span(self, start=0, stop=None):
    """Elements `start` to `stop` (the end) of every PE's part, for the collectives whose names end
    in `_into`. They count in the order of C; negative numbers count from the end."""
    start, stop, _ = slice(start, stop).indices(self.size)
    return Span(self, start, max(start, stop))


def _end(part):
    if isinstance(part, Window):
        return part, 0, part.size
    if isinstance(part, Span):
        return part.window, part.start, part.stop
    raise TypeError(
        f"a collective whose name ends in _into takes windows and spans, not {type(part).__name__}: "
        "the same call without _into takes arrays"
    )


def all_reduce_into(self, to, source, op="sum"):
    """Combines the elements of all members one by one, in the order of ranks, into `to` of every
    member. `op` is "sum", or another of `all_reduce`. Both ends have one length and dtype. Collective."""
    combine_into(self, _end(to), _end(source), op, "all", 0)


def reduce_into(self, to, source, op="sum", root=0):
    """`all_reduce_into` whose result only the member with rank `root` gets. Collective."""
    combine_into(self, _end(to), _end(source), op, "root", root)


def scan_into(self, to, source, op="sum"):
    """`all_reduce_into` of the elements of this member and of all lower ranks alone. Collective."""
    combine_into(self, _end(to), _end(source), op, "scan", 0)


def exclusive_scan_into(self, to, source):
    """The sums of the elements of all lower ranks; zeros at rank 0. Collective."""
    combine_into(self, _end(to), _end(source), "sum", "exclusive", 0)


def broadcast_into(self, to, source, root=0):
    """Copies the root's elements to all members, the root included. Collective."""
    move_into(self, _end(to), _end(source), "broadcast", root)


def scatter_into(self, to, source, root=0):
    """Gives rank i block i of the root's elements; a block is as long as `to`. Collective."""
    move_into(self, _end(to), _end(source), "scatter", root)


def gather_into(self, to, source, root=0):
    """Gives the root the elements of all members, by rank: `to` is as long as all of them.
    Collective."""
    move_into(self, _end(to), _end(source), "gather", root)


def all_gather_into(self, to, source):
    """Gives every member the elements of all members, by rank: `to` is as long as all of them.
    Collective."""
    move_into(self, _end(to), _end(source), "all_gather", 0)


def all_to_all_into(self, to, source):
    """Sends block i to rank i, and gets the blocks of all members, by rank. Both ends are as long as
    one block for each member. Collective."""
    move_into(self, _end(to), _end(source), "all_to_all", 0)


def collect_into(self, to, source):
    """`all_gather_into` of members whose sources differ in length; gives how many elements came.
    `to` has room for all of them. Collective."""
    return move_into(self, _end(to), _end(source), "collect", 0)


def extend():
    """Adds the methods to teams and windows."""
    Window.span = span
    for method in (
        all_reduce_into,
        reduce_into,
        scan_into,
        exclusive_scan_into,
        broadcast_into,
        scatter_into,
        gather_into,
        all_gather_into,
        all_to_all_into,
        collect_into,
    ):
        setattr(Team, method.__name__, method)
