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


def write_gated_workflow(workspace, more: str = "", name: str = "gate") -> Path:
    gate = workspace.folder / name
    workspace.write_file(GATED.replace("GATE", str(gate)) + more)
    return gate


def read_job(workspace, run: str = "") -> dict:
    return workspace.run_json("ps", run or workspace.run_json("ps")[-1]["run"])["jobs"][0]


def wait_until_running(workspace) -> dict:
    """Wait until an agent of the newest run is in the stage `steps`, and return the run."""

    def find_running():
        runs = workspace.run_json("ps")
        jobs = runs[-1]["jobs"] if runs else []
        return runs[-1] if any(e["stage"] == "steps" for job in jobs for e in job["executions"]) else None

    return workspace.wait_for(find_running)


def attempt_ids(workspace, run: str) -> list[str]:
    """Return the ids of all attempts of a run."""
    return sorted(
        {execution["attempt"] for job in workspace.run_json("ps", run)["jobs"] for execution in job["executions"]}
    )


def supervisor_pid(pool, run: str) -> int:
    """Return the process id in the namespace of the tests, which is not that of the pool."""
    return next(pid for pid, argv in pool.process_commands() if "--in-job" in argv and run in argv)


def test_three_jobs(workspace):
    (workspace.folder / "data.txt").write_text("12345")
    workspace.write_file(
        "name: three\ncount: 3\ninput: {file: {path: data.txt}}\nexpect: [{path: model.txt}]\n"
        + QUICK.replace("echo hello", "cat $DEEPSQUARE_INPUT/data.txt")
    )
    result = workspace.run_json("run", "workflow.yaml", "--on", "htcondor")
    assert result["status"] == "succeeded"
    run = workspace.run_json("ps", result["run"])
    assert [job["status"] for job in run["jobs"]] == ["succeeded"] * 3
    sites = {execution["site"] for job in run["jobs"] for execution in job["executions"]}
    assert sites <= {site.name for site in workspace.pool.sites}
    assert workspace.run("logs", f"{result['run']}.1").strip() == "12345"
    outputs = workspace.run_json("outputs", result["run"])
    assert [(output["job"], output["name"]) for output in outputs] == [(str(n), "model.txt") for n in range(3)]
    assert (workspace.run_folder() / "jobs/2/output/model.txt").read_text() == "2\n"
    assert "the job succeeded" in workspace.run("why", result["run"])
    dry_run = workspace.pool.run_as_user(
        ["condor_submit", "-dry-run", "-", str(workspace.run_folder() / "htcondor/0-1.sub")]
    )
    assert 'PacktrainAttempt="0-1"' in dry_run.stdout
    assert workspace.pool.queue("true") == []


def test_failing_step(workspace):
    workspace.write_file(HEAD + "steps: [{name: train, run: {command: 'echo oh no >&2; exit 3'}}]\n")
    workspace.run("run", "workflow.yaml", "--on", "htcondor", exit_code=10)
    why = workspace.run("why")
    assert "ended with exit code 3" in why and "oh no" in why


def test_retry_has_its_own_cluster(workspace):
    marker = workspace.folder / "marker"
    # The step kills its own agent once.
    workspace.write_file(HEAD.replace("grace: 2s", "grace: 2s, maxAttempts: 2") + _FAILS_ONCE.format(marker=marker))
    workspace.run("run", "workflow.yaml", "--on", "htcondor")
    first, second = read_job(workspace)["executions"]
    assert (first["attempt"], first["status"]) == ("0-1", "lost")
    assert (second["attempt"], second["status"]) == ("0-2", "succeeded")
    assert first["native_id"].partition(".")[0] != second["native_id"].partition(".")[0]


_FAILS_ONCE = (
    "steps: [{{name: train, run: {{command: 'if [ -e {marker} ]; then exit 0; fi; touch {marker}; "
    "kill -9 $PPID; sleep 9'}}}}]\n"
)


