"""SIGKILL of packtrain or of an agent at each stage of a run: `ps` is correct, and the run succeeds after `resume`."""

from __future__ import annotations

import contextlib
import os
import signal
import tarfile

import pytest

from packtrain.events import kinds
from testbed.http_server import HttpServer
from tests.support.cli_runs import TIMEOUT_S, Workspace

pytestmark = pytest.mark.slow

STAGES = ("probe", "fetch", "unpack", "steps", "check", "sync", "clean")
UNGATED_STAGES = ("sync", "clean")  # an agent in these stages may end before it is killed
WORKFLOW = """
name: survivor
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}}
limits: {{maxAttempts: 3, grace: 5s}}
input: {{http: {{url: "{url}/data.tar.gz"}}}}
expect: [{{path: result.txt, command: "{check}; grep -q data $PACKTRAIN_FILE"}}]
steps:
  - name: work
    run: {{command: "{wait}; cat $PACKTRAIN_INPUT/data/0.txt > $PACKTRAIN_OUTPUT/result.txt; echo done"}}
"""


@pytest.fixture
def workspace(tmp_path):
    served = tmp_path / "served"
    (served / "data").mkdir(parents=True)
    for number in range(50):
        (served / "data" / f"{number}.txt").write_bytes(b"data" + os.urandom(20_000))
    with tarfile.open(served / "data.tar.gz", "w:gz") as archive:
        archive.add(served / "data", "data")
    with HttpServer(served, bytes_per_s=4_000_000) as origin:
        created = Workspace(tmp_path)
        created.write_file(WORKFLOW.format(url=origin.url, wait="sleep 0.5", check="sleep 0.3"))
        gates = [f"until [ -e {tmp_path}/go-{stage} ]; do sleep 0.05; done" for stage in ("steps", "check")]
        created.write_file(WORKFLOW.format(url=origin.url, wait=gates[0], check=gates[1]), "gated.yaml")
        yield created


def open_gate(workspace, *stages):
    """Let jobs of gated.yaml pass these stages, or all."""
    for stage in stages or ("steps", "check"):
        (workspace.folder / f"go-{stage}").touch()


def get_job(workspace):
    (run,) = workspace.run_json("ps")
    (job,) = run["jobs"]
    return run, job


@pytest.mark.parametrize("stage", STAGES)
def test_supervisor_killed(workspace, stage):
    packtrain = workspace.start("run", "workflow.yaml")
    workspace.wait_for_stage(stage)
    packtrain.kill()
    packtrain.communicate()
    run, job = get_job(workspace)
    assert run["supervised"] is False
    assert run["status"] in ("orphaned", "succeeded")
    assert len(job["executions"]) == 1
    workspace.run_json("resume")
    run, job = get_job(workspace)
    assert (run["status"], job["status"]) == ("succeeded", "succeeded")
    assert len(job["executions"]) == 1, "the live agent was found again, not restarted"
    assert (workspace.run_folder() / "jobs/0/output/result.txt").read_bytes().startswith(b"data")


@pytest.mark.parametrize("stage", STAGES)
def test_agent_killed(workspace, stage):
    packtrain = workspace.start("run", "gated.yaml", "--json")
    if stage in ("check", *UNGATED_STAGES):
        open_gate(workspace, "steps")
    if stage in UNGATED_STAGES:
        open_gate(workspace, "check")
    workspace.wait_for_stage(stage)
    with contextlib.suppress(ProcessLookupError) if stage in UNGATED_STAGES else contextlib.nullcontext():
        workspace.kill_agent()
    open_gate(workspace)
    out, err = packtrain.communicate(timeout=TIMEOUT_S)
    assert packtrain.returncode == 0, out + err
    _, job = get_job(workspace)
    assert job["status"] == "succeeded"
    if stage in UNGATED_STAGES and len(workspace.read_events(kinds.AGENT_ENDED)) == len(job["executions"]):
        assert len(job["executions"]) == 1, "it had reported its end before it was killed"
    else:
        assert [execution["status"] for execution in job["executions"]] == ["lost", "succeeded"]
        assert "SIGKILL" in job["executions"][0]["failure"]["detail"]
    assert not list(workspace.run_folder().glob("jobs/*/attempts/*/sandbox")), "every sandbox is gone"


