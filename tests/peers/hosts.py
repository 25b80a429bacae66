#!/usr/bin/env python3
"""memonet beside other libraries between hosts: the program of peers.py, started on several hosts. Prints a table.

    tests/peers/hosts.py a,b [--only NAME,NAME] [--rows ROW,ROW] [--each 1,2] [--rounds N] [--seconds S]
    tests/peers/hosts.py a,b,c,d --each 4 --rows start

This repository must lie at the same path on all hosts, and ssh must work between them without a password. Installs missing libraries on this
host as peers.py does, and nothing on the others. `start`: from the start of a job that does nothing to its end, beside a bare ssh to each host
at once. Rounds of all libraries are interleaved; figures are medians, of the best of a library's settings.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

import peers
from peers import WORK, say
from slices import HIGHER

ROWS = "put_flush,barrier,allreduce_8,bcast_64K,p_rate,put_1M,start"


def with_slots(hosts, each):
    return ",".join(f"{host}:{each}" for host in hosts)


def memonet(_, hosts, each):
    command = WORK / "memonet" / "bin" / "memonet"
    return {"default": ([str(command), "run", "--hosts", with_slots(hosts, each)], {})}


def oshmem(_, hosts, each):
    words = ["/usr/bin/oshrun", "--allow-run-as-root", "-np", str(len(hosts) * each), "--host", with_slots(hosts, each), "--bind-to", "none",
             "-mca", "memory", "^patcher", "-x", "UCX_TLS=tcp,self,sysv,posix"]
    return {"default": (words, {}), "yield": (words + ["-mca", "mpi_yield_when_idle", "1"], {})}


def openmpi(peer, hosts, each):
    folder = WORK / "openmpi"
    words = [str(folder / "bin" / "mpirun"), "--allow-run-as-root", "--prefix", str(folder), "-np", str(len(hosts) * each),
             "--host", with_slots(hosts, each), "--bind-to", "none"]
    environment = peer.command(1, "default")[1]
    return {"default": (words, environment), "yield": (words + ["--mca", "mpi_yield_when_idle", "1"], environment)}


def hydra(command):
    def start(peer, hosts, each):
        words = [str(command), "-hosts", ",".join(hosts), "-ppn", str(each), "-n", str(len(hosts) * each)]
        return {"default": (words, peer.command(1, "default")[1])}

    return start


def intel(peer, hosts, each):
    words, environment = hydra(WORK / "impi-rt" / "bin" / "mpiexec.hydra")(peer, hosts, each)["default"]
    environment = {**environment, "I_MPI_FABRICS": "shm:ofi", "FI_PROVIDER": "tcp", "FI_PROVIDER_PATH": str(WORK / "impi-rt" / "lib"), "I_MPI_PIN": "0"}
    return {"default": (words, environment), "yield": (words, {**environment, "I_MPI_THREAD_YIELD": "3"})}


STARTS = {"memonet": memonet, "oshmem": oshmem, "openmpi": openmpi, "mpich": hydra(WORK / "mpich" / "bin" / "mpiexec"), "intel": intel}


def bare_ssh(hosts):
    """Milliseconds of `ssh HOST true` to all hosts at once."""
    begin = time.monotonic()
    for process in [subprocess.Popen(["ssh", "-o", "BatchMode=yes", host, "true"]) for host in hosts]:
        if process.wait():
            sys.exit("ssh does not work to every host: ssh -o BatchMode=yes HOST true")
    return (time.monotonic() - begin) * 1e3


def run(command, environment, arguments, seconds):
    """Values by row, and the failure if there was one."""
    try:
        done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {}, f"not done after {seconds} s"
    rows = {}
    for words in map(str.split, done.stdout.splitlines()):
        if len(words) == 6:
            rows.setdefault((words[0], words[2]), []).append(float(words[3]))
    return rows, f"exit status {done.returncode}: {done.stderr.strip()[-300:]}" if done.returncode else None


def measure(ready, hosts, each, options):
    """Values by row and unit, then by library, then by setting."""
    found, rows = {}, options.rows.split(",")

    def add(row, unit, name, setting, values):
        found.setdefault((row, unit), {}).setdefault(name, {}).setdefault(setting, []).extend(values)

    def one(name, setting, command, environment):
        environment = {**os.environ, **environment}
        if timed := [row for row in rows if row != "start"]:
            values, failed = run(command, environment, [str(options.seconds), "-", *timed], options.timeout)
            for (row, unit), some in values.items():
                add(row, unit, name, setting, some)
            if failed:
                say(f"  {name} ({setting}): {failed}")
        if "start" in rows:
            begin = time.monotonic()
            _, failed = run(command, environment, [], options.timeout)
            if not failed:
                add("start", "ms", name, setting, [(time.monotonic() - begin) * 1e3])

    for round in range(1, options.rounds + 1):
        say(f"round {round}: {len(hosts)} hosts with {each} PEs each")
        if "start" in rows:
            add("start", "ms", "bare ssh", "default", [bare_ssh(hosts)])
        for name, peer in ready.items():
            for setting, (words, environment) in STARTS[name](peer, hosts, each).items():
                one(name, setting, [*words, str(peer.program)], environment)
    return found


def table(found, each, names):
    lines = [f"| row, {each} PEs a host | unit | " + " | ".join(names) + " | best peer / memonet |", "|---|---|" + "---|" * (len(names) + 1)]
    for (row, unit), libraries in found.items():
        better = max if unit in HIGHER else min
        best = {name: better(map(statistics.median, settings.values())) for name, settings in libraries.items()}
        others = [figure for name, figure in best.items() if name not in ("memonet", "bare ssh")]
        ratio = "-"
        if others and "memonet" in best:
            ratio = best["memonet"] / max(others) if unit in HIGHER else min(others) / best["memonet"]
            ratio = f"{ratio:.2f}"
        cells = " | ".join(f"{best[name]:,.4g}" if name in best else "-" for name in names)
        lines.append(f"| {row} | {unit} | {cells} | {ratio} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts", help="names of hosts, separated by commas; this host should be the first one")
    parser.add_argument("--only", default=",".join(STARTS), help="libraries, of " + ",".join(STARTS))
    parser.add_argument("--rows", default=ROWS, help="of " + ROWS + ", and other rows of measure.c")
    parser.add_argument("--each", default="1,2", help="PEs on each host")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.15, help="per row and round")
    parser.add_argument("--timeout", type=float, default=120, help="seconds after which a job is given up")
    options = parser.parse_args()
    hosts, ready = options.hosts.split(","), {}
    WORK.mkdir(parents=True, exist_ok=True)
    for name in options.only.split(","):
        say(f"preparing {name}")
        try:
            ready[name] = peers.MAKERS[name]()
            ready[name].build()
        except (subprocess.CalledProcessError, OSError, StopIteration) as error:
            ready.pop(name, None)
            say(f"  left out: {getattr(error, 'stderr', None) or error}")
    names = [*ready, "bare ssh"]
    for each in map(int, options.each.split(",")):
        print("\n".join(table(measure(ready, hosts, each, options), each, names)), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
