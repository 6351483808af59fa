"""`packtrain simulate --from` what people have: a run of their own, or a log of HTCondor."""

from __future__ import annotations

import pytest

from tests.support.cli_runs import Workspace
from tests.support.paths import TESTS_DIR

pytestmark = pytest.mark.slow

LOGS = TESTS_DIR / "data" / "condor-logs"
WORKFLOW = """
name: played
count: 3
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
limits: {grace: 2s}
steps: [{name: train, run: {command: "sleep 1"}}]
"""


def test_from_a_run(tmp_path):
    desk = Workspace(tmp_path)
    desk.write_file(WORKFLOW)
    run = desk.run_json("run", "workflow.yaml", "--offline")["run"]
    played = desk.run_json("simulate", "--from", run, "--seeds", 2, "--jobs", "2x")
    assert played["jobs"] == 6
    assert list(played["policies"]) == ["plain", "adopted", "packtrain"]
    assert all(one["success"]["mean"] == 100.0 for one in played["policies"].values())
    shown = desk.run("simulate", "--from", run, "--policy", "packtrain", "--seeds", 1)
    assert "3 jobs in a pool as of" in shown and "useful, % of slot time" in shown


def test_from_logs_of_htcondor(tmp_path):
    desk = Workspace(tmp_path)
    logs = ("04-evict-restart.log", "05-checkpoint-evict-resume.log", "31-starter-killed.log")
    given = [word for name in logs for word in ("--from", LOGS / name)]
    played = desk.run_json("simulate", *given, "--policy", "plain", "--policy", "packtrain", "--seeds", 3)
    assert played["jobs"] == 3 and played["slots"] >= 1
    assert all(one["success"]["mean"] == 100.0 for one in played["policies"].values())
    assert played["policies"]["plain"]["attempts"]["mean"] > 3, "what was evicted is started again"
