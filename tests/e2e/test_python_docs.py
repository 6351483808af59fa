"""The Python examples of the documentation, executed; those of the README in a real notebook kernel."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

from tests.support.paths import PROJECT_ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
HOW_TO = (PROJECT_ROOT / "docs/how-to/python.md").read_text(encoding="utf-8")
README = (PROJECT_ROOT / "README.md").read_text(encoding="utf-8")


def code_blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACKTRAIN_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    (tmp_path / "workflow.yaml").write_text(code_blocks(HOW_TO, "yaml")[0])
    return tmp_path


def test_how_to_page(capsys):
    namespace: dict[str, object] = {}
    for block in code_blocks(HOW_TO, "python"):
        exec(compile(block, "python.md", "exec"), namespace)
    printed = capsys.readouterr().out
    assert "trained with 0.01" in printed
    assert "did you mean 'steps'?" in printed


def execute_notebook(folder: Path, cells: list[str]) -> list[list[nbformat.NotebookNode]]:
    """Execute cells in a kernel of this Python and return their outputs."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return [cell.outputs for cell in notebook.cells]


def test_notebook(folder):
    """The lines of the README, a cell each; then the run itself, and its live display while another run is running."""
    lines = code_blocks(README, "python")[0].strip().splitlines()
    assert len(lines) == 5
    cells = [*lines, "run", "run = packtrain.submit('workflow.yaml'); run.show()"]
    _, _, followed, waited, _, shown, live = execute_notebook(folder, cells)
    assert "job.ended" in "".join(output.text for output in followed)
    assert waited[0].text.startswith("succeeded [({'lr': '0.1'}, 'succeeded', {")
    assert (folder / "results/1/model.txt").read_text() == "0.01\n"
    assert shown[0].data["text/html"].count("succeeded") == 4  # the run, the number of jobs, and each job
    (display,) = (output for output in live if output.output_type == "display_data")
    assert "succeeded" in display.data["text/html"], "the display was not updated in place"
    assert display.data["text/html"].count("<pre") == 1
