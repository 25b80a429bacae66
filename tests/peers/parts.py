#!/usr/bin/env python3
"""memonet beside rivals for one part alone: messages, latency, locks, simulated machines.

    tests/peers/parts.py [--quick] [--rows ROW,ROW] [--rounds N] [--prefix DIR] [--output FILE]

Each library has a program that does the same and promises the same: no message is lost, and all
processes are on this machine, two of them, each bound to a CPU. The programs are those of the crate
parts/, smpi.c, and measure.c for OpenSHMEM's locks. Installs what is missing, by apt; what cannot
be installed or built is left out with a note. Rounds are interleaved, and figures are medians of
slices in one placement of the CPUs, as slices.py decides. The table goes to standard output, and
into FILE between two marks.

--prefix: where memonet is installed; without it, target/peers/memonet, which is made first.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import peers
from peers import HERE, ROOT, WORK, Peer, output, processor, say
from slices import HIGHER, Results, Row, Slice

TIME_OUT = 20
BEGIN, END = "<!-- parts.py writes from here -->", "<!-- parts.py writes to here -->"
FEATURES = {"iceoryx2": [], "aeron": ["libclang-dev", "uuid-dev", "libbsd-dev"],
            "zeromq": ["libzmq3-dev"]}
STREAMS = ["64_B_copied", "64_B_in_place", "64_KiB_copied", "64_KiB_in_place"]
# iceoryx2 leaves shared memory of nodes that were ended.
LEFT = Path("/dev/shm/iox2_*")
LOCKS = ["lock_alone", "lock_contended"]
# Programs for the simulated machine, and their processes.
SIMULATED = {"barriers": 64, "exchanges": 32, "start": 1, "times": 2}
ABOUT = {
    "64_B_copied": "64-byte messages, copied in and out",
    "64_B_in_place": "64-byte messages, written and read in place",
    "64_KiB_copied": "64 KiB messages, copied in and out",
    "64_KiB_in_place": "64 KiB messages, written and read in place",
    "latency": "8 bytes, one way",
    "lock_alone": "8 bytes changed under a lock, by one process",
    "lock_contended": "8 bytes changed under a lock, by two processes",
    "barriers": "simulated: 200 barriers of 64 processes",
    "exchanges": "simulated: 20 all-to-alls of 4 KiB blocks, 32 processes",
    "start": "simulated: an empty program",
    "8": "simulated time of 8 bytes, one way",
    "1048576": "simulated time of 1 MiB, one way",
}
# What a row tells is the machine's time, or how a library models it: none is better.
NO_CONTEST = {"8", "1048576"}
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="star" prefix="pe" suffix="" radical="0-63" speed="1Gf" bw="10Gbps" lat="500ns"/>
</platform>
"""


class Contender(NamedTuple):
    """A library in a row: its command, in which PAGE stands for a fresh page, or simulated."""

    row: str
    library: str
    command: list
    environment: dict = {}


def install(*packages):
    absent = [name for name in packages
              if subprocess.run(["dpkg", "-s", name], capture_output=True).returncode]
    if absent:
        sudo = [] if os.geteuid() == 0 else ["sudo"]
        command = [*sudo, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *absent]
        subprocess.run(command, check=True, capture_output=True, text=True)


def cargo(features, folder="parts"):
    # Aeron wants a newer CMake than some systems have.
    cmake = {"CMAKE": str(peers.wheel("cmake")[0] / "bin" / "cmake")} if "aeron" in features else {}
    peers.build("cargo", "build", "--release", "--locked", "--quiet",
                "--manifest-path", str(HERE / "parts" / "Cargo.toml"),
                "--target-dir", str(WORK / folder), "--features", ",".join(features),
                env={**os.environ, **cmake})
    return str(WORK / folder / "release" / "parts")


def why(error):
    """One line."""
    words = " ".join((getattr(error, "stderr", None) or str(error)).split())
    return words if len(words) < 300 else "... " + words[-300:]


