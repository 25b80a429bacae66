#!/usr/bin/env python3
"""Runs OpenSHMEM programs that others have written, from suites on this machine, and says which of them work.

    conformance.py [options] SUITE...

Compiles every .c, .cpp and .cc below each SUITE (a folder) with oshcc and oshc++, and runs it with several numbers of PEs, on
shared memory and on the test fabric; with --hosts, on these hosts; with --machines, on these simulated machines. A program
passes when it ends with the status that is expected of it, which is 0 unless PROGRAMS says otherwise. Each result is a line of
OUT/results.csv; what a failed run printed is in OUT/logs/. Nothing of a suite is changed or kept.
"""

import argparse
import csv
import dataclasses
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

FINE = ("pass", "skips itself", "not for so many PEs", "not for this fabric")
FABRICS = {"near": [], "far": ["--fabric", "far:delay_us=20,reorder=1"]}


@dataclasses.dataclass
class Program:
    """What a program needs that its text does not tell."""

    arguments: str = ""
    status: int = 0
    # Numbers of PEs that it is written for, as an expression in n; for others it is not run.
    pes: str = "True"
    # Other files that are linked to it, from its folder.
    also: str = ""
    # Compiler options.
    options: str = ""
    # Something that it reads from standard input.
    reads: str = ""
    # Why it is not run at all.
    skip: str = ""
    # A macro of SWITCHES that it is not compiled with, and why.
    without: tuple[str, str] = ("", "")
    # Why it is run on shared memory alone.
    near: str = ""


UNSIGNED = ("ENABLE_DEPRECATED_TESTS", "deprecated atomics of types for which the standard never had them")

# By file name (a pattern); the first that fits.
PROGRAMS = {
    # The Sandia suite: https://github.com/openshmem-org/tests-sos
    "shmem_bibw_*": Program("-n 30 -e 65536 -v", pes="n % 2 == 0"),
    "shmem_bw_*": Program("-n 30 -e 65536 -v", pes="n % 2 == 0"),
    "shmem_latency_*": Program("-n 30 -e 65536 -v", pes="n == 2"),
    "shmemlatency.c": Program(pes="n == 2"),
    # 20,000 loops unless told.
    "spam.c": Program("-l 500"),
    "mt_lock_test.c": Program(also="mt_lock.c"),
    **{f"*_test_shmem_atomic_{name}.c*": Program(without=UNSIGNED) for name in ("add", "cswap", "fetch", "inc", "set", "swap")},
    **{
        name: Program(skip="an extension of Sandia OpenSHMEM's own")
        for name in ("gettid_register.c", "perf_counter.c", "shmem_ct.c")
    },
    **{
        name: Program(near="a put and a signal that are two calls without a fence between them may arrive in any order")
        for name in ("signal_set.c", "signal_add.c")
    },
    "micro_unit_shmem.c": Program(near="reads back what it has put after a fence alone, which does not order reads"),
    # One PE alone adds 0, and does not wait.
    "signal_fetch.c": Program(pes="n >= 2"),
    # The examples of the specification.
    "shmem_fence_example.c": Program(pes="n >= 3"),
    "shmem_quiet_example.c": Program(pes="n >= 3"),
    # Its input is not there, which ends it so.
    "shmem_global_exit_example.c": Program(status=1),
    # PE 0 writes to PE 1, or waits for another.
    **dict.fromkeys(
        [
            "shmem_atomic_fetch_inc_example.c",
            "shmem_atomic_inc_example.c",
            "shmem_iput_example.c",
            "shmem_p_example.c",
            "shmem_ptr_example.c",
            "shmem_put_example.c",
            "shmem_test_example1.c",
        ],
        Program(pes="n >= 2"),
    ),
}

# Macros that suites know, defined for all programs.
DEFINED = ["ENABLE_SHMEMX_TESTS", "HAVE_SHMEMX_WTIME"]
# Others: a program that mentions one is compiled and run a second time, with it.
SWITCHES = ["ENABLE_DEPRECATED_TESTS", "TEST_PSHMEM", "ENABLE_THREADS"]


@dataclasses.dataclass
class Result:
    suite: str
    program: str
    compiled: str
    pes: int | str
    fabric: str
    result: str
    seconds: float | str
    note: str = ""


def info_of(path):
    return next((info for name, info in PROGRAMS.items() if fnmatch.fnmatch(path.name, name)), Program())


def header_folders(suite):
    """Folders of the suite's own headers: those in the suite, and `include` beside it or above."""
    folders = []
    for top, names, files in sorted(os.walk(suite)):
        if pathlib.Path(top).name == "include" or any(file.endswith((".h", ".hpp")) for file in files):
            folders.append(top)
    for parent in list(suite.parents)[:3]:
        if (parent / "include").is_dir() and parent != pathlib.Path("/usr"):
            folders.append(str(parent / "include"))
    return folders


