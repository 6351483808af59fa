"""Looking at a run while it runs: `logs -f` from another shell, and the live picture on a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys

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
        echo first words; echo trouble >&2
        echo '{"step": 1, "total_steps": 4, "epoch": 1, "epochs": 2, "loss": 0.5}' >> $PACKTRAIN_METRICS
        until [ -e GATE ]; do sleep 0.05; done
        echo '{"step": 4, "total_steps": 4, "epoch": 2, "epochs": 2, "accuracy": 0.75}' >> $PACKTRAIN_METRICS
        echo -n last words
"""


@pytest.fixture
def desk(tmp_path):
    desk = Workspace(tmp_path, TERM="xterm-256color")
    desk.write_file(WORKFLOW.replace("GATE", str(tmp_path / "go")))
    return desk


def test_logs_follow_a_job_to_its_end(desk):
    run = desk.run_json("run", "workflow.yaml", "--detach")["run"]
    desk.wait_for(lambda: desk.read_events(kinds.METRIC))
    following = desk.start("logs", "-f", run, "--json")
    assert json.loads(following.stdout.readline())["line"] in ("first words", "trouble")
    (desk.folder / "go").touch()
    out, err = following.communicate(timeout=60)
    assert following.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["line"] == "last words"


def on_terminal(desk, *arguments):
    """All that a terminal of 100 × 30 was sent, and the exit code."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "packtrain", *arguments]
    environment = {**desk.environment, "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(
        command, cwd=desk.folder, env=environment, stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    sent = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the terminal has no more writers
            break
        sent += piece
        if b"step 1/4" in sent:
            (desk.folder / "go").touch()
    return sent.decode(), process.wait(timeout=60)


def test_the_live_picture(desk):
    sent, code = on_terminal(desk, "run", "workflow.yaml")
    assert code == 0, sent
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)
    assert "talk · epoch 1/2 · step 1/4 · loss 0.5" in plain
    assert "━" in plain, "a bar"
    assert "✓ probe" in plain
    assert "accuracy 75.0% · loss 0.5 · epoch 2/2" in plain
    assert "where the time went" in plain
    assert "Traceback" not in plain


def test_watching_from_another_terminal(desk):
    desk.run_json("run", "workflow.yaml", "--detach")
    sent, code = on_terminal(desk, "ps", "-w")
    assert code == 0
    assert "succeeded" in sent