def test_eviction_gives_two_executions(workspace):
    gate = write_gated_workflow(workspace)
    process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
    run = wait_until_running(workspace)
    workspace.pool.run_as_user(["condor_vacate_job", run["jobs"][0]["executions"][0]["native_id"]])
    workspace.wait_for(lambda: len(read_job(workspace)["executions"]) == 2)
    gate.touch()
    assert process.wait(TIMEOUT_S) == 0
    first, second = read_job(workspace)["executions"]
    assert (first["attempt"], first["execution"], first["status"]) == ("0-1", 1, "failed")
    assert (second["attempt"], second["execution"], second["status"]) == ("0-1", 2, "succeeded")
    assert first["failure"]["kind"] == "evicted"
    process.communicate()


def test_resume_after_supervisor_was_killed(workspace):
    gate = write_gated_workflow(workspace, "count: 2\n")
    process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
    run = wait_until_running(workspace)["run"]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    gate.touch()
    result = workspace.run_json("resume", run)
    assert result["status"] == "succeeded"
    assert attempt_ids(workspace, run) == ["0-1", "1-1"], "recovered, not started again"


def test_end_without_supervisor_is_found(workspace):
    gate = write_gated_workflow(workspace)
    process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
    run = wait_until_running(workspace)["run"]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    gate.touch()
    workspace.wait_for(lambda: workspace.pool.queue("true") == [])
    assert workspace.run_json("ps", run)["jobs"][0]["executions"][0]["status"] == "succeeded"
    assert workspace.run_json("resume", run)["status"] == "succeeded"
    assert attempt_ids(workspace, run) == ["0-1"]


def test_cancelled_run_is_resumed(workspace):
    gate = write_gated_workflow(workspace, "count: 2\n")
    run = workspace.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    wait_until_running(workspace)
    workspace.run("cancel", run)
    assert {job["status"] for job in workspace.run_json("ps", run)["jobs"]} == {"cancelled"}
    workspace.wait_for(lambda: workspace.pool.queue("true") == [])
    gate.touch()
    assert workspace.run_json("resume", run)["status"] == "succeeded"
    assert attempt_ids(workspace, run) == ["0-1", "0-2", "1-1", "1-2"]


def test_cancel_unmaterialized_job(workspace):
    gate = write_gated_workflow(workspace, "count: 5\nhtcondor: {max_materialize: 1}\n", "gate-{job}")
    run = workspace.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    wait_until_running(workspace)
    workspace.run("cancel", f"{run}.2")
    workspace.run("cancel", f"{run}.4")
    for job in (0, 1, 3):
        gate.with_name(f"gate-{job}").touch()
    workspace.wait_for(lambda: workspace.run_json("ps", run)["status"] != "running")
    statuses = [job["status"] for job in workspace.run_json("ps", run)["jobs"]]
    assert statuses == ["succeeded", "succeeded", "cancelled", "succeeded", "cancelled"]
    workspace.wait_for(lambda: workspace.pool.queue("true") == [])  # the gates of the cancelled jobs stay closed


def test_why_cluster_is_paused(workspace):
    gate = write_gated_workflow(workspace, "count: 2\nhtcondor: {max_materialize: 1}\n")
    process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
    run = wait_until_running(workspace)
    cluster = run["jobs"][0]["executions"][0]["native_id"].partition(".")[0]
    workspace.pool.run_as_user(["condor_hold", cluster])
    workspace.wait_for(
        lambda: "the schedd has paused the cluster" in workspace.run("why", f"{run['run']}.1", exit_code=None)
    )
    gate.touch()
    workspace.pool.run_as_user(["condor_release", cluster])
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()


def test_detached_supervisor_is_restarted(workspace):
    gate = write_gated_workflow(workspace)
    run = workspace.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    wait_until_running(workspace)
    os.kill(supervisor_pid(workspace.pool, run), signal.SIGKILL)
    workspace.wait_for(lambda: workspace.pool.queue("JobUniverse == 7 && NumJobStarts > 1", "ClusterId"))
    gate.touch()
    workspace.wait_for(lambda: workspace.run_json("ps", run)["status"] == "succeeded")
    assert attempt_ids(workspace, run) == ["0-1"]


def test_detached_supervisor_outlives_schedd(workspace):
    gate = write_gated_workflow(workspace)
    run = workspace.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    wait_until_running(workspace)
    workspace.pool.kill_daemon("schedd")
    workspace.pool.wait_until_up()
    workspace.wait_for(lambda: workspace.pool.queue("JobUniverse == 7 && NumJobStarts > 1", "ClusterId"))
    gate.touch()
    workspace.wait_for(lambda: workspace.run_json("ps", run)["status"] == "succeeded")
    assert attempt_ids(workspace, run) == ["0-1"]
    workspace.wait_for(lambda: workspace.pool.queue("true") == [])


