"""The stubs: what they name exists, what exists they name, and mypy finds them right."""

import ast
import dataclasses
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import memonet

STUBS = Path(memonet.__file__).with_suffix(".pyi")
EXAMPLES = Path(__file__).parents[3] / "examples"

PROGRAM = """
import memonet
import numpy as np

job = memonet.init()
number: int = job.world.all_reduce(1)
window = job.window((2, 3), "float64")
window.at(0)[1, 1:2] = [1.0]
window.put(0, 0, np.zeros(3))
window.get(0, 0, np.zeros(3)).sum()
with memonet.Mutex(job, np.zeros(3)) as array:
    array += 1
lock = memonet.RwLock(job, np.zeros(3))
with lock.read(timeout=1.0) as array, lock.write() as changed:
    changed += array
job.world.all_reduce_into(window.span(0, 3), window.span(3), "max")
mine = job.restricted(3, right=lambda home, holder: "read" if holder == 0 else "none")
job.attach(mine.key()).put_nbi(0, 0, window, count=3)
with memonet.Messages(job, 100) as messages, memonet.Supersteps(job, 3) as steps:
    messages.send(0, b"abc", timeout=1.0)
    data, sender = messages.recv(timeout=1.0)
    messages.send_object(sender, {"length": len(data)})
    steps.put(0, 1, np.zeros(2))
    steps.step()
    steps.received.sum()
for index in np.arange(3):
    window.put(index % 2, (0, index), np.float32(1))
    window.remote(np.int64(0), index).store(window.local[0, index])
    window.wait_until(index, ">=", np.float64(0), timeout=1, depends_on=np.arange(1))
job.world.all_reduce(np.float32(1)) + job.world.all_gather(np.float32(1)).sum()
with memonet.Mutex(job, 1.5) as total, memonet.RwLock(job, 2).write() as most:
    total[...] = most + 1
counts: list[int] = memonet.threads(2, lambda job: job.pe)
"""


def test_stubs_and_module_have_the_same_names():
    tree = ast.parse(STUBS.read_text())
    public = {node.name: node for node in tree.body if hasattr(node, "name") and node.name[0] != "_"}
    assert sorted(public) == sorted(memonet.__all__)
    for name, node in public.items():
        thing = getattr(memonet, name)
        assert thing.__doc__, f"{name} has no docstring"
        if not isinstance(node, ast.ClassDef) or issubclass(thing, Exception):
            continue
        fields = [a.target.id for a in node.body if isinstance(a, ast.AnnAssign)]
        if dataclasses.is_dataclass(thing):
            assert [f.name for f in dataclasses.fields(thing)] == fields
            continue
        stubbed = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
        assert set(fields) == set(getattr(thing, "__slots__", ())), name
        there = {member for member in dir(thing) if not member.startswith("_")} - set(fields)
        assert {member for member in stubbed if not member.startswith("_")} == there, name
        for member in there:
            assert getattr(thing, member).__doc__, f"{name}.{member} has no docstring"


def test_docstrings_say_units_and_choices():
    """Those of calls that take such arguments, or those of calls that they name."""
    told = {"timeout": "second", "cmp": '">="', "op": '"'}
    for kind in (memonet.Window, memonet.Messages, memonet.Team, memonet.Barrier, memonet.Mutex):
        for name, call in vars(kind).items():
            try:
                arguments = inspect.signature(call).parameters
            except (TypeError, ValueError):
                continue
            words = re.findall(r"`(\w+)`", call.__doc__ or "")
            docs = [call.__doc__] + [getattr(kind, word, call).__doc__ for word in words]
            for argument, word in told.items():
                if argument in arguments and name[0] != "_":
                    assert any(word in doc for doc in docs), f"{kind.__name__}.{name}: {argument}"


def test_mypy_accepts_programs(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    check = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path)]
    # On this path mypy checks the stubs, too; of installed packages it says nothing.
    environment = {**os.environ, "MYPYPATH": str(STUBS.parents[1])}
    programs = [str(program), *map(str, EXAMPLES.glob("*.py"))]
    checked = subprocess.run(
        [*check, *programs], capture_output=True, text=True, env=environment
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    program.write_text(PROGRAM + "\nwindow.wait_until(0, '=', 1)\n")
    checked = subprocess.run([*check, str(program)], capture_output=True, text=True)
    assert checked.returncode == 1 and "wait_until" in checked.stdout, checked.stdout
