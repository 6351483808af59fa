"""The training plot at the end of a run, and `packtrain plot`."""

from __future__ import annotations

import os

import pytest

from packtrain.events import kinds
from tests.support.cli_runs import Workspace

pytestmark = pytest.mark.slow

# The first attempt reports steps 1 to 8 and hangs; the second resumes at step 6.
WORKFLOW = """
name: plotted
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
limits: {maxAttempts: 2, grace: 1s}
steps:
  - name: train
    run:
      command: |
        report() { echo "{\\"step\\": $1, \\"total_steps\\": 100, \\"loss\\": $((200 - $1))}" >> $PACKTRAIN_METRICS; }
        first=1; [ -e MARK ] && first=6
        for step in $(seq $first 8); do report $step; sleep 0.25; done
        [ -e MARK ] || { touch MARK; sleep 600; }
        echo '{"step": 100, "total_steps": 100, "accuracy": 0.75}' >> $PACKTRAIN_METRICS
"""
SILENT = """
name: silent
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
steps: [{name: nothing, run: {command: "true"}}]
"""


def test_resumed_training(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.write_file(WORKFLOW.replace("MARK", str(tmp_path / "mark")))
    run = workspace.start("run", "workflow.yaml")
    workspace.wait_for((tmp_path / "mark").exists)
    workspace.kill_agent()
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    plot = workspace.run_folder() / "training.png"
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert f"training: {plot}" in out
    assert "step 1/100 · loss 199 · 1%" in out
    assert "step 100/100 · accuracy 75.0% · 100%" in out
    result = workspace.run_json("plot", "-o", "mine.svg")
    assert (result["jobs"], result["metrics"]) == (1, ["loss", "accuracy"])
    svg = (tmp_path / "mine.svg").read_text()
    assert "discarded, repeated" in svg
    assert "resumed" in svg
    assert len(workspace.read_events(kinds.AGENT_STARTED)) == 2
    assert "would plot 1 job" in workspace.run("plot", "--dry-run", "-o", "no/where.png")
    assert "cannot write no/where.png" in workspace.run_json("plot", "-o", "no/where.png", exit_code=2)["error"]


def test_run_without_metrics(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.write_file(SILENT)
    summary = workspace.run_json("run", "workflow.yaml")
    assert summary["training_chart"] is None
    assert not (workspace.run_folder() / "training.png").exists()
    assert "packtrain.torch.log_metrics" in workspace.run_json("plot", exit_code=4)["error"]


def test_unwritable_plot_does_not_fail_the_run(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.write_file(
        SILENT.replace('"true"', f"""'echo "{{\\"loss\\": 1}}" >> $PACKTRAIN_METRICS; cat {tmp_path}/gate'""")
    )
    os.mkfifo(tmp_path / "gate")
    run = workspace.start("run", "workflow.yaml")
    (workspace.run_folder() / "training.png" / "in the way").mkdir(parents=True)
    (tmp_path / "gate").write_text("go")
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    assert "could not write the chart training.png: [Errno 21] Is a directory" in err
    assert not list(workspace.run_folder().glob(".training*"))
