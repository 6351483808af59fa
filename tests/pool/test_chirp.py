"""Live words from agents in a real pool: seen while they run, the same as in the journal afterwards."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from testbed.condor_config import SITES
from tests.support.agent_jobs import AgentJob
from tests.support.agent_runs import job, sh

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-1"), pytest.mark.timeout(600)]

WORDS = 'say \\"hi\\" \\\\ back\\tslash é ✓'
TRAIN = (
    f"printf 'one\\n{WORDS}\\n';"
    ' echo \'{"epoch": 2, "step": 40, "loss": 0.25, "accuracy": 0.5}\' >> $PACKTRAIN_METRICS;'
    " while [ ! -e %s/go ]; do sleep 0.1; done"
)


def test_a_running_job_tells_how_it_goes(desk):
    agent = AgentJob(desk, job(sh(TRAIN % desk.folder, name="train")), options="--live 0.5")
    started = agent.await_told("attempt.started")[0]
    assert started.data["site"] in {site.name for site in SITES}
    desk.await_some(lambda: agent.attribute("PacktrainMetric"))
    assert agent.attribute("PacktrainStage") == "steps"
    seen = [agent.attribute(f"Packtrain{name}") for name in ("Epoch", "Step", "Loss", "Metric")]
    assert seen == [2, 40, 0.25, '{"accuracy": 0.5}']
    desk.await_some(agent.tail)
    before = agent.attribute("PacktrainSeen")
    assert before >= 1
    (desk.folder / "go").touch()
    agent.finish()
    kept = agent.events()
    assert all(event in kept for event in agent.told()), "the very events"
    assert {e.kind for e in agent.told()} == {"attempt.started", "stage.started", "attempt.ended"}
    assert agent.told()[-1].kind == "attempt.ended"


def test_the_newest_lines_of_its_logs_can_be_read(desk):
    agent = AgentJob(desk, job(sh(TRAIN % desk.folder, name="train")), options="--live 0.5")
    desk.await_some(agent.tail)
    told = agent.tail()
    (desk.folder / "go").touch()
    agent.finish()
    log = (desk.folder / "logs" / "train.out").read_bytes()
    assert (told["file"], told["end"], unquote(told["text"])) == ("train.out", len(log), log.decode())


def test_where_only_delayed_updates_are_allowed_the_job_still_ends(desk):
    agent = AgentJob(desk, job(sh(TRAIN % desk.folder, name="train")), options="--live 0.5", proxy="false")
    desk.await_some(lambda: agent.attribute("ChirpPacktrainTail"))
    assert agent.attribute("ChirpPacktrainStage") == "steps"
    (desk.folder / "go").touch()
    agent.finish()
    assert agent.told() == []


def test_without_a_proxy_the_job_is_none_the_worse(desk):
    with desk.pool.configured(ENABLE_CHIRP="false"):
        agent = AgentJob(desk, job(sh("echo done", name="train")), options="--live 0.5")
        agent.finish()
    assert agent.told() == []
    assert (desk.folder / "logs" / "train.out").read_text() == "done\n"
    assert [e.data["outcome"] for e in agent.events("attempt.ended")] == ["succeeded"]