def sources(suite):
    for path in sorted(suite.rglob("*")):
        if path.suffix in (".c", ".cpp", ".cc", ".cxx", ".C") and path.is_file():
            yield path


class Runner:
    def __init__(self, options):
        self.options = options
        self.out = options.out
        (self.out / "bin").mkdir(parents=True, exist_ok=True)
        (self.out / "logs").mkdir(exist_ok=True)
        self.results = []
        path = self.out / "results.csv"
        self.csv_file = open(path, "a" if options.append else "w", newline="")
        self.csv = csv.writer(self.csv_file)
        if self.csv_file.tell() == 0:
            self.csv.writerow([field.name for field in dataclasses.fields(Result)])

    def record(self, result):
        self.results.append(result)
        self.csv.writerow(dataclasses.astuple(result))
        self.csv_file.flush()

    def compile(self, suite, path, name, switch, folders):
        """The program, or why there is none."""
        info = info_of(path)
        name = name.replace("/", "_")
        program = self.out / "bin" / f"{suite.name}_{name}.x"
        compiler = self.options.oshcc if path.suffix == ".c" else self.options.oshcxx
        command = [compiler, "-O1", "-g", "-w", "-o", program]
        command += [f"-D{macro}" for macro in [*DEFINED, *self.options.define, *switch]] + info.options.split()
        command += [f"-I{folder}" for folder in [path.parent, *folders]]
        command += [path, *(path.parent / other for other in info.also.split()), "-pthread", "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300)
        if "undefined reference to `omp_" in done.stderr:
            command.append("-fopenmp")
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300)
        if done.returncode == 0:
            return program, ""
        self.log(name + ".compile", done.stdout + done.stderr)
        missing = re.search(r"fatal error: (\S+): No such file", done.stderr)
        if missing:
            return None, f"lacks {missing[1]}"
        first = next((line for line in done.stderr.splitlines() if "error" in line or "undefined" in line), "?")
        return None, first.replace(str(path.parent) + "/", "")[-200:]

    def log(self, name, text):
        (self.out / "logs" / name).write_text(text[-200_000:])

    def run(self, suite, path, name, program, n, fabric):
        info = info_of(path)
        if not eval(info.pes, {}, {"n": n}):
            return Result(suite.name, name, "yes", n, fabric, "not for so many PEs", 0, info.pes)
        if info.near and fabric != "near":
            return Result(suite.name, name, "yes", n, fabric, "not for this fabric", 0, info.near)
        limit = self.options.timeout
        command = [self.options.memonet, "run", "-n", str(n), "--timeout", str(limit)]
        command += [*self.options.ways[fabric], program, *info.arguments.split()]
        began = time.monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, cwd=self.out / "bin"
        )
        try:
            output, _ = process.communicate(info.reads.encode(), timeout=limit + 20)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            status = None
        seconds = round(time.monotonic() - began, 2)
        output = output.decode(errors="replace")
        if status == info.status:
            result, note = "pass", ""
        elif status == 77:
            # As automake has it: the program finds that it is not for this job.
            result, note = "skips itself", (output.splitlines() or [""])[-1][:200]
        elif status in (124, None):
            result, note = "time-out", "the launcher, too, hung" if status is None else ""
        else:
            complaints = [line for line in output.splitlines() if "memonet: PE" in line or "memonet:" in line]
            result, note = f"status {status}", (complaints or output.splitlines() or [""])[0][:200]
        if result not in FINE:
            self.log(f"{suite.name}_{name}.{n}.{fabric}".replace("/", "_"), output)
        return Result(suite.name, name, "yes", n, fabric, result, seconds, note)

    def suite(self, suite):
        folders = header_folders(suite)
        files = [path for path in sources(suite) if fnmatch.fnmatch(str(path.relative_to(suite)), self.options.only)]
        for number, path in enumerate(files, 1):
            text = path.read_text(errors="replace")
            for switch in [[], *([name] for name in SWITCHES if name in text)]:
                name = " ".join([str(path.relative_to(suite)), *switch])
                say(f"{suite.name} {number}/{len(files)} {name}: ", end="")
                say(self.program(suite, path, name, text, switch, folders))

    def program(self, suite, path, name, text, switch, folders):
        """Compiles and runs one; how it went, in words."""
        blank = ("", "", "")
        if not re.search(r"\bmain\s*\(", text):
            self.record(Result(suite.name, name, "no program", *blank, ""))
            return "a part of a program"
        macro, reason = info_of(path).without
        if why := reason if macro in switch else info_of(path).skip:
            self.record(Result(suite.name, name, "skipped", *blank, "", why))
            return f"skipped: {why}"
        program, why = self.compile(suite, path, name, switch, folders)
        if program is None:
            skipped = why == "lacks mpi.h"
            self.record(Result(suite.name, name, "skipped" if skipped else "no", *blank, "", why))
            return f"{'skipped' if skipped else 'DOES NOT COMPILE'}: {why}"
        bad = []
        began = time.monotonic()
        for fabric in self.options.ways:
            for n in map(int, self.options.pes.split(",")):
                result = self.run(suite, path, name, program, n, fabric)
                self.record(result)
                if result.result not in FINE:
                    bad.append(f"{n} {fabric} {result.result}")
        program.unlink()
        return f"{'FAILED: ' + '; '.join(bad) if bad else 'ok'} ({time.monotonic() - began:.1f} s)"

    def summary(self):
        by_program = {}
        for result in self.results:
            by_program.setdefault((result.suite, result.program), []).append(result)
        counts = {}
        for (suite, _), results in by_program.items():
            first = results[0].compiled
            if first == "yes":
                bad = any(result.result not in FINE for result in results)
                kind = "fails" if bad else "passes"
            else:
                kind = {"no": "does not compile"}.get(first, first)
            counts.setdefault(suite, {}).setdefault(kind, []).append(1)
        for suite, kinds in counts.items():
            say(f"{suite}: " + ", ".join(f"{len(found)} {kind}" for kind, found in sorted(kinds.items())))
        runs = [result for result in self.results if result.compiled == "yes" and result.result not in FINE[1:]]
        say(f"{sum(result.result == 'pass' for result in runs)} of {len(runs)} runs pass. {self.out / 'results.csv'}")
        return all("fails" not in kinds and "does not compile" not in kinds for kinds in counts.values())