class Rivals:
    """What could be built, and why the rest could not."""

    def __init__(self, prefix):
        self.prefix, self.all, self.missing, self.versions = prefix, [], [], {}
        for make in (self.in_rust, self.openshmem, self.oshmem, self.smpi):
            self.attempt(make.__name__, make)

    def attempt(self, name, make):
        say(f"preparing {name}")
        try:
            make()
            return True
        except (subprocess.CalledProcessError, OSError) as error:
            self.missing.append(f"{name}: {why(error)}")
            say(f"  left out: {self.missing[-1]}")
            return False

    def add(self, row, library, *command, **environment):
        self.all.append(Contender(row, library, [str(word) for word in command], environment))

    def features(self):
        """All, or those with which it builds."""
        try:
            install(*[name for packages in FEATURES.values() for name in packages])
            cargo(FEATURES)
            return list(FEATURES)
        except (subprocess.CalledProcessError, OSError):
            able = []
        for feature, packages in FEATURES.items():
            if self.attempt(feature, lambda: (install(*packages), cargo([*able, feature]))):
                able.append(feature)
        return able

    def in_rust(self):
        able = self.features()
        program = cargo(able)
        run = [self.prefix / "bin" / "memonet", "run"]
        for row in [*STREAMS, "latency", *LOCKS]:
            self.add(row, "memonet", *run, "-n", 2, program, "memonet", row, "PAGE", "SECONDS")
        streams = {"iceoryx2": STREAMS, "aeron": STREAMS, "pipe": STREAMS[::2], "zeromq": []}
        for library, rows in streams.items():
            if library in able or library == "pipe":
                for row in [*rows, "latency"]:
                    self.add(row, library, program, library, row, "PAGE", "SECONDS")
        for library in ("robust", "pthread", "parking_lot"):
            for row in LOCKS:
                self.add(row, library, program, library, row, "PAGE", "SECONDS")
        # 64 processes that each load the libraries of rivals would take most of the time for that.
        alone = cargo([], "parts-alone")
        for what, processes in SIMULATED.items():
            self.add(what, "memonet", *run, "--machine", HERE / "star.toml", "-n", processes,
                     alone, "memonet", "simulated", what)

    def locks(self, peer):
        """OpenSHMEM's locks are rows of measure.c."""
        peer.build()
        for row in LOCKS:
            command, environment = peer.command(2, "default", "SECONDS", "PAGE", row)
            self.add(row, f"shmem_set_lock of {peer.name}", *command, **environment)

    def openshmem(self):
        bin = self.prefix / "bin"
        version = output(str(bin / "memonet"), "--version").split()[-1]
        self.locks(Peer("memonet", version, [str(bin / "oshcc"), "-DWITH_SHMEM"],
                        lambda n, _: ([str(bin / "oshrun"), "-n", str(n)], {}), ["default"]))

    def oshmem(self):
        self.locks(peers.oshmem())

    def smpi(self):
        install("libsimgrid-dev")
        program = WORK / "smpi"
        subprocess.run(["smpicc", "-O2", "-o", str(program), str(HERE / "smpi.c")], check=True,
                       capture_output=True, text=True)
        platform, hosts = WORK / "star.xml", WORK / "star.hosts"
        platform.write_text(PLATFORM)
        hosts.write_text("".join(f"pe{number}\n" for number in range(64)))
        for what, processes in SIMULATED.items():
            self.add(what, "SimGrid SMPI", "smpirun", "-np", processes, "-platform", platform,
                     "-hostfile", hosts, "--log=root.thres:critical", program, what)


