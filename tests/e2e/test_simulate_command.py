"""`packtrain simulate --from` a run and from HTCondor logs."""

from __future__ import annotations

import pytest

from packtrain.simulate.scenarios import SCENARIOS
from tests.support.cli_runs import Workspace
from tests.support.paths import TESTS_DIR

pytestmark = pytest.mark.slow

LOGS = TESTS_DIR / "data" / "condor-logs"
WORKFLOW = """
name: simulated
count: 3
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
limits: {grace: 2s}
steps: [{name: train, run: {command: "sleep 1"}}]
"""


def test_from_a_run(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.write_file(WORKFLOW)
    run = workspace.run_json("run", "workflow.yaml", "--offline")["run"]
    result = workspace.run_json("simulate", "--from", run, "--seeds", 2, "--jobs", "2x")
    assert result["jobs"] == 6
    assert list(result["scenarios"]) == list(SCENARIOS)
    assert all(scenario["success_percent"]["mean"] == 100.0 for scenario in result["scenarios"].values())
    text = workspace.run("simulate", "--from", run, "--scenario", "packtrain", "--seeds", 1)
    assert "3 jobs on a model of" in text and "useful, % of slot time" in text


def test_from_htcondor_logs(tmp_path):
    workspace = Workspace(tmp_path)
    logs = ("04-evict-restart.log", "05-checkpoint-evict-resume.log", "31-starter-killed.log")
    sources = [argument for name in logs for argument in ("--from", LOGS / name)]
    result = workspace.run_json("simulate", *sources, "--scenario", "plain", "--scenario", "packtrain", "--seeds", 3)
    assert result["jobs"] == 3 and result["slots"] >= 1
    assert all(scenario["success_percent"]["mean"] == 100.0 for scenario in result["scenarios"].values())
    assert result["scenarios"]["plain"]["executions"]["mean"] > 3, "evicted jobs start again"
