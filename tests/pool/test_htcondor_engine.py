"""The packtrain commands on a real pool, also when daemons or supervisors die."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from testbed.http_server import HttpServer
from tests.support.cli_runs import TIMEOUT_S

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-1"), pytest.mark.timeout(600)]

HEAD = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}\nlimits: {grace: 2s, disk: 10MB}\n"
QUICK = HEAD + "steps: [{name: train, run: {command: 'echo hello; echo {job} > $DEEPSQUARE_OUTPUT/model.txt'}}]\n"
# Waits until the test creates a file; all sites are on this machine.
GATED = HEAD + (
    "steps: [{name: train, run: {command: 'echo started; until [ -e GATE ]; do sleep 0.1; done; "
    "echo done > $DEEPSQUARE_OUTPUT/model.txt'}}]\n"
)


def write_gated_workflow(desk, more: str = "", name: str = "gate") -> Path:
    gate = desk.folder / name
    desk.write_file(GATED.replace("GATE", str(gate)) + more)
    return gate


def read_job(desk, run: str = "") -> dict:
    return desk.run_json("ps", run or desk.run_json("ps")[-1]["run"])["jobs"][0]


def wait_until_running(desk) -> dict:
    """Wait until an agent of the newest run is in the stage `steps`, and return the run."""

    def find_running():
        runs = desk.run_json("ps")
        jobs = runs[-1]["jobs"] if runs else []
        return runs[-1] if any(e["stage"] == "steps" for job in jobs for e in job["executions"]) else None

    return desk.wait_for(find_running)


def attempt_ids(desk, run: str) -> list[str]:
    """Return the ids of all attempts of a run."""
    return sorted({execution["attempt"] for job in desk.run_json("ps", run)["jobs"] for execution in job["executions"]})


def supervisor_pid(pool, run: str) -> int:
    """Return the process id in the namespace of the tests, which is not that of the pool."""
    return next(pid for pid, argv in pool.process_commands() if "--in-schedd" in argv and run in argv)


def test_three_jobs(desk):
    (desk.folder / "data.txt").write_text("12345")
    desk.write_file(
        "name: three\ncount: 3\ninput: {file: {path: data.txt}}\nexpect: [{path: model.txt}]\n"
        + QUICK.replace("echo hello", "cat $DEEPSQUARE_INPUT/data.txt")
    )
    result = desk.run_json("run", "workflow.yaml", "--on", "htcondor")
    assert result["status"] == "succeeded"
    run = desk.run_json("ps", result["run"])
    assert [job["status"] for job in run["jobs"]] == ["succeeded"] * 3
    sites = {execution["site"] for job in run["jobs"] for execution in job["executions"]}
    assert sites <= {site.name for site in desk.pool.sites}
    assert desk.run("logs", f"{result['run']}.1").strip() == "12345"
    outputs = desk.run_json("outputs", result["run"])
    assert [(output["job"], output["name"]) for output in outputs] == [(str(n), "model.txt") for n in range(3)]
    assert (desk.run_folder() / "jobs/2/output/model.txt").read_text() == "2\n"
    assert "the job succeeded" in desk.run("why", result["run"])
    dry_run = desk.pool.run_as_user(["condor_submit", "-dry-run", "-", str(desk.run_folder() / "htcondor/0-1.sub")])
    assert 'PacktrainAttempt="0-1"' in dry_run.stdout
    assert desk.pool.queue("true") == []


def test_failing_step(desk):
    desk.write_file(HEAD + "steps: [{name: train, run: {command: 'echo oh no >&2; exit 3'}}]\n")
    desk.run("run", "workflow.yaml", "--on", "htcondor", exit_code=10)
    why = desk.run("why")
    assert "ended with exit code 3" in why and "oh no" in why


def test_retry_has_its_own_cluster(desk):
    marker = desk.folder / "marker"
    # The step kills its own agent once.
    desk.write_file(HEAD.replace("grace: 2s", "grace: 2s, maxAttempts: 2") + _FAILS_ONCE.format(marker=marker))
    desk.run("run", "workflow.yaml", "--on", "htcondor")
    first, second = read_job(desk)["executions"]
    assert (first["attempt"], first["status"]) == ("0-1", "lost")
    assert (second["attempt"], second["status"]) == ("0-2", "succeeded")
    assert first["native_id"].partition(".")[0] != second["native_id"].partition(".")[0]


_FAILS_ONCE = (
    "steps: [{{name: train, run: {{command: 'if [ -e {marker} ]; then exit 0; fi; touch {marker}; "
    "kill -9 $PPID; sleep 9'}}}}]\n"
)


def test_eviction_gives_two_executions(desk):
    gate = write_gated_workflow(desk)
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    run = wait_until_running(desk)
    desk.pool.run_as_user(["condor_vacate_job", run["jobs"][0]["executions"][0]["native_id"]])
    desk.wait_for(lambda: len(read_job(desk)["executions"]) == 2)
    gate.touch()
    assert process.wait(TIMEOUT_S) == 0
    first, second = read_job(desk)["executions"]
    assert (first["attempt"], first["execution"], first["status"]) == ("0-1", 1, "failed")
    assert (second["attempt"], second["execution"], second["status"]) == ("0-1", 2, "succeeded")
    assert first["failure"]["kind"] == "evicted"
    process.communicate()


def test_resume_after_supervisor_was_killed(desk):
    gate = write_gated_workflow(desk, "count: 2\n")
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    run = wait_until_running(desk)["run"]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    gate.touch()
    result = desk.run_json("resume", run)
    assert result["status"] == "succeeded"
    assert attempt_ids(desk, run) == ["0-1", "1-1"], "recovered, not started again"


def test_end_without_supervisor_is_found(desk):
    gate = write_gated_workflow(desk)
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    run = wait_until_running(desk)["run"]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    gate.touch()
    desk.wait_for(lambda: desk.pool.queue("true") == [])
    assert desk.run_json("ps", run)["jobs"][0]["executions"][0]["status"] == "succeeded"
    assert desk.run_json("resume", run)["status"] == "succeeded"
    assert attempt_ids(desk, run) == ["0-1"]


def test_cancelled_run_is_resumed(desk):
    gate = write_gated_workflow(desk, "count: 2\n")
    run = desk.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    wait_until_running(desk)
    desk.run("cancel", run)
    assert {job["status"] for job in desk.run_json("ps", run)["jobs"]} == {"cancelled"}
    desk.wait_for(lambda: desk.pool.queue("true") == [])
    gate.touch()
    assert desk.run_json("resume", run)["status"] == "succeeded"
    assert attempt_ids(desk, run) == ["0-1", "0-2", "1-1", "1-2"]


def test_cancel_unmaterialized_job(desk):
    gate = write_gated_workflow(desk, "count: 5\nhtcondor: {max_materialize: 1}\n", "gate-{job}")
    run = desk.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    wait_until_running(desk)
    desk.run("cancel", f"{run}.2")
    desk.run("cancel", f"{run}.4")
    for job in (0, 1, 3):
        gate.with_name(f"gate-{job}").touch()
    desk.wait_for(lambda: desk.run_json("ps", run)["status"] != "running")
    statuses = [job["status"] for job in desk.run_json("ps", run)["jobs"]]
    assert statuses == ["succeeded", "succeeded", "cancelled", "succeeded", "cancelled"]
    desk.wait_for(lambda: desk.pool.queue("true") == [])  # the gates of the cancelled jobs stay closed


def test_why_cluster_is_paused(desk):
    gate = write_gated_workflow(desk, "count: 2\nhtcondor: {max_materialize: 1}\n")
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    run = wait_until_running(desk)
    cluster = run["jobs"][0]["executions"][0]["native_id"].partition(".")[0]
    desk.pool.run_as_user(["condor_hold", cluster])
    desk.wait_for(lambda: "the schedd has paused the cluster" in desk.run("why", f"{run['run']}.1", exit_code=None))
    gate.touch()
    desk.pool.run_as_user(["condor_release", cluster])
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()


def test_detached_supervisor_is_restarted(desk):
    gate = write_gated_workflow(desk)
    run = desk.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    wait_until_running(desk)
    os.kill(supervisor_pid(desk.pool, run), signal.SIGKILL)
    desk.wait_for(lambda: desk.pool.queue("JobUniverse == 7 && NumJobStarts > 1", "ClusterId"))
    gate.touch()
    desk.wait_for(lambda: desk.run_json("ps", run)["status"] == "succeeded")
    assert attempt_ids(desk, run) == ["0-1"]


def test_detached_supervisor_outlives_schedd(desk):
    gate = write_gated_workflow(desk)
    run = desk.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    wait_until_running(desk)
    desk.pool.kill_daemon("schedd")
    desk.pool.wait_until_up()
    desk.wait_for(lambda: desk.pool.queue("JobUniverse == 7 && NumJobStarts > 1", "ClusterId"))
    gate.touch()
    desk.wait_for(lambda: desk.run_json("ps", run)["status"] == "succeeded")
    assert attempt_ids(desk, run) == ["0-1"]
    desk.wait_for(lambda: desk.pool.queue("true") == [])


def test_condor_rm_of_supervisor_removes_jobs(desk):
    write_gated_workflow(desk, "count: 2\n")
    run = desk.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    wait_until_running(desk)
    (supervisor,) = desk.pool.queue("JobUniverse == 7", "ClusterId")
    desk.pool.run_as_user(["condor_rm", str(supervisor["ClusterId"])])
    desk.wait_for(lambda: desk.pool.queue("true") == [])
    desk.wait_for(lambda: desk.run_json("ps", run)["status"] == "interrupted")
    assert not any(job["status"] == "succeeded" for job in desk.run_json("ps", run)["jobs"])


def test_second_supervisor_is_rejected(desk):
    gate = write_gated_workflow(desk)
    run = desk.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    wait_until_running(desk)
    desk.run("resume", run, exit_code=3)
    assert "already has a supervisor" in desk.stderr
    gate.touch()
    desk.wait_for(lambda: desk.run_json("ps", run)["status"] == "succeeded")


def test_job_held_by_user(desk):
    gate = write_gated_workflow(desk)
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    native_id = wait_until_running(desk)["jobs"][0]["executions"][0]["native_id"]
    desk.pool.run_as_user(["condor_hold", native_id])
    desk.wait_for(lambda: read_job(desk)["status"] == "held")
    assert "via condor_hold" in desk.run("why")
    gate.touch()
    desk.pool.run_as_user(["condor_release", native_id])
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()
    assert read_job(desk)["status"] == "succeeded"


def test_job_removed_by_user(desk):
    write_gated_workflow(desk)
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    native_id = wait_until_running(desk)["jobs"][0]["executions"][0]["native_id"]
    desk.pool.run_as_user(["condor_rm", native_id])
    assert process.wait(TIMEOUT_S) != 0
    process.communicate()
    assert len(read_job(desk)["executions"]) == 1


def test_rejected_submission(desk):
    desk.write_file(QUICK + "htcondor: {request_memory: 'not a number at all ('}\n")
    desk.run("run", "workflow.yaml", "--on", "htcondor", exit_code=20)
    assert "HTCondor rejected the submission" in desk.run("why")


@pytest.mark.parametrize("limit", ["MAX_JOBS_SUBMITTED", "MAX_JOBS_PER_OWNER"])
def test_schedd_limit_is_retried(desk, limit):
    desk.write_file(QUICK)
    with desk.pool.override_config(**{limit: 0}):
        process = desk.start("run", "workflow.yaml", "--on", "htcondor")
        desk.run_folder()
        desk.wait_for(lambda: "does not accept jobs at the moment" in desk.run("why", exit_code=None))
        assert process.poll() is None
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()
    assert attempt_ids(desk, desk.run_json("ps")[-1]["run"]) == ["0-1"]


def test_doctor(desk):
    """All checks of `packtrain doctor` pass on this pool."""
    results = [result for result in desk.run_json("doctor", exit_code=None) if result["name"] == "htcondor"]
    assert [result["status"] for result in results] == ["ok"] * len(results), results
    details = " ".join(result["detail"] for result in results)
    assert "the queue can be queried" in details and "MAX_TRANSFER_INPUT_MB" in details and "Chirp" in details


def test_too_large_local_input(desk):
    with open(desk.folder / "big.bin", "wb") as file:
        file.truncate(6 * 10**9)
    desk.write_file("input: {file: {path: big.bin}, unpack: never}\n" + QUICK)
    with desk.pool.override_config(MAX_TRANSFER_INPUT_MB=5000):
        desk.run("run", "workflow.yaml", "--on", "htcondor", exit_code=2)
        assert "send 6 GB to each job, but sends at most 5.2 GB" in desk.stderr
        assert "transfer: agent" in desk.stderr
        assert desk.run_json("ps") == []


def test_missing_input(desk):
    with HttpServer(desk.folder / "origin") as origin:
        desk.write_file(f"input: {{http: {{url: '{origin.url}/nothing.tar'}}}}\n" + QUICK)
        desk.run("run", "workflow.yaml", "--on", "htcondor", exit_code=2)
    assert "no job could fetch this input" in desk.stderr
    assert desk.run_json("ps") == []


def test_live_metrics(desk):
    gate = desk.folder / "gate"
    log_metrics = 'echo "{\\"epoch\\": 2, \\"epochs\\": 5, \\"loss\\": 0.5}" >> $PACKTRAIN_METRICS'
    desk.write_file(
        HEAD
        + f"steps:\n  - name: train\n    run:\n      command: |\n        {log_metrics}\n"
        + f"        until [ -e {gate} ]; do sleep 0.1; done\n"
    )
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    desk.wait_for(lambda: (runs := desk.run_json("ps")) and runs[-1]["jobs"][0]["metrics"].get("loss") == 0.5)
    gate.touch()
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()


def test_run_without_chirp(desk):
    """There is no live progress, but the log and the journals suffice, also after an eviction."""
    gate = write_gated_workflow(desk, "expect: [model.txt]\n")
    with desk.pool.override_config(ENABLE_CHIRP="False"):
        process = desk.start("run", "workflow.yaml", "--on", "htcondor")
        desk.wait_for(lambda: (runs := desk.run_json("ps")) and runs[-1]["jobs"][0]["status"] == "running")
        native_id = read_job(desk)["executions"][0]["native_id"]
        desk.wait_for(lambda: list(desk.pool.folder.glob("execute/*/dir_*/scratch/logs/train.out")))
        desk.pool.run_as_user(["condor_vacate_job", native_id])
        desk.wait_for(lambda: len(read_job(desk)["executions"]) == 2)
        gate.touch()
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, out + err
    log = (desk.run_folder() / "htcondor/event.log").read_text()
    assert "\n008 (" not in log, "no event was sent by Chirp"
    first, second = read_job(desk)["executions"]
    assert (first["status"], first["failure"]["kind"], second["status"]) == ("failed", "evicted", "succeeded")
    assert "started" in desk.run("logs") and second["stages"]["steps"] > 0, "the journal was returned"
    assert "steps" in out.partition("where the time went")[2]


def test_user_settings(desk):
    config = desk.write_file(
        "htcondor: {project: Vision, jobLeaseDuration: 2h, submitCommands: {+Mine: 7}}\n", "config.yaml"
    )
    desk.environment["PACKTRAIN_CONFIG"] = str(config)
    desk.write_file(QUICK)
    run = desk.run_json("run", "workflow.yaml", "--on", "htcondor")["run"]
    (ad,) = desk.pool.history(f'PacktrainRun == "{run}"', "ProjectName", "JobLeaseDuration", "Mine")
    assert (ad["ProjectName"], ad["JobLeaseDuration"], ad["Mine"]) == ("Vision", 7200, 7)
    config.write_text("htcondor: {projekt: x}\n")
    desk.run("run", "workflow.yaml", "--on", "htcondor", exit_code=2)
    assert "has no key 'projekt'; did you mean 'project'?" in desk.stderr


def test_dry_run_json(desk):
    desk.write_file(QUICK)
    plan = json.loads(desk.run("run", "workflow.yaml", "--on", "htcondor", "--dry-run", "--json"))
    assert plan["engine"] == "htcondor"
    assert desk.run_json("ps") == []


def test_cancel_while_schedd_is_down(desk):
    write_gated_workflow(desk)
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    run = wait_until_running(desk)["run"]
    desk.pool.run_as_user(["condor_off", "-fast", "-daemon", "schedd"])
    desk.wait_for(lambda: not list(desk.pool.find_processes("schedd")))
    desk.run("cancel", run, "--no-wait")
    desk.pool.run_as_user(["condor_on", "-daemon", "schedd"])
    assert process.wait(TIMEOUT_S) == 130
    process.communicate()
    assert [job["status"] for job in desk.run_json("ps", run)["jobs"]] == ["cancelled"]
    desk.wait_for(lambda: desk.pool.queue("true") == [])
