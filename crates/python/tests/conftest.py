"""Runs functions of tests as PEs: near, behind the test fabric, and on a simulated machine."""

import inspect
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from memonet._launch import command

FAR = {"MEMONET_FABRIC": "far:delay_us=50,reorder=1,nodes=2"}
WAYS = {
    "near": ([], {}),
    "far": ([], FAR),
    # A machine that does much else lets PEs wait for a CPU.
    "simulated": (["--machine", "rdma-100g", "--patience", "60"], {}),
}

PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import memonet

{body}

{name}(memonet.init())
"""


def pytest_configure():
    # A shell has it ignored in what it starts in the background, and so would the programs of tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Run:
    """Starts `body(job)` as a job of `n` processes. Gives status, output and error output."""

    def __init__(self, folder, way):
        self.folder, self.way = folder, way

    def start(self, n, body, options=(), environment=None):
        path = self.folder / f"{body.__name__}.py"
        source = textwrap.dedent(inspect.getsource(body))
        path.write_text(PROGRAM.format(body=source, name=body.__name__))
        more, variables = WAYS[self.way]
        return subprocess.run(
            [command(), "run", "-n", str(n), *more, *options, sys.executable, str(path)],
            env={**os.environ, **variables, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def __call__(self, n, body, **options):
        ended = self.start(n, body, **options)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended


@pytest.fixture(params=WAYS)
def run(request, tmp_path):
    """A job in each of the ways that there are."""
    return Run(tmp_path, request.param)


@pytest.fixture
def run_near(tmp_path):
    """A job whose PEs share memory."""
    return Run(tmp_path, "near")