def test_condor_rm_of_supervisor_removes_jobs(workspace):
    write_gated_workflow(workspace, "count: 2\n")
    run = workspace.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    wait_until_running(workspace)
    (supervisor,) = workspace.pool.queue("JobUniverse == 7", "ClusterId")
    workspace.pool.run_as_user(["condor_rm", str(supervisor["ClusterId"])])
    workspace.wait_for(lambda: workspace.pool.queue("true") == [])
    workspace.wait_for(lambda: workspace.run_json("ps", run)["status"] == "interrupted")
    assert not any(job["status"] == "succeeded" for job in workspace.run_json("ps", run)["jobs"])


def test_second_supervisor_is_rejected(workspace):
    gate = write_gated_workflow(workspace)
    run = workspace.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    wait_until_running(workspace)
    workspace.run("resume", run, exit_code=3)
    assert "already has a supervisor" in workspace.stderr
    gate.touch()
    workspace.wait_for(lambda: workspace.run_json("ps", run)["status"] == "succeeded")


def test_job_held_by_user(workspace):
    gate = write_gated_workflow(workspace)
    process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
    native_id = wait_until_running(workspace)["jobs"][0]["executions"][0]["native_id"]
    workspace.pool.run_as_user(["condor_hold", native_id])
    workspace.wait_for(lambda: read_job(workspace)["status"] == "held")
    assert "via condor_hold" in workspace.run("why")
    gate.touch()
    workspace.pool.run_as_user(["condor_release", native_id])
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()
    assert read_job(workspace)["status"] == "succeeded"


def test_job_removed_by_user(workspace):
    write_gated_workflow(workspace)
    process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
    native_id = wait_until_running(workspace)["jobs"][0]["executions"][0]["native_id"]
    workspace.pool.run_as_user(["condor_rm", native_id])
    assert process.wait(TIMEOUT_S) != 0
    process.communicate()
    assert len(read_job(workspace)["executions"]) == 1


def test_rejected_submission(workspace):
    workspace.write_file(QUICK + "htcondor: {request_memory: 'not a number at all ('}\n")
    workspace.run("run", "workflow.yaml", "--on", "htcondor", exit_code=20)
    assert "HTCondor rejected the submission" in workspace.run("why")


@pytest.mark.parametrize("limit", ["MAX_JOBS_SUBMITTED", "MAX_JOBS_PER_OWNER"])
def test_schedd_limit_is_retried(workspace, limit):
    workspace.write_file(QUICK)
    with workspace.pool.override_config(**{limit: 0}):
        process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
        workspace.run_folder()
        workspace.wait_for(lambda: "does not accept jobs at the moment" in workspace.run("why", exit_code=None))
        assert process.poll() is None
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()
    assert attempt_ids(workspace, workspace.run_json("ps")[-1]["run"]) == ["0-1"]


def test_doctor(workspace):
    """All checks of `packtrain doctor` pass on this pool."""
    results = [result for result in workspace.run_json("doctor", exit_code=None) if result["name"] == "htcondor"]
    assert [result["status"] for result in results] == ["ok"] * len(results), results
    details = " ".join(result["detail"] for result in results)
    assert "the queue can be queried" in details and "MAX_TRANSFER_INPUT_MB" in details and "Chirp" in details


def test_too_large_local_input(workspace):
    with open(workspace.folder / "big.bin", "wb") as file:
        file.truncate(6 * 10**9)
    workspace.write_file("input: {file: {path: big.bin}, unpack: never}\n" + QUICK)
    with workspace.pool.override_config(MAX_TRANSFER_INPUT_MB=5000):
        workspace.run("run", "workflow.yaml", "--on", "htcondor", exit_code=2)
        assert "send 6 GB to each job, but sends at most 5.2 GB" in workspace.stderr
        assert "transfer: agent" in workspace.stderr
        assert workspace.run_json("ps") == []


