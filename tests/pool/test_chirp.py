"""Live updates of agents in a real pool: visible while they run, and equal to the journal afterwards."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from testbed.condor_config import SITES
from tests.support.agent_jobs import AgentJob
from tests.support.agent_runs import make_job, make_step

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-1"), pytest.mark.timeout(600)]

TEXT = 'a \\"quote\\" \\\\ back\\tslash é ✓'
TRAIN = (
    f"printf 'one\\n{TEXT}\\n';"
    ' echo \'{"epoch": 2, "step": 40, "loss": 0.25, "accuracy": 0.5}\' >> $PACKTRAIN_METRICS;'
    " while [ ! -e %s/go ]; do sleep 0.1; done"
)


def test_attributes_and_user_log(workspace):
    agent = AgentJob(
        workspace, make_job(make_step(TRAIN % workspace.folder, name="train")), options="--live-interval 0.5"
    )
    started = agent.wait_for_user_log_event("agent.started")[0]
    assert started.data["site"] in {site.name for site in SITES}
    workspace.wait_for(lambda: agent.job_attribute("PacktrainMetrics"))
    assert agent.job_attribute("PacktrainStage") == "steps"
    values = [agent.job_attribute(f"Packtrain{name}") for name in ("Epoch", "Step", "Loss", "Metrics")]
    assert values == [2, 40, 0.25, '{"accuracy": 0.5}']
    workspace.wait_for(agent.log_tail)
    assert agent.job_attribute("PacktrainUpdateCount") >= 1
    (workspace.folder / "go").touch()
    agent.wait_for_stderr()
    journal = agent.events()
    assert all(event in journal for event in agent.user_log_events())
    assert {e.kind for e in agent.user_log_events()} == {"agent.started", "stage.started", "agent.ended"}
    assert agent.user_log_events()[-1].kind == "agent.ended"


def test_log_tail(workspace):
    agent = AgentJob(
        workspace, make_job(make_step(TRAIN % workspace.folder, name="train")), options="--live-interval 0.5"
    )
    workspace.wait_for(agent.log_tail)
    tail = agent.log_tail()
    (workspace.folder / "go").touch()
    agent.wait_for_stderr()
    log = (workspace.folder / "logs" / "train.out").read_bytes()
    assert (tail["file"], tail["end"], unquote(tail["text"])) == ("train.out", len(log), log.decode())


def test_delayed_updates_only(workspace):
    agent = AgentJob(
        workspace,
        make_job(make_step(TRAIN % workspace.folder, name="train")),
        options="--live-interval 0.5",
        want_io_proxy="false",
    )
    workspace.wait_for(lambda: agent.job_attribute("ChirpPacktrainLogTail"))
    assert agent.job_attribute("ChirpPacktrainStage") == "steps"
    (workspace.folder / "go").touch()
    agent.wait_for_stderr()
    assert agent.user_log_events() == []


def test_job_without_proxy(workspace):
    with workspace.pool.override_config(ENABLE_CHIRP="false"):
        agent = AgentJob(workspace, make_job(make_step("echo done", name="train")), options="--live-interval 0.5")
        agent.wait_for_stderr()
    assert agent.user_log_events() == []
    assert (workspace.folder / "logs" / "train.out").read_text() == "done\n"
    assert [e.data["outcome"] for e in agent.events("agent.ended")] == ["succeeded"]
