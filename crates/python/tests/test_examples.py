"""The examples, and the programs of the document."""

import json
import re
import subprocess
import sys
from pathlib import Path

import memonet
import pytest

from conftest import WAYS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("way", WAYS)
def test_heat(way, monkeypatch, capsys):
    options, variables = WAYS[way]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    memonet.launch(ROOT / "examples/heat.py", 3, 20, 30, options=[*options, "--timeout", "60"])
    assert "20 x 20 after 30 steps on 3 PEs" in capsys.readouterr().out


def programs():
    """The programs of docs/python.md: each begins with a comment that says how it is started."""
    text = (ROOT / "docs/python.md").read_text()
    found = re.findall(r"```python\n# ([^\n]*)\n(.*?)```", text, re.DOTALL)
    assert len(found) >= 5, "the document has programs"
    return found


@pytest.mark.parametrize("start, program", programs())
def test_document(start, program, tmp_path, capsys):
    path = tmp_path / "program.py"
    path.write_text(program)
    if start.startswith("memonet run -n "):
        memonet.launch(path, int(start.split()[3]))
    else:
        assert start == "python program.py", start
        subprocess.run([sys.executable, path], check=True, timeout=60, cwd=tmp_path)


def test_notebook(tmp_path):
    cells = json.loads((ROOT / "examples/notebook.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    path = tmp_path / "notebook.py"
    path.write_text("\n\n".join(code))
    ran = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=100, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert "pi is about 3.1" in ran.stdout and "rdma-100g" in ran.stdout, ran.stdout