def slots(hosts):
    """The number of PEs of a list such as a:2,b."""
    return sum(int(host.partition(":")[2] or 1) for host in hosts.split(","))


def machines(memonet):
    """The names of all simulated machines."""
    listed = json.loads(subprocess.run([memonet, "machines", "--json"], check=True, capture_output=True).stdout)
    return [name for machine in listed for name in [machine["name"]] * machine["runs"] + machine["variants"]]


def say(text, end="\n"):
    print(text, end=end, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="+", type=pathlib.Path, metavar="SUITE")
    parser.add_argument("--prefix", type=pathlib.Path, required=True, help="an installation: bin/oshcc, bin/oshc++, bin/memonet")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("target/conformance"))
    parser.add_argument("--pes", help="numbers of PEs; unless given, 1,2,3,4,7, all of the hosts, or 2 on machines, as some have two nodes")
    parser.add_argument("--fabrics", default="near,far", help=f"of {', '.join(FABRICS)}")
    parser.add_argument("--hosts", metavar="LIST", help="instead: `memonet run --hosts LIST`, as in a:2,b:2; OUT is the same folder on each")
    parser.add_argument("--machines", metavar="LIST", help="instead: `memonet run --machine NAME` for each of these; all: every one there is")
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="of one run")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="programs whose path in the suite fits")
    parser.add_argument("--append", action="store_true", help="add to the results that are there")
    parser.add_argument("-D", dest="define", action="append", default=[], metavar="NAME[=VALUE]", help="as the compiler has it")
    options = parser.parse_args()
    options.out = options.out.resolve()
    folder = options.prefix.resolve() / "bin"
    options.oshcc, options.oshcxx, options.memonet = (folder / name for name in ("oshcc", "oshc++", "memonet"))
    for tool in (options.oshcc, options.oshcxx, options.memonet):
        if not shutil.which(tool):
            parser.error(f"there is no {tool}. `make prefix` makes one in target/prefix")
    if options.hosts:
        options.ways = {"hosts": ["--hosts", options.hosts]}
        options.pes = options.pes or str(slots(options.hosts))
    elif options.machines:
        names = machines(options.memonet) if options.machines == "all" else options.machines.split(",")
        options.ways = {name: ["--machine", name] for name in names}
        options.pes = options.pes or "2"
    else:
        options.ways = {name: FABRICS[name] for name in options.fabrics.split(",")}
        options.pes = options.pes or "1,2,3,4,7"
    for suite in options.suites:
        if not suite.is_dir():
            parser.error(f"{suite} is no folder")
    runner = Runner(options)
    for suite in options.suites:
        runner.suite(suite.resolve())
    sys.exit(0 if runner.summary() else 1)


if __name__ == "__main__":
    main()
