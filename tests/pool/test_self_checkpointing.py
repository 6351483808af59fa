"""Self-checkpointing jobs in a real pool: HTCondor transfers the checkpoint folder to the same or another machine."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from packtrain.plan import CheckpointConfig, Limits
from testbed.condor_config import SITES
from tests.support.agent_jobs import AgentJob
from tests.support.agent_runs import make_job, make_step
from tests.support.programs import counting_trainer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-2"), pytest.mark.timeout(600)]

SUBMIT_LINES = """transfer_output_files = journal.jsonl, logs, output, checkpoint
checkpoint_exit_code = 85
transfer_checkpoint_files = checkpoint, journal.jsonl, logs
+JobMaxVacateTime = 20
"""


def make_training(workspace, *options, min_interval_s):
    program = Path(shutil.copy(counting_trainer.__file__, workspace.folder))
    program.chmod(0o644)
    command = " ".join([sys.executable, "-S", str(program), *map(str, options)])
    return make_job(
        make_step(command, name="train"),
        checkpoint=CheckpointConfig("ckpt.bin", min_interval_s),
        limits=Limits(grace_s=5),
    )


def final_step(workspace):
    return counting_trainer.parse_checkpoint_step((workspace.folder / "output" / "ckpt.bin").read_bytes())


def test_resume_in_place_after_each_exit_85(workspace):
    job = make_training(workspace, "--steps", 60, "--pace", 0.1, min_interval_s=2.0)
    agent = AgentJob(
        workspace,
        job,
        submit_lines=SUBMIT_LINES,
        when_to_transfer_output="ON_EXIT_OR_EVICT",
        options="--live-interval 2",
    )
    agent.wait_for_stderr()
    assert final_step(workspace) == 60
    executions = agent.events("agent.started")
    assert len(executions) > 1 and len({event.emitter for event in executions}) == len(executions)
    assert len({event.data["host"] for event in executions}) == 1
    outcomes = [event.data["outcome"] for event in agent.events("agent.ended")]
    assert outcomes == ["requeued"] * (len(executions) - 1) + ["succeeded"]
    restored = [event.data["step"] for event in agent.events("checkpoint.restored")]
    assert len(restored) == len(executions) - 1 and restored == sorted(set(restored))


def test_resume_elsewhere_after_eviction(workspace):
    gate = workspace.folder / "gate"
    job = make_training(
        workspace, "--steps", 30, "--pace", 0.05, "--wait-at", 20, "--gate", gate, min_interval_s=3600.0
    )
    agent = AgentJob(
        workspace,
        job,
        submit_lines=SUBMIT_LINES,
        when_to_transfer_output="ON_EXIT_OR_EVICT",
        options="--live-interval 2",
    )
    saved = agent.wait_for_user_log_event("checkpoint.saved")[0].data["step"]
    workspace.pool.run_as_user(["condor_vacate_job", "-constraint", agent.constraint])
    (restored, *_) = agent.wait_for_user_log_event("checkpoint.restored")
    assert restored.data["step"] >= saved
    gate.touch()
    agent.wait_for_stderr()
    assert final_step(workspace) == 30
    assert "\n004 (" in workspace.read_user_log()
    assert {event.data["site"] for event in agent.events("agent.started")} <= {site.name for site in SITES}
    assert len(agent.events("agent.started")) == 2, "the journal of the first execution was transferred as well"
