"""Decides which slices compare, and makes a table of those that do.

A slice is a short time of one row of one library, with a raw round trip between the CPUs of PE 0 and PE 1 right before and right after it.
A virtual machine's CPUs may be near to each other at one moment and far apart at the next, and the speed of two PEs changes with that. So a
row takes the slices of one placement alone. Round trips and numbers of slices decide which, never the measured values.
"""

import statistics
from typing import NamedTuple, Optional

# Round trips of one placement differ by at most this factor, as clocks drift. Those of different placements differ by more.
WIDTH_FACTOR = 1.5
# A placement with a smaller part of all slices is a disturbance.
SHARE = 0.02
# The fewest slices in the row's placement with which a library has a figure.
FEW = 5
HIGHER = {"M/s", "MB/s"}


class Slice(NamedTuple):
    value: float
    # Round trips in nanoseconds; None where the row's PEs share CPUs.
    before: Optional[float]
    after: Optional[float]


class Placement(NamedTuple):
    low: float
    high: float

    def holds(self, slice):
        """True for slices without round trips."""
        return all(trip is None or self.low <= trip <= self.high for trip in (slice.before, slice.after))


ANYWHERE = Placement(0, float("inf"))


def placements(slices):
    """Placements of the CPUs: ranges of round trips that do not overlap, the commonest first."""
    trips = sorted(trip for slice in slices for trip in (slice.before, slice.after) if trip is not None)
    least, found = max(1, SHARE * len(trips)), []
    while trips:
        first, last, end = 0, 0, 0
        for begin, trip in enumerate(trips):
            while end < len(trips) and trips[end] <= trip * WIDTH_FACTOR:
                end += 1
            if end - begin > last - first:
                first, last = begin, end
        if last - first < least:
            break
        placement = Placement(trips[first], trips[last - 1])
        found.append(placement)
        # Leaves a gap, so that no range reaches across this one.
        trips = [trip for trip in trips if trip < placement.low / WIDTH_FACTOR ** 0.5 or trip > placement.high * WIDTH_FACTOR ** 0.5]
    return found or [ANYWHERE]


def choose(places, contenders):
    """The placement of a row: the one in which the contender with the fewest slices has most. `contenders`: lists of slices."""
    return max(places, key=lambda place: min((sum(map(place.holds, slices)) for slices in contenders), default=0))


class Row(NamedTuple):
    name: str
    pes: int


class Results:
    """Slices by row and contender: a library with one of its settings."""

    def __init__(self):
        self.slices, self.units = {}, {}

    def add(self, row, contender, unit, slices):
        self.units[row] = unit
        self.slices.setdefault(row, {}).setdefault(contender, []).extend(slices)

    def all(self):
        return [slice for contenders in self.slices.values() for slices in contenders.values() for slice in slices]

    def places(self):
        return placements(self.all())

    def figures(self, row, places):
        """The row's placement, and the medians there of contenders with enough slices."""
        place = choose(places, self.slices[row].values())
        there = {who: [slice.value for slice in slices if place.holds(slice)] for who, slices in self.slices[row].items()}
        return place, {who: statistics.median(values) for who, values in there.items() if len(values) >= min(FEW, len(self.slices[row][who]))}

    def lacking(self, enough):
        """Contenders, and the rows for which they need more slices in the row's placement."""
        places, lacking = self.places(), {}
        for row, contenders in self.slices.items():
            place = choose(places, contenders.values())
            for who, slices in contenders.items():
                if slices[0].before is not None and sum(map(place.holds, slices)) < enough:
                    lacking.setdefault(who, []).append(row)
        return lacking

    def spread(self, row):
        """The range of the middle 80 % of raw's counted slices of a row; None for too few slices."""
        place = choose(self.places(), self.slices[row].values()) if row in self.slices else ANYWHERE
        values = sorted(slice.value for (library, _), slices in self.slices.get(row, {}).items() if library == "raw" for slice in slices if place.holds(slice))
        return (values[len(values) // 10], values[-1 - len(values) // 10]) if len(values) >= FEW else None

    def thrown_away(self):
        """Numbers of slices with round trips: all, those of another placement than their row's, and those of no one placement."""
        places, looked_at, elsewhere, moved = self.places(), 0, 0, 0
        for contenders in self.slices.values():
            place = choose(places, contenders.values())
            for slice in (slice for slices in contenders.values() for slice in slices if slice.before is not None):
                looked_at += 1
                if not any(where.holds(slice) for where in places):
                    moved += 1
                elif not place.holds(slice):
                    elsewhere += 1
        return looked_at, elsewhere, moved

    def table(self, libraries, order):
        """A line for each row: the best of each library's settings."""
        lines = ["| row | PEs | unit | round trip | " + " | ".join(libraries) + " | best peer / memonet | of raw |", "|---|---|---|---|" + "---|" * len(libraries) + "---|---|"]
        places = self.places()
        for row in sorted(self.slices, key=order):
            unit = self.units[row]
            better = max if unit in HIGHER else min
            place, figures = self.figures(row, places)
            best = {}
            for (library, _), figure in figures.items():
                best[library] = better(best.get(library, figure), figure)
            trips = [trip for slices in self.slices[row].values() for slice in slices if place.holds(slice) for trip in slice[1:] if trip is not None]
            where = f"{statistics.median(trips):.0f}" if trips else ""
            others = [figure for library, figure in best.items() if library not in ("memonet", "raw")]
            ratio = ""
            if others and "memonet" in best:
                ratio = best["memonet"] / max(others) if unit in HIGHER else min(others) / best["memonet"]
                ratio = f"{ratio:.2f}"
            limit = ""
            if "raw" in best and "memonet" in best:
                limit = best["memonet"] / best["raw"] if unit in HIGHER else best["raw"] / best["memonet"]
                limit = f"{limit:.2f}"
            cells = " | ".join(f"{best[library]:,.4g}" if library in best else "-" for library in libraries)
            lines.append(f"| {row.name} | {row.pes} | {unit} | {where} | {cells} | {ratio} | {limit} |")
        return lines
