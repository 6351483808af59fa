"""Evictions between the end of an agent and the end of the job: nothing is lost, and the result is correct."""

from __future__ import annotations

import contextlib
import os
import re
import signal

import pytest

from tests.support.cli_runs import TIMEOUT_S
from tests.support.pool_trainings import PoolTraining

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-1"), pytest.mark.timeout(600)]

JOBS = 4
OUTPUT_BYTES = 20_000_000  # large enough that its transfer takes a moment
WORKFLOW = f"""
count: {JOBS}
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}}
limits: {{grace: 2s, disk: 100MB}}
steps: [{{run: {{command: "truncate -s {OUTPUT_BYTES} $PACKTRAIN_OUTPUT/model.bin; exit CODE"}}}}]
"""
AGENT_ENDED = re.compile(r"^008 \((\d+)\.(\d+)\.\d+\)(?:(?!^\.\.\.$).)*agent\.ended", re.MULTILINE | re.DOTALL)
EXECUTE = re.compile(r"^001 \(", re.MULTILINE)


def vacate_at_agent_end(workspace, fast=(), jobs=JOBS):
    """Vacate each job once, as soon as its agent has reported its end."""
    log, vacated = workspace.run_folder() / "htcondor/event.log", set()

    def vacate_ended():
        with contextlib.suppress(FileNotFoundError):
            for cluster, proc in AGENT_ENDED.findall(log.read_text()):
                name = f"{int(cluster)}.{int(proc)}"
                if name not in vacated:
                    vacated.add(name)
                    workspace.pool.run_as_user(["condor_vacate_job", *fast, name], check=False)
        return len(vacated) == jobs

    workspace.wait_for(vacate_ended)


@pytest.mark.parametrize("fast", [[], ["-fast"]])
@pytest.mark.parametrize(("code", "status", "expected"), [(0, "succeeded", 0), (3, "failed", 10)])
def test_evicted_after_agent_end(workspace, fast, code, status, expected):
    workspace.write_file(WORKFLOW.replace("CODE", str(code)))
    process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
    vacate_at_agent_end(workspace, fast)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == expected, out + err
    run = workspace.run_json("ps", workspace.run_folder().name)
    assert [job["status"] for job in run["jobs"]] == [status] * JOBS
    log = (workspace.run_folder() / "htcondor/event.log").read_text()
    if code:
        assert sum(len(job["executions"]) for job in run["jobs"]) == len(EXECUTE.findall(log)), (
            "every execution is shown"
        )
    else:
        models = list(workspace.run_folder().glob("jobs/*/output/model.bin"))
        assert [path.stat().st_size for path in models] == [OUTPUT_BYTES] * JOBS
    workspace.wait_for(lambda: workspace.pool.queue("true") == [])


def test_resume_in_other_cluster(workspace):
    """The agent is killed, so the attempt fails; the next attempt resumes from its checkpoint."""
    training = PoolTraining(workspace, max_attempts=2, wait_at=20)
    training.wait_for_step(10)
    training.wait_for_log("checkpoint.saved")
    os.kill(agent_pid(workspace.pool), signal.SIGKILL)
    training.open_gate()
    training.wait_for_exit()
    training.assert_succeeded()
    (job,) = workspace.run_json("ps", workspace.run_folder().name)["jobs"]
    first, second = job["executions"]
    assert (first["attempt"], second["attempt"]) == ("0-1", "0-2")
    assert first["native_id"].partition(".")[0] != second["native_id"].partition(".")[0]
    assert training.start_steps()[0] == 0 and training.start_steps()[1] > 0


def agent_pid(pool):
    return next(pid for pid, argv in pool.process_commands() if any(arg.endswith("agent.pyz") for arg in argv))


def test_training_evicted_after_agent_end(workspace):
    """Either all outputs had been transferred when the pool evicted it, or it resumes from its checkpoint."""
    training = PoolTraining(workspace, n_steps=30)
    vacate_at_agent_end(workspace, jobs=1)
    training.wait_for_exit()
    training.assert_succeeded()
    first, *later = training.start_steps()
    assert first == 0 and all(step > 0 for step in later)
    workspace.wait_for(lambda: workspace.pool.queue("true") == [])
