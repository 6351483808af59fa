"""`--notify`: whoever started a run is told its end, also of one that was detached."""

from __future__ import annotations

import json

import pytest

from tests.support.cli_runs import Workspace

pytestmark = pytest.mark.slow

WORKFLOW = """
name: told
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
limits: {grace: 2s}
steps: [{name: train, run: {command: "echo no luck >&2; exit 3"}}]
"""


@pytest.mark.parametrize("detach", [(), ("--detach",)])
def test_the_end_is_told(tmp_path, detach):
    desk = Workspace(tmp_path)
    desk.write_file(WORKFLOW)
    told = tmp_path / "told.json"
    command = f"cat > {told}.new && mv {told}.new {told}"
    desk.run("run", "workflow.yaml", "--offline", "--notify", command, *detach, exit_code=0 if detach else 10)
    data = desk.wait_for(lambda: told.exists() and json.loads(told.read_text()))
    assert (data["status"], data["jobs"], data["failed"]) == ("failed", 1, 1)
    assert data["failures"][0]["kind"] == "step_failed"
    assert "no luck" in data["text"]
    assert data["run_dir"] == str(desk.run_folder())


def test_also_when_a_run_that_nobody_supervised_is_cancelled(tmp_path):
    desk = Workspace(tmp_path)
    desk.write_file(WORKFLOW.replace("echo no luck >&2; exit 3", "sleep 600"))
    told = tmp_path / "told.json"
    packtrain = desk.start("run", "workflow.yaml", "--offline", "--notify", f"cat > {told}")
    desk.wait_for_stage("steps")
    packtrain.kill()
    packtrain.communicate()
    desk.run_json("cancel")
    assert json.loads(told.read_text())["status"] == "cancelled"


def test_a_wrong_target_is_refused_before_anything_starts(tmp_path):
    desk = Workspace(tmp_path)
    desk.write_file(WORKFLOW)
    desk.run("run", "workflow.yaml", "--notify", "ftp://somewhere/else", exit_code=2)
    assert "should be a command or an http address" in desk.stderr
    assert not (tmp_path / ".packtrain").exists()
