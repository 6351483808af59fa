"""A run ends with a picture of its training; attempts that went on continue the line; `plot` draws it at any time."""

from __future__ import annotations

import os

import pytest

from packtrain.events import kinds
from tests.support.cli_runs import Workspace

pytestmark = pytest.mark.slow

# The first attempt reports the steps 1 to 8 and hangs; the second goes on from 6.
WORKFLOW = """
name: drawn
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


def test_a_resumed_training_is_one_line(tmp_path):
    desk = Workspace(tmp_path)
    desk.write_file(WORKFLOW.replace("MARK", str(tmp_path / "mark")))
    run = desk.start("run", "workflow.yaml")
    desk.wait_for((tmp_path / "mark").exists)
    desk.kill_agent()
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    picture = desk.run_folder() / "training.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"training: {picture}" in out
    assert "step 1/100 · loss 199 · 1%" in out
    assert "step 100/100 · accuracy 75.0% · 100%" in out
    found = desk.run_json("plot", "-o", "mine.svg")
    assert (found["jobs"], found["metrics"]) == (1, ["loss", "accuracy"])
    words = (tmp_path / "mine.svg").read_text()
    assert "lost, done again" in words
    assert "went on here" in words
    assert len(desk.read_events(kinds.AGENT_STARTED)) == 2
    assert "would draw 1 job" in desk.run("plot", "--dry-run", "-o", "no/where.png")
    assert "cannot be written" in desk.run_json("plot", "-o", "no/where.png", exit_code=2)["error"]


def test_a_run_that_reports_nothing_has_no_picture(tmp_path):
    desk = Workspace(tmp_path)
    desk.write_file(SILENT)
    summary = desk.run_json("run", "workflow.yaml")
    assert summary["picture"] is None
    assert not (desk.run_folder() / "training.png").exists()
    assert "packtrain.torch.metrics" in desk.run_json("plot", exit_code=4)["error"]


def test_a_picture_that_cannot_be_drawn_spoils_nothing(tmp_path):
    desk = Workspace(tmp_path)
    desk.write_file(
        SILENT.replace('"true"', f"""'echo "{{\\"loss\\": 1}}" >> $PACKTRAIN_METRICS; cat {tmp_path}/gate'""")
    )
    os.mkfifo(tmp_path / "gate")
    run = desk.start("run", "workflow.yaml")
    (desk.run_folder() / "training.png" / "in the way").mkdir(parents=True)
    (tmp_path / "gate").write_text("go")
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    assert "the picture training.png could not be drawn: [Errno 21] Is a directory" in err
    assert not list(desk.run_folder().glob(".training*"))
