#!/usr/bin/env python3
"""Runs all tests of the workspace, as `cargo test --workspace` does, but two test programs at a time.

    together.py [--cargo CARGO] [ARGUMENT...]

The tests of one program mostly wait for processes, or mostly compute: two programs keep two CPUs busy. The largest program
starts first, as it takes longest. Each program's output comes in one piece, when it has ended. ARGUMENTS go to each program.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import threading
import time


def programs(cargo):
    """Test programs of the workspace with the folders in which cargo would run them, built if need be."""
    command = [cargo, "test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.exit(built.returncode)
    messages = map(json.loads, built.stdout.splitlines())
    found = [
        (pathlib.Path(message["executable"]), pathlib.Path(message["manifest_path"]).parent)
        for message in messages
        if message["reason"] == "compiler-artifact" and message["executable"] and message["profile"]["test"]
    ]
    return sorted(found, key=lambda program: program[0].stat().st_size, reverse=True)


def run(command, folder, name, lock):
    """Whether it succeeds."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with lock:
        print(f"\n     Running {name}", flush=True)
        sys.stdout.buffer.write(done.stdout)
        print(f"     {name}: {'ok' if done.returncode == 0 else 'FAILED'}, {time.monotonic() - began:.1f} s", flush=True)
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cargo", default=os.environ.get("CARGO", "cargo"))
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT")
    options = parser.parse_args()
    lock = threading.Lock()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = []
        for program, folder in programs(options.cargo):
            name = f"{folder.name}: {program.name.rpartition('-')[0]}"
            runs.append((name, pool.submit(run, [program, *options.arguments], folder, name, lock)))
        # Those in comments, of which cargo knows where they are.
        name = "examples in comments"
        runs.append((name, pool.submit(run, [options.cargo, "test", "--workspace", "--doc", "--no-fail-fast"], ".", name, lock)))
    failed = [name for name, done in runs if not done.result()]
    print(f"\n{len(runs) - len(failed)} of {len(runs)} test programs succeed. {'; '.join(failed)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
