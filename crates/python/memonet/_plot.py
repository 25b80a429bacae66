"""Pictures of timelines: what the PEs of a run did, and for what they waited."""

import json
import os
import re

# More arrows than that show nothing.
_MOST_ARROWS = 300
_MOST_COLOURS = 20
# A slice of a wait, or of the time behind it.
_WAIT = re.compile(r"waits for |written by |.* came last$")


def events_of(path):
    """The events of a timeline that `memonet run --trace` has written."""
    with open(path) as file:
        timeline = json.load(file)
    return timeline["traceEvents"] if isinstance(timeline, dict) else timeline


def _rows(events):
    """The rows of PEs' threads, by process and thread, from the top."""
    named = [event for event in events if event["ph"] == "M" and "name" in event["args"]]
    groups = {e["pid"]: e["args"]["name"] for e in named if e["name"] == "process_name"}
    # On a simulated machine, "PEs" are the hardware's side of them.
    programs = "programs" if "programs" in groups.values() else "PEs"
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in named
        if event["name"] == "thread_name" and groups[event["pid"]].startswith(programs)
    }


def _end(events, phase, rows):
    """The ends of arrows, by their numbers."""
    places = list(rows)
    return {
        event["id"]: (event["ts"], places.index((event["pid"], event["tid"])))
        for event in events
        if event["ph"] == phase and (event["pid"], event["tid"]) in rows
    }


def _unit(span):
    """Microseconds of a unit in which so many microseconds are read well."""
    units = [(1e6, "s"), (1e3, "ms"), (1.0, "us")]
    return next((unit for unit in units if span >= 2 * unit[0]), units[-1])


def plot_trace(trace, axes=None):
    """Draws a timeline, and gives the axes of matplotlib on which it is.

    `trace` is the path of a file that `memonet run --trace` has written, or its list of events.
    Each thread of each PE has a row. A bar is a call, its colour the function. The grey line in it
    is the part in which it waits. An arrow leads from what has ended a wait to that wait; where
    there are more than 300, there are none. Where nothing is drawn, the program computes. Other
    threads than PEs', as the parts of a simulated machine, are left out. Without `axes`, a new
    figure is made.
    """
    try:
        import matplotlib.pyplot as pyplot
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install matplotlib") from None

    events = events_of(trace) if isinstance(trace, (str, os.PathLike)) else trace
    rows = _rows(events)
    if not rows:
        raise ValueError("this timeline has no PEs: give what `memonet run --trace` has written")
    places = list(rows)
    slices = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) in rows]
    zero = min((e["ts"] for e in slices), default=0.0)
    last = max((e["ts"] + e.get("dur", 0.0) for e in slices), default=1.0)
    scale, unit = _unit(last - zero)

    if axes is None:
        _, axes = pyplot.subplots(figsize=(10, 1.2 + 0.5 * len(rows)), layout="constrained")
    calls, waits = {}, {}
    for event in slices:
        bar = ((event["ts"] - zero) / scale, event.get("dur", 0.0) / scale)
        row = places.index((event["pid"], event["tid"]))
        if _WAIT.match(event["name"]):
            waits.setdefault(row, []).append(bar)
        else:
            calls.setdefault(event["name"], {}).setdefault(row, []).append(bar)
    # The functions that took longest have the colours that differ most.
    took = {name: sum(d for bars in of.values() for _, d in bars) for name, of in calls.items()}
    colours = pyplot.get_cmap("tab20").colors
    for number, name in enumerate(sorted(took, key=took.get, reverse=True)):
        for row, bars in calls[name].items():
            colour = colours[number] if number < _MOST_COLOURS else "black"
            label = name if number < _MOST_COLOURS else "others"
            axes.broken_barh(bars, (row - 0.35, 0.7), color=colour, label=label, linewidth=0.3)
    for row, bars in waits.items():
        axes.broken_barh(bars, (row - 0.06, 0.12), color="0.25", label="waits", linewidth=0.3)
    _arrows(axes, events, rows, zero, scale)
    axes.set_yticks(range(len(rows)), rows.values())
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, max((last - zero) / scale, 1e-9))
    axes.set_xlabel(f"time ({unit})")
    labels = dict(zip(*reversed(axes.get_legend_handles_labels())))
    place = {"loc": "upper left", "bbox_to_anchor": (1, 1), "fontsize": "small"}
    axes.legend(labels.values(), labels.keys(), **place)
    return axes


def _arrows(axes, events, rows, zero, scale):
    begins, ends = _end(events, "s", rows), _end(events, "f", rows)
    both = begins.keys() & ends.keys()
    if len(both) > _MOST_ARROWS:
        return
    for number in both:
        (from_time, from_row), (to_time, to_row) = begins[number], ends[number]
        axes.annotate(
            "",
            ((to_time - zero) / scale, to_row),
            ((from_time - zero) / scale, from_row),
            arrowprops={"arrowstyle": "->", "color": "0.1", "linewidth": 0.6},
        )