def test_both_killed(workspace):
    packtrain = workspace.start("run", "gated.yaml")
    workspace.wait_for_stage("steps")
    packtrain.kill()
    packtrain.communicate()
    workspace.kill_agent()
    workspace.wait_for(lambda: get_job(workspace)[1]["executions"][0]["status"] == "lost")
    open_gate(workspace)
    workspace.run_json("resume")
    _, job = get_job(workspace)
    assert [e["status"] for e in job["executions"]] == ["lost", "succeeded"]
    assert not list(workspace.run_folder().glob("jobs/*/attempts/*/sandbox"))


def test_second_supervisor_is_rejected(workspace):
    packtrain = workspace.start("run", "gated.yaml")
    workspace.wait_for_stage("steps")
    workspace.run("resume", exit_code=3)
    assert "already has a supervisor" in workspace.stderr
    open_gate(workspace)
    out, err = packtrain.communicate(timeout=TIMEOUT_S)
    assert packtrain.returncode == 0, out + err
    assert len(workspace.read_events(kinds.AGENT_STARTED)) == 1


def test_two_resumes_at_once_run_the_job_once(workspace):
    packtrain = workspace.start("run", "gated.yaml")
    workspace.wait_for_stage("steps")
    packtrain.kill()
    packtrain.communicate()
    both = [workspace.start("resume", "--json") for _ in range(2)]
    workspace.wait_for(lambda: [process for process in both if process.poll() is not None])
    open_gate(workspace)
    for process in both:
        process.communicate(timeout=TIMEOUT_S)
    assert sorted(process.returncode for process in both) == [0, 3]
    assert len(workspace.read_events(kinds.AGENT_STARTED)) == 1


def test_interrupted_run_resumes(workspace):
    packtrain = workspace.start("run", "gated.yaml")
    workspace.wait_for_stage("steps")
    packtrain.send_signal(signal.SIGINT)
    out, err = packtrain.communicate(timeout=TIMEOUT_S)
    assert packtrain.returncode == 130
    assert "packtrain resume" in out
    assert "stopping" in err
    run, job = get_job(workspace)
    assert (run["status"], job["status"]) == ("interrupted", "waiting")
    assert not list(workspace.run_folder().glob("jobs/*/attempts/*/sandbox"))
    open_gate(workspace)
    workspace.run_json("resume")
    assert get_job(workspace)[0]["status"] == "succeeded"


def test_detached_run_finishes(workspace):
    started = workspace.run_json("run", "workflow.yaml", "--detach")
    assert os.getsid(started["pid"]) != os.getsid(0)
    workspace.run("ps", "-w")
    assert get_job(workspace)[0]["status"] == "succeeded"


@pytest.mark.parametrize("supervised", [True, False])
def test_cancel(workspace, supervised):
    packtrain = workspace.start("run", "gated.yaml")
    workspace.wait_for_stage("steps")
    if not supervised:
        packtrain.kill()
        packtrain.communicate()
    workspace.run_json("cancel", "--reason", "enough")
    if supervised:
        packtrain.communicate(timeout=TIMEOUT_S)
        assert packtrain.returncode == 130
    run, job = get_job(workspace)
    assert (run["status"], job["status"]) == ("cancelled", "cancelled")
    assert "enough" in workspace.run("why")
    open_gate(workspace)
    workspace.run_json("resume")
    assert get_job(workspace)[0]["status"] == "succeeded"


PAIR = """
name: pair
count: 2
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
limits: {grace: 5s}
output: {file: {path: "out/{job}"}}
steps: [{run: {command: "until [ -e GATE ]; do sleep 0.05; done"}}]
"""


def test_cancel_one_job_of_orphaned_run(workspace):
    workspace.write_file(PAIR.replace("GATE", str(workspace.folder / "go-steps")), "pair.yaml")
    packtrain = workspace.start("run", "pair.yaml")
    workspace.wait_for(lambda: len(workspace.read_events(kinds.STEP_STARTED)) == 2)
    packtrain.kill()
    packtrain.communicate()
    (run,) = workspace.run_json("ps")
    workspace.run_json("cancel", f"{run['run']}.1")
    (run,) = workspace.run_json("ps")
    assert [job["status"] for job in run["jobs"]] == ["running", "cancelled"]
    open_gate(workspace)
    workspace.run_json("resume")
    (run,) = workspace.run_json("ps")
    assert [job["status"] for job in run["jobs"]] == ["succeeded", "succeeded"]
    assert [len(job["executions"]) for job in run["jobs"]] == [1, 2]
