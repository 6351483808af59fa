"""Live words from agents in a real pool: seen while they run, the same as in the journal afterwards."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from testbed.condor_config import SITES
from tests.support.agent_jobs import AgentJob
from tests.support.agent_runs import make_job, make_step

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-1"), pytest.mark.timeout(600)]

WORDS = 'say \\"hi\\" \\\\ back\\tslash é ✓'
TRAIN = (
    f"printf 'one\\n{WORDS}\\n';"
    ' echo \'{"epoch": 2, "step": 40, "loss": 0.25, "accuracy": 0.5}\' >> $PACKTRAIN_METRICS;'
    " while [ ! -e %s/go ]; do sleep 0.1; done"
)


def test_a_running_job_tells_how_it_goes(desk):
    agent = AgentJob(desk, make_job(make_step(TRAIN % desk.folder, name="train")), options="--live-interval 0.5")
    started = agent.wait_for_user_log_event("agent.started")[0]
    assert started.data["site"] in {site.name for site in SITES}
    desk.wait_for(lambda: agent.job_attribute("PacktrainMetrics"))
    assert agent.job_attribute("PacktrainStage") == "steps"
    seen = [agent.job_attribute(f"Packtrain{name}") for name in ("Epoch", "Step", "Loss", "Metrics")]
    assert seen == [2, 40, 0.25, '{"accuracy": 0.5}']
    desk.wait_for(agent.log_tail)
    before = agent.job_attribute("PacktrainUpdateCount")
    assert before >= 1
    (desk.folder / "go").touch()
    agent.wait_for_stderr()
    kept = agent.events()
    assert all(event in kept for event in agent.user_log_events()), "the very events"
    assert {e.kind for e in agent.user_log_events()} == {"agent.started", "stage.started", "agent.ended"}
    assert agent.user_log_events()[-1].kind == "agent.ended"


def test_the_newest_lines_of_its_logs_can_be_read(desk):
    agent = AgentJob(desk, make_job(make_step(TRAIN % desk.folder, name="train")), options="--live-interval 0.5")
    desk.wait_for(agent.log_tail)
    told = agent.log_tail()
    (desk.folder / "go").touch()
    agent.wait_for_stderr()
    log = (desk.folder / "logs" / "train.out").read_bytes()
    assert (told["file"], told["end"], unquote(told["text"])) == ("train.out", len(log), log.decode())


def test_where_only_delayed_updates_are_allowed_the_job_still_ends(desk):
    agent = AgentJob(
        desk,
        make_job(make_step(TRAIN % desk.folder, name="train")),
        options="--live-interval 0.5",
        want_io_proxy="false",
    )
    desk.wait_for(lambda: agent.job_attribute("ChirpPacktrainLogTail"))
    assert agent.job_attribute("ChirpPacktrainStage") == "steps"
    (desk.folder / "go").touch()
    agent.wait_for_stderr()
    assert agent.user_log_events() == []


def test_without_a_proxy_the_job_is_none_the_worse(desk):
    with desk.pool.configured(ENABLE_CHIRP="false"):
        agent = AgentJob(desk, make_job(make_step("echo done", name="train")), options="--live-interval 0.5")
        agent.wait_for_stderr()
    assert agent.user_log_events() == []
    assert (desk.folder / "logs" / "train.out").read_text() == "done\n"
    assert [e.data["outcome"] for e in agent.events("agent.ended")] == ["succeeded"]
