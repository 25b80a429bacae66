"""Simulated machines: network hardware that one does not have."""

import dataclasses
import os
import subprocess
import tempfile
from typing import Any

from ._launch import call, command
from ._plot import events_of, plot_trace


def machines():
    """The names of the machines that there are. `memonet machines show NAME` explains each."""
    listed = subprocess.run([command(), "machines"], capture_output=True, text=True, check=True)
    names = []
    for line in listed.stdout.splitlines():
        kind, _, variants = line.strip().partition(": ")
        if kind == "variants":
            names += variants.split(", ")
        elif line and not line[0].isspace():
            names.append(line)
    return names


@dataclasses.dataclass
class Simulation:
    """What a simulated run gave.

    `results` is what each PE returned, by PE. `seconds` is the simulated time from the first PE that
    called the function to the last that returned. `events` is the timeline, if it was asked for: the
    events of Chrome's trace format, whose times are in microseconds.
    """

    results: list[Any]
    seconds: float
    events: list[dict[str, Any]] | None

    def plot(self, axes=None):
        """Draws the timeline, as `plot_trace` does. It must have been asked for."""
        if self.events is None:
            raise ValueError("no timeline was kept: memonet.simulate(..., trace=True) keeps it")
        return plot_trace(self.events, axes)


def simulate(function, machine, n, *, seed=1, trace=False, cpu_scale=None, patience=None, echo=True):
    """Calls `function(job)` at `n` PEs of a simulated machine, each a process.

    Computing takes no time, unless `cpu_scale` says how much of this machine's CPU time it takes.
    Two runs with one `seed` are identical otherwise. With `trace`, the timeline is kept. A PE that
    computes for `patience` (10) seconds of this machine without a call ends the run, as it may poll
    memory by itself, which never changes then.
    """
    with tempfile.TemporaryDirectory(prefix="memonet-") as folder:
        options = ["--machine", machine, "--seed", str(seed)]
        if cpu_scale is not None:
            options += ["--cpu-scale", str(cpu_scale)]
        if patience is not None:
            options += ["--patience", str(patience)]
        path = os.path.join(folder, "trace.json")
        if trace:
            options += ["--trace", path]
        called = call(function, n, options, echo)
        events = None
        if trace:
            events = events_of(path)
    began, ended = min(start for _, start, _ in called), max(end for _, _, end in called)
    return Simulation([result for result, _, _ in called], (ended - began) * 1e-9, events)
