"""`--notify` sends a notification when a run ends, also if it is detached."""

from __future__ import annotations

import json

import pytest

from tests.support.cli_runs import Workspace

pytestmark = pytest.mark.slow

WORKFLOW = """
name: notified
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
limits: {grace: 2s}
steps: [{name: train, run: {command: "echo no luck >&2; exit 3"}}]
"""


@pytest.mark.parametrize("detach", [(), ("--detach",)])
def test_notification_at_end(tmp_path, detach):
    workspace = Workspace(tmp_path)
    workspace.write_file(WORKFLOW)
    message_path = tmp_path / "message.json"
    command = f"cat > {message_path}.new && mv {message_path}.new {message_path}"
    workspace.run("run", "workflow.yaml", "--offline", "--notify", command, *detach, exit_code=0 if detach else 10)
    data = workspace.wait_for(lambda: message_path.exists() and json.loads(message_path.read_text()))
    assert (data["status"], data["jobs"], data["failed"]) == ("failed", 1, 1)
    assert data["failures"][0]["kind"] == "step_failed"
    assert "no luck" in data["text"]
    assert data["run_dir"] == str(workspace.run_folder())


def test_notification_of_cancelled_orphan(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.write_file(WORKFLOW.replace("echo no luck >&2; exit 3", "sleep 600"))
    message_path = tmp_path / "message.json"
    packtrain = workspace.start("run", "workflow.yaml", "--offline", "--notify", f"cat > {message_path}")
    workspace.wait_for_stage("steps")
    packtrain.kill()
    packtrain.communicate()
    workspace.run_json("cancel")
    assert json.loads(message_path.read_text())["status"] == "cancelled"


def test_invalid_target_is_rejected(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.write_file(WORKFLOW)
    workspace.run("run", "workflow.yaml", "--notify", "ftp://somewhere/else", exit_code=2)
    assert "should be a command or an http URL" in workspace.stderr
    assert not (tmp_path / ".packtrain").exists()