def test_missing_input(workspace):
    with HttpServer(workspace.folder / "origin") as origin:
        workspace.write_file(f"input: {{http: {{url: '{origin.url}/nothing.tar'}}}}\n" + QUICK)
        workspace.run("run", "workflow.yaml", "--on", "htcondor", exit_code=2)
    assert "no job could fetch this input" in workspace.stderr
    assert workspace.run_json("ps") == []


def test_live_metrics(workspace):
    gate = workspace.folder / "gate"
    log_metrics = 'echo "{\\"epoch\\": 2, \\"epochs\\": 5, \\"loss\\": 0.5}" >> $PACKTRAIN_METRICS'
    workspace.write_file(
        HEAD
        + f"steps:\n  - name: train\n    run:\n      command: |\n        {log_metrics}\n"
        + f"        until [ -e {gate} ]; do sleep 0.1; done\n"
    )
    process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
    workspace.wait_for(lambda: (runs := workspace.run_json("ps")) and runs[-1]["jobs"][0]["metrics"].get("loss") == 0.5)
    gate.touch()
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()


def test_run_without_chirp(workspace):
    """There is no live progress, but the log and the journals suffice, also after an eviction."""
    gate = write_gated_workflow(workspace, "expect: [model.txt]\n")
    with workspace.pool.override_config(ENABLE_CHIRP="False"):
        process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
        workspace.wait_for(lambda: (runs := workspace.run_json("ps")) and runs[-1]["jobs"][0]["status"] == "running")
        native_id = read_job(workspace)["executions"][0]["native_id"]
        workspace.wait_for(lambda: list(workspace.pool.folder.glob("execute/*/dir_*/scratch/logs/train.out")))
        workspace.pool.run_as_user(["condor_vacate_job", native_id])
        workspace.wait_for(lambda: len(read_job(workspace)["executions"]) == 2)
        gate.touch()
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, out + err
    log = (workspace.run_folder() / "htcondor/event.log").read_text()
    assert "\n008 (" not in log, "no event was sent by Chirp"
    first, second = read_job(workspace)["executions"]
    assert (first["status"], first["failure"]["kind"], second["status"]) == ("failed", "evicted", "succeeded")
    assert "started" in workspace.run("logs") and second["stages"]["steps"] > 0, "the journal was returned"
    assert "steps" in out.partition("where the time went")[2]


def test_user_settings(workspace):
    config = workspace.write_file(
        "htcondor: {project: Vision, jobLeaseDuration: 2h, submitCommands: {+Mine: 7}}\n", "config.yaml"
    )
    workspace.environment["PACKTRAIN_CONFIG"] = str(config)
    workspace.write_file(QUICK)
    run = workspace.run_json("run", "workflow.yaml", "--on", "htcondor")["run"]
    (ad,) = workspace.pool.history(f'PacktrainRun == "{run}"', "ProjectName", "JobLeaseDuration", "Mine")
    assert (ad["ProjectName"], ad["JobLeaseDuration"], ad["Mine"]) == ("Vision", 7200, 7)
    config.write_text("htcondor: {projekt: x}\n")
    workspace.run("run", "workflow.yaml", "--on", "htcondor", exit_code=2)
    assert "has no key 'projekt'; did you mean 'project'?" in workspace.stderr


def test_dry_run_json(workspace):
    workspace.write_file(QUICK)
    plan = json.loads(workspace.run("run", "workflow.yaml", "--on", "htcondor", "--dry-run", "--json"))
    assert plan["engine"] == "htcondor"
    assert workspace.run_json("ps") == []


def test_cancel_while_schedd_is_down(workspace):
    write_gated_workflow(workspace)
    process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
    run = wait_until_running(workspace)["run"]
    workspace.pool.run_as_user(["condor_off", "-fast", "-daemon", "schedd"])
    workspace.wait_for(lambda: not list(workspace.pool.find_processes("schedd")))
    workspace.run("cancel", run, "--no-wait")
    workspace.pool.run_as_user(["condor_on", "-daemon", "schedd"])
    assert process.wait(TIMEOUT_S) == 130
    process.communicate()
    assert [job["status"] for job in workspace.run_json("ps", run)["jobs"]] == ["cancelled"]
    workspace.wait_for(lambda: workspace.pool.queue("true") == [])