def run(contender, seconds):
    """Slices by row and unit. A row of the simulated machine has the time of its program, too."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="parts-") as folder:
        page = Path(folder) / "page"
        page.write_bytes(bytes(4096))
        given = {"PAGE": str(page), "SECONDS": str(seconds)}
        command = [given.get(word, word) for word in contender.command]
        begin = time.monotonic()
        environment = {**os.environ, **contender.environment}
        status, out, err = peers.ended(command, environment, TIME_OUT)
        took = (time.monotonic() - begin) * 1e3
    if status:
        raise OSError(f"exit status {status}: {(err or out).strip()[-300:]}")
    if contender.row in SIMULATED and contender.row != "times":
        return {(contender.row, "ms"): [Slice(took, None, None)]}
    return slices_of(out)


def slices_of(out):
    """Of the lines `row sides unit value before after`, by row and unit."""
    found = {}
    for words in map(str.split, out.splitlines()):
        if len(words) == 6:
            numbers = (None if word == "-" else float(word) for word in words[3:])
            found.setdefault((words[0], words[2]), []).append(Slice(*numbers))
    return found


def measure(rivals, rows, rounds, seconds):
    results, failed = Results(), {}
    chosen = [one for one in rivals.all if not rows or one.row in rows]
    for round in range(1, rounds + 1):
        for one in chosen:
            if (one.row, one.library) in failed:
                continue
            say(f"round {round}: {one.row}, {one.library}")
            try:
                for (row, unit), slices in run(one, seconds).items():
                    results.add(Row(row, 2), one.library, unit, slices)
            except OSError as error:
                failed[one.row, one.library] = why(error)
                say(f"  {error}")
    return results, failed


def table(results):
    """A line for each row and rival. The last column is above 1 where memonet is faster."""
    lines = ["| part | unit | round trip | memonet | rival | its figure | memonet is faster by |",
             "|---|---|---|---|---|---|---|"]
    places = results.places()
    for row in sorted(results.slices, key=lambda row: list(ABOUT).index(row.name)):
        unit = results.units[row]
        place, figures = results.figures(row, places)
        trips = [trip for slices in results.slices[row].values() for slice in slices
                 if place.holds(slice) for trip in slice[1:] if trip is not None]
        where = f"{statistics.median(trips):.0f}" if trips else ""
        own = figures.get("memonet")
        for library, figure in figures.items():
            if library == "memonet":
                continue
            ratio = "-"
            if own is not None and row.name not in NO_CONTEST:
                ratio = f"{own / figure if unit in HIGHER else figure / own:.2f}"
            mine = "-" if own is None else f"{own:,.4g}"
            lines.append(f"| {ABOUT[row.name]} | {unit} | {where} | {mine} | {library} | "
                         f"{figure:,.4g} | {ratio} |")
    return lines


def report(results, rivals, failed, rounds):
    return "\n".join([
        "## One part alone", "",
        f"Written by `tests/peers/parts.py`, in {rounds} interleaved rounds: medians of slices, on",
        f"{processor()}. Each library has a program of its own that does and promises the same.",
        "`round trip` is as above, in ns.", "",
        "* **Messages**: one writer, one reader, each a process on a CPU of its own. No message is",
        "  lost, and the reader checks each one. In place, the writer fills the library's memory,",
        "  and the reader adds up what is there. Capacities are the libraries' own: memonet 2 MiB,",
        "  iceoryx2 two messages, Aeron 64 MiB; iceoryx2's 64-byte messages have 256. A copy is made",
        "  by the library's call for that (memonet, pipe), or by libc.",
        "* **Aeron** sends 65,472 bytes instead of 64 KiB, the most that one frame holds. Its",
        "  driver is a third process, of one thread, on either CPU.",
        "* **Latency**: half of the way there and back.",
        "* **Locks**: `robust` and `pthread` are mutexes of POSIX that processes share;",
        "  `parking_lot` is a reference between threads of one process, which survives no death.",
        "  `shmem_set_lock` changes the number by `shmem_g` and `shmem_p`. memonet's and the",
        "  robust mutex outlive the death of a holder.",
        "* **Simulated machine**: a star of links of 500 ns at 10 Gbit/s, for SimGrid's SMPI with",
        "  its defaults, which model MPI's protocols, and for `memonet run --machine`. Times are",
        "  from the start of the command to its end.", "",
        *table(results), "",
        *[f"* Left out: {note}" for note in rivals.missing],
        *[f"* {library}, {ABOUT.get(row, row)}: {note}" for (row, library), note in failed.items()],
    ]).rstrip() + "\n"


def between_marks(text, part):
    """`text` with `part` between the marks; they come to the end of a text that has none."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if bool(begin) != bool(end) or END in before:
        raise ValueError(f"only one of the marks {BEGIN} and {END} is there, or they are reversed")
    if not begin:
        before, after = before.rstrip() + "\n\n", "\n"
    return f"{before}{BEGIN}\n{part}{END}{after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rows", default="", help="of " + ",".join([*ABOUT][:-2] + ["times"]))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="per row and round")
    parser.add_argument("--prefix", type=Path, help="where memonet is installed")
    parser.add_argument("--build-only", action="store_true", help="measure nothing")
    parser.add_argument("--output", type=Path, help="write the report there, between the marks")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.15
    WORK.mkdir(parents=True, exist_ok=True)
    if options.prefix is None:
        options.prefix = WORK / "memonet"
        peers.build("make", "--quiet", "install", f"PREFIX={options.prefix}", cwd=ROOT)
    rivals = Rivals(options.prefix.resolve())
    if options.build_only:
        return
    rows = set(filter(None, options.rows.split(",")))
    left = set(LEFT.parent.glob(LEFT.name))
    results, failed = measure(rivals, rows, options.rounds, options.seconds)
    for path in set(LEFT.parent.glob(LEFT.name)) - left:
        path.unlink()
    print("\n".join(table(results)))
    if options.output:
        text = report(results, rivals, failed, options.rounds)
        options.output.write_text(between_marks(options.output.read_text(), text))


if __name__ == "__main__":
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("parts.py needs two CPUs: each side of a row has one of its own")
    peers.end_at_signals()
    main()
