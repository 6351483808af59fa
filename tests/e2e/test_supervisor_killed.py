"""SIGKILL of packtrain, or of an agent, at each stage of a run: `ps` tells the truth, and the run comes home."""

from __future__ import annotations

import os
import signal
import tarfile

import pytest

from packtrain.events import kinds
from testbed.http_server import HttpServer
from tests.support.cli_runs import Workspace

pytestmark = pytest.mark.slow

STAGES = ("probe", "fetch", "unpack", "steps", "check", "sync", "clean")
WORKFLOW = """
name: survivor
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}}
limits: {{maxAttempts: 3, grace: 5s}}
input: {{http: {{url: "{url}/data.tar.gz"}}}}
expect: [{{path: result.txt, command: "sleep 0.3; grep -q data $PACKTRAIN_FILE"}}]
steps:
  - name: work
    run: {{command: "{wait}; cat $PACKTRAIN_INPUT/data/0.txt > $PACKTRAIN_OUTPUT/result.txt; echo done"}}
"""


@pytest.fixture
def desk(tmp_path):
    served = tmp_path / "served"
    (served / "data").mkdir(parents=True)
    for number in range(50):
        (served / "data" / f"{number}.txt").write_bytes(b"data" + os.urandom(20_000))
    with tarfile.open(served / "data.tar.gz", "w:gz") as archive:
        archive.add(served / "data", "data")
    with HttpServer(served, bytes_per_s=4_000_000) as origin:
        made = Workspace(tmp_path)
        made.write_file(WORKFLOW.format(url=origin.url, wait="sleep 0.5"))
        made.write_file(
            WORKFLOW.format(url=origin.url, wait=f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"), "gated.yaml"
        )
        yield made


def open_gate(desk):
    (desk.folder / "go").touch()


def one_job(desk):
    (run,) = desk.run_json("ps")
    (job,) = run["jobs"]
    return run, job


@pytest.mark.parametrize("stage", STAGES)
def test_supervisor_killed(desk, stage):
    packtrain = desk.start("run", "workflow.yaml")
    desk.wait_for_stage(stage)
    packtrain.kill()
    packtrain.communicate()
    run, job = one_job(desk)
    assert run["supervised"] is False
    assert run["status"] in ("orphaned", "succeeded")
    assert len(job["executions"]) == 1
    desk.run_json("resume")
    run, job = one_job(desk)
    assert (run["status"], job["status"]) == ("succeeded", "succeeded")
    assert len(job["executions"]) == 1, "the living agent was found again, not started anew"
    assert (desk.run_folder() / "jobs/0/output/result.txt").read_bytes().startswith(b"data")


@pytest.mark.parametrize("stage", STAGES)
def test_agent_killed(desk, stage):
    packtrain = desk.start("run", "workflow.yaml", "--json")
    desk.wait_for_stage(stage)
    desk.kill_agent()
    out, err = packtrain.communicate(timeout=60)
    assert packtrain.returncode == 0, out + err
    _, job = one_job(desk)
    assert job["status"] == "succeeded"
    ended = len(desk.read_events(kinds.AGENT_ENDED))
    if ended < len(job["executions"]):  # it did die before its last word
        assert job["executions"][0]["status"] == "lost"
        assert "SIGKILL" in job["executions"][0]["failure"]["detail"]
    assert not list(desk.run_folder().glob("jobs/*/attempts/*/sandbox")), "every sandbox is gone"


def test_both_killed(desk):
    packtrain = desk.start("run", "gated.yaml")
    desk.wait_for_stage("steps")
    packtrain.kill()
    packtrain.communicate()
    desk.kill_agent()
    desk.wait_for(lambda: one_job(desk)[1]["executions"][0]["status"] == "lost")
    open_gate(desk)
    desk.run_json("resume")
    _, job = one_job(desk)
    assert [a["status"] for a in job["executions"]] == ["lost", "succeeded"]
    assert not list(desk.run_folder().glob("jobs/*/attempts/*/sandbox"))


def test_second_supervisor_is_refused(desk):
    packtrain = desk.start("run", "gated.yaml")
    desk.wait_for_stage("steps")
    desk.run("resume", exit_code=3)
    assert "already has a supervisor" in desk.stderr
    open_gate(desk)
    out, err = packtrain.communicate(timeout=60)
    assert packtrain.returncode == 0, out + err
    assert len(desk.read_events(kinds.AGENT_STARTED)) == 1


def test_two_resumes_at_once_run_the_job_once(desk):
    packtrain = desk.start("run", "gated.yaml")
    desk.wait_for_stage("steps")
    packtrain.kill()
    packtrain.communicate()
    both = [desk.start("resume", "--json") for _ in range(2)]
    desk.wait_for(lambda: [process for process in both if process.poll() is not None])
    open_gate(desk)
    for process in both:
        process.communicate(timeout=60)
    assert sorted(process.returncode for process in both) == [0, 3]
    assert len(desk.read_events(kinds.AGENT_STARTED)) == 1


def test_interrupted_run_says_how_to_resume_and_resumes(desk):
    packtrain = desk.start("run", "gated.yaml")
    desk.wait_for_stage("steps")
    packtrain.send_signal(signal.SIGINT)
    out, err = packtrain.communicate(timeout=60)
    assert packtrain.returncode == 130
    assert "packtrain resume" in out
    assert "stopping" in err
    run, job = one_job(desk)
    assert (run["status"], job["status"]) == ("interrupted", "waiting")
    assert not list(desk.run_folder().glob("jobs/*/attempts/*/sandbox"))
    open_gate(desk)
    desk.run_json("resume")
    assert one_job(desk)[0]["status"] == "succeeded"


def test_detached_run_goes_on_by_itself(desk):
    started = desk.run_json("run", "workflow.yaml", "--detach")
    assert os.getsid(started["pid"]) != os.getsid(0)
    desk.run("ps", "-w")
    assert one_job(desk)[0]["status"] == "succeeded"


@pytest.mark.parametrize("supervised", [True, False])
def test_cancel(desk, supervised):
    packtrain = desk.start("run", "gated.yaml")
    desk.wait_for_stage("steps")
    if not supervised:
        packtrain.kill()
        packtrain.communicate()
    desk.run_json("cancel", "--reason", "enough")
    if supervised:
        packtrain.communicate(timeout=60)
        assert packtrain.returncode == 130
    run, job = one_job(desk)
    assert (run["status"], job["status"]) == ("cancelled", "cancelled")
    assert "enough" in desk.run("why")
    open_gate(desk)
    desk.run_json("resume")
    assert one_job(desk)[0]["status"] == "succeeded"


PAIR = """
name: pair
count: 2
resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}
limits: {grace: 5s}
output: {file: {path: "out/{job}"}}
steps: [{run: {command: "until [ -e GATE ]; do sleep 0.05; done"}}]
"""


def test_one_job_of_an_unattended_run_is_cancelled_and_the_other_lives(desk):
    desk.write_file(PAIR.replace("GATE", str(desk.folder / "go")), "pair.yaml")
    packtrain = desk.start("run", "pair.yaml")
    desk.wait_for(lambda: len(desk.read_events(kinds.STEP_STARTED)) == 2)
    packtrain.kill()
    packtrain.communicate()
    (run,) = desk.run_json("ps")
    desk.run_json("cancel", f"{run['run']}.1")
    (run,) = desk.run_json("ps")
    assert [job["status"] for job in run["jobs"]] == ["running", "cancelled"]
    open_gate(desk)
    desk.run_json("resume")
    (run,) = desk.run_json("ps")
    assert [job["status"] for job in run["jobs"]] == ["succeeded", "succeeded"]
    assert [len(job["executions"]) for job in run["jobs"]] == [1, 2]
