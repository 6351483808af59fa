"""`logs -f` and the live view of `run` and `ps -w` in a real terminal."""

from __future__ import annotations

import json
import re

import pytest

from packtrain.events import kinds
from tests.support.cli_runs import Workspace

pytestmark = pytest.mark.slow

WORKFLOW = """
name: watched
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
steps:
  - name: talk
    run:
      command: |
        echo first line; echo trouble >&2
        echo '{"step": 1, "total_steps": 4, "epoch": 1, "epochs": 2, "loss": 0.5}' >> $PACKTRAIN_METRICS
        until [ -e GATE ]; do sleep 0.05; done
        echo '{"step": 4, "total_steps": 4, "epoch": 2, "epochs": 2, "accuracy": 0.75}' >> $PACKTRAIN_METRICS
        echo -n last line
"""


@pytest.fixture
def workspace(tmp_path):
    workspace = Workspace(tmp_path, TERM="xterm-256color")
    workspace.write_file(WORKFLOW.replace("GATE", str(tmp_path / "go")))
    return workspace


def test_logs_follow(workspace):
    run = workspace.run_json("run", "workflow.yaml", "--detach")["run"]
    workspace.wait_for(lambda: workspace.read_events(kinds.METRIC))
    following = workspace.start("logs", "-f", run, "--json")
    assert json.loads(following.stdout.readline())["line"] in ("first line", "trouble")
    (workspace.folder / "go").touch()
    out, err = following.communicate(timeout=60)
    assert following.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["line"] == "last line"


def run_in_terminal(workspace: Workspace, *arguments: str) -> str:
    """Run a command in a terminal; the training continues once its first step is shown."""

    def open_gate(output: bytes) -> None:
        if b"step 1/4" in output:
            (workspace.folder / "go").touch()

    return workspace.run_in_terminal(*arguments, on_output=open_gate)


def test_live_view(workspace):
    output = run_in_terminal(workspace, "run", "workflow.yaml")
    assert workspace.exit_code == 0, output
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)
    assert "talk · epoch 1/2 · step 1/4 · loss 0.5" in plain
    assert "━" in plain, "a progress bar"
    assert "✓ probe" in plain
    assert "accuracy 75.0% · loss 0.5 · epoch 2/2" in plain
    assert "where the time went" in plain
    assert "Traceback" not in plain


def test_ps_watch(workspace):
    workspace.run_json("run", "workflow.yaml", "--detach")
    output = run_in_terminal(workspace, "ps", "-w")
    assert workspace.exit_code == 0
    assert "succeeded" in output
