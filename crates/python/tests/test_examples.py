"""The examples, and the programs of the document."""

import re
import subprocess
import sys
from pathlib import Path

import memonet
import pytest

from conftest import WAYS

ROOT = Path(__file__).parents[3]


EXAMPLES = {
    "heat.py": ([20, 30], "20 x 20 after 30 steps on 3 PEs"),
    "sample_sort.py": ([2000], "6000 keys sorted on 3 PEs"),
    "parameter_server.py": ([120], "32 parameters after 360 updates by 3 PEs"),
    "actor_learner.py": ([60], "2 actors found"),
}


def test_examples_are_all_here():
    assert set(EXAMPLES) == {path.name for path in (ROOT / "examples").glob("*.py")}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, way, monkeypatch, capsys):
    options, variables = WAYS[way]
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    arguments, said = EXAMPLES[name]
    program = ROOT / "examples" / name
    memonet.launch(program, 3, *arguments, options=[*options, "--timeout", "100"])
    assert said in capsys.readouterr().out


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
    """From top to bottom in a kernel of Jupyter, which keeps what a person would see."""
    import nbclient
    import nbformat

    notebook = nbformat.read(ROOT / "examples/notebook.ipynb", as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "".join(output.get("text", "") for output in outputs)
    assert "pi is about 3.1" in text and "rdma-100g" in text, text
    pictures = [output.data for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 1, "the picture of the timeline"


def test_pictures_of_timelines(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")

    def program(job):
        w = job.window(1, "int64")
        for step in range(1, 4):
            w.remote(1 - job.pe, 0).store(step)
            w.wait_until(0, ">=", step)
        job.barrier()

    path = tmp_path / "trace.json"
    memonet.launch(program, 2, options=["--trace", str(path)], echo=False)
    axes = memonet.plot_trace(path)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["PE 0", "PE 1"]
    named = axes.get_legend_handles_labels()[1]
    assert {"Remote::store", "Window::wait_until", "Job::barrier"} <= set(named), named
    run = memonet.simulate(program, "rdma-100g", 2, patience=60, trace=True, echo=False)
    axes = run.plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["PE 0", "PE 1"]
    assert "Job::barrier" in axes.get_legend_handles_labels()[1], "the programs' calls"
    with pytest.raises(ValueError, match="trace=True"):
        memonet.simulate(program, "rdma-100g", 2, patience=60, echo=False).plot()
    with pytest.raises(ValueError, match="no PEs"):
        memonet.plot_trace([])
