"""Runs on a real pool: the same commands as on this machine, and what becomes of them when parts of it die."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.cli_runs import TIMEOUT_S

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-1"), pytest.mark.timeout(600)]

HEAD = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}\nlimits: {grace: 2s, disk: 10MB}\n"
QUICK = HEAD + "steps: [{name: train, run: {command: 'echo hello; echo {job} > $DEEPSQUARE_OUTPUT/model.txt'}}]\n"
# Waits until the test says so, by a file: all sites are on this machine.
GATED = HEAD + (
    "steps: [{name: train, run: {command: 'echo begun; until [ -e GATE ]; do sleep 0.1; done; "
    "echo done > $DEEPSQUARE_OUTPUT/model.txt'}}]\n"
)


def gated(desk, more: str = "", name: str = "gate") -> Path:
    gate = desk.folder / name
    desk.write_file(GATED.replace("GATE", str(gate)) + more)
    return gate


def job_of(desk, run: str = "") -> dict:
    return desk.run_json("ps", run or desk.run_json("ps")[-1]["run"])["jobs"][0]


def await_running(desk) -> dict:
    """Until an agent of the newest run has begun with its steps; how the run stands."""

    def look():
        runs = desk.run_json("ps")
        jobs = runs[-1]["jobs"] if runs else []
        return runs[-1] if any(a["stage"] == "steps" for job in jobs for a in job["attempts"]) else None

    return desk.wait_for(look)


def decided(desk, run: str) -> list[str]:
    """The attempts that were ever asked for."""
    return sorted({attempt["attempt"] for job in desk.run_json("ps", run)["jobs"] for attempt in job["attempts"]})


def supervisor_pid(pool, run: str) -> int:
    """As this process sees it: the pool has process ids of its own."""
    return next(pid for pid, words in pool.process_commands() if "--in-schedd" in words and run in words)


def test_a_run_of_three_jobs_and_all_that_can_be_asked_of_it(desk):
    (desk.folder / "data.txt").write_text("12345")
    desk.write_file(
        "name: three\ncount: 3\ninput: {file: {path: data.txt}}\nexpect: [{path: model.txt}]\n"
        + QUICK.replace("echo hello", "cat $DEEPSQUARE_INPUT/data.txt")
    )
    told = desk.run_json("run", "workflow.yaml", "--on", "htcondor")
    assert told["status"] == "succeeded"
    run = desk.run_json("ps", told["run"])
    assert [job["status"] for job in run["jobs"]] == ["succeeded"] * 3
    sites = {attempt["site"] for job in run["jobs"] for attempt in job["attempts"]}
    assert sites <= {site.name for site in desk.pool.sites}
    assert desk.run("logs", f"{told['run']}.1").strip() == "12345"
    outputs = desk.run_json("outputs", told["run"])
    assert [(one["job"], one["name"]) for one in outputs] == [(str(n), "model.txt") for n in range(3)]
    assert (desk.run_folder() / "jobs/2/output/model.txt").read_text() == "2\n"
    assert "it succeeded" in desk.run("why", told["run"])
    again = desk.pool.run(["condor_submit", "-dry-run", "-", str(desk.run_folder() / "htcondor/0-1.sub")])
    assert 'PacktrainAttempt="0-1"' in again.stdout
    assert desk.pool.queue("true") == []


def test_a_failing_step_is_told_with_its_last_words(desk):
    desk.write_file(HEAD + "steps: [{name: train, run: {command: 'echo oh no >&2; exit 3'}}]\n")
    desk.run("run", "workflow.yaml", "--on", "htcondor", code=10)
    why = desk.run("why")
    assert "ended with exit code 3" in why and "oh no" in why


def test_a_transient_failure_is_tried_again_in_a_cluster_of_its_own(desk):
    mark = desk.folder / "mark"
    # A container that cannot start, or a full disk, ends with such a code; here the agent itself is made to fail once.
    desk.write_file(HEAD.replace("grace: 2s", "grace: 2s, attempts: 2") + _FAILS_ONCE.format(mark=mark))
    desk.run("run", "workflow.yaml", "--on", "htcondor")
    attempts = job_of(desk)["attempts"]
    assert [(a["attempt"], a["status"]) for a in attempts] == [("0-1", "lost"), ("0-2", "succeeded")]
    assert attempts[0]["native"].partition(".")[0] != attempts[1]["native"].partition(".")[0]


_FAILS_ONCE = (
    "steps: [{{name: train, run: {{command: 'if [ -e {mark} ]; then exit 0; fi; touch {mark}; "
    "kill -9 $PPID; sleep 9'}}}}]\n"
)


def test_one_that_is_evicted_shows_both_of_its_starts(desk):
    gate = gated(desk)
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    run = await_running(desk)
    desk.pool.run(["condor_vacate_job", run["jobs"][0]["attempts"][0]["native"]])
    desk.wait_for(lambda: len(job_of(desk)["attempts"]) == 2)
    gate.touch()
    assert process.wait(TIMEOUT_S) == 0
    attempts = job_of(desk)["attempts"]
    assert [(a["attempt"], a["start"], a["status"]) for a in attempts] == [
        ("0-1", 1, "failed"),
        ("0-1", 2, "succeeded"),
    ]
    assert attempts[0]["failure"]["kind"] == "evicted"
    process.communicate()


def test_a_run_goes_on_after_its_supervisor_was_killed(desk):
    gate = gated(desk, "count: 2\n")
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    run = await_running(desk)["run"]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    gate.touch()
    told = desk.run_json("resume", run)
    assert told["status"] == "succeeded"
    assert decided(desk, run) == ["0-1", "1-1"], "found again, not started again"


def test_what_ended_while_nobody_watched_is_found(desk):
    gate = gated(desk)
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    run = await_running(desk)["run"]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    gate.touch()
    desk.wait_for(lambda: desk.pool.queue("true") == [])
    assert desk.run_json("ps", run)["jobs"][0]["attempts"][0]["status"] == "succeeded"
    assert desk.run_json("resume", run)["status"] == "succeeded"
    assert decided(desk, run) == ["0-1"]


def test_a_cancelled_run_leaves_the_queue_and_can_be_resumed(desk):
    gate = gated(desk, "count: 2\n")
    run = desk.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    await_running(desk)
    desk.run("cancel", run)
    assert {job["status"] for job in desk.run_json("ps", run)["jobs"]} == {"cancelled"}
    desk.wait_for(lambda: desk.pool.queue("true") == [])
    gate.touch()
    assert desk.run_json("resume", run)["status"] == "succeeded"
    assert decided(desk, run) == ["0-1", "0-2", "1-1", "1-2"]


def test_one_job_of_many_is_cancelled_before_the_pool_has_made_it(desk):
    gate = gated(desk, "count: 5\nhtcondor: {max_materialize: 1}\n", "gate-{job}")
    run = desk.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    await_running(desk)
    desk.run("cancel", f"{run}.2")
    desk.run("cancel", f"{run}.4")
    for job in (0, 1, 3):
        gate.with_name(f"gate-{job}").touch()
    desk.wait_for(lambda: desk.run_json("ps", run)["status"] != "running")
    states = [job["status"] for job in desk.run_json("ps", run)["jobs"]]
    assert states == ["succeeded", "succeeded", "cancelled", "succeeded", "cancelled"]
    desk.wait_for(lambda: desk.pool.queue("true") == [])  # nobody opens the gates of the cancelled ones


def test_why_the_rest_of_a_cluster_that_a_person_holds_does_not_come(desk):
    gate = gated(desk, "count: 2\nhtcondor: {max_materialize: 1}\n")
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    run = await_running(desk)
    cluster = run["jobs"][0]["attempts"][0]["native"].partition(".")[0]
    desk.pool.run(["condor_hold", cluster])
    desk.wait_for(lambda: "makes no more jobs of its cluster" in desk.run("why", f"{run['run']}.1", code=None))
    gate.touch()
    desk.pool.run(["condor_release", cluster])
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()


def test_a_detached_supervisor_is_started_again_when_it_dies(desk):
    gate = gated(desk)
    run = desk.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    await_running(desk)
    os.kill(supervisor_pid(desk.pool, run), signal.SIGKILL)
    desk.wait_for(lambda: desk.pool.queue("JobUniverse == 7 && NumJobStarts > 1", "ClusterId"))
    gate.touch()
    desk.wait_for(lambda: desk.run_json("ps", run)["status"] == "succeeded")
    assert decided(desk, run) == ["0-1"]


def test_a_detached_supervisor_outlives_a_schedd_that_is_killed(desk):
    gate = gated(desk)
    run = desk.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    await_running(desk)
    desk.pool.kill("schedd")
    desk.pool.await_up()
    desk.wait_for(lambda: desk.pool.queue("JobUniverse == 7 && NumJobStarts > 1", "ClusterId"))
    gate.touch()
    desk.wait_for(lambda: desk.run_json("ps", run)["status"] == "succeeded")
    assert decided(desk, run) == ["0-1"]
    desk.wait_for(lambda: desk.pool.queue("true") == [])


def test_one_condor_rm_of_the_supervisor_removes_its_jobs_too(desk):
    gated(desk, "count: 2\n")
    run = desk.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    await_running(desk)
    (supervisor,) = desk.pool.queue("JobUniverse == 7", "ClusterId")
    desk.pool.run(["condor_rm", str(supervisor["ClusterId"])])
    desk.wait_for(lambda: desk.pool.queue("true") == [])
    desk.wait_for(lambda: desk.run_json("ps", run)["status"] == "interrupted")
    assert not any(job["status"] == "succeeded" for job in desk.run_json("ps", run)["jobs"])


def test_a_second_supervisor_is_refused(desk):
    gate = gated(desk)
    run = desk.run_json("run", "workflow.yaml", "--on", "htcondor", "--detach")["run"]
    await_running(desk)
    desk.run("resume", run, code=3)
    assert "already has a supervisor" in desk.stderr
    gate.touch()
    desk.wait_for(lambda: desk.run_json("ps", run)["status"] == "succeeded")


def test_a_job_that_a_person_holds_waits_for_that_person(desk):
    gate = gated(desk)
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    native = await_running(desk)["jobs"][0]["attempts"][0]["native"]
    desk.pool.run(["condor_hold", native])
    desk.wait_for(lambda: job_of(desk)["status"] == "held")
    assert "via condor_hold" in desk.run("why")
    gate.touch()
    desk.pool.run(["condor_release", native])
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()
    assert job_of(desk)["status"] == "succeeded"


def test_a_job_that_a_person_removes_is_not_started_again(desk):
    gated(desk)
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    native = await_running(desk)["jobs"][0]["attempts"][0]["native"]
    desk.pool.run(["condor_rm", native])
    assert process.wait(TIMEOUT_S) != 0
    process.communicate()
    assert len(job_of(desk)["attempts"]) == 1


def test_what_the_schedd_refuses_is_a_verdict(desk):
    desk.write_file(QUICK + "htcondor: {request_memory: 'not a number at all ('}\n")
    desk.run("run", "workflow.yaml", "--on", "htcondor", code=20)
    assert "HTCondor does not take it" in desk.run("why")


@pytest.mark.parametrize("limit", ["MAX_JOBS_SUBMITTED", "MAX_JOBS_PER_OWNER"])
def test_a_limit_of_the_schedd_that_is_reached_is_waited_for(desk, limit):
    desk.write_file(QUICK)
    with desk.pool.configured(**{limit: 0}):
        process = desk.start("run", "workflow.yaml", "--on", "htcondor")
        desk.run_folder()
        desk.wait_for(lambda: "does not take jobs at the moment" in desk.run("why", code=None))
        assert process.poll() is None
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()
    assert decided(desk, desk.run_json("ps")[-1]["run"]) == ["0-1"]


def test_what_the_access_point_says_of_itself(desk):
    """`doctor` on a pool that is as it should be."""
    told = [(one["status"], one["seen"]) for one in desk.run_json("doctor", code=None) if one["what"] == "htcondor"]
    assert [status for status, _ in told] == ["ok"] * len(told), told
    words = " ".join(seen for _, seen in told)
    assert "the queue can be asked" in words and "MAX_TRANSFER_INPUT_MB" in words and "Chirp" in words


def test_too_much_native_input_is_refused_before_anything_is_submitted(desk):
    with open(desk.folder / "big.bin", "wb") as file:
        file.truncate(6 * 10**9)
    given = "input: {file: {path: big.bin}, unpack: never%s}\n"
    desk.write_file(given % "" + QUICK)
    with desk.pool.configured(MAX_TRANSFER_INPUT_MB=5000):
        desk.run("run", "workflow.yaml", "--on", "htcondor", code=2)
        assert "send 6.0 GB to each job, but sends at most 5.2 GB" in desk.stderr
        assert "transfer: agent" in desk.stderr
        assert desk.run_json("ps") == []


def test_a_missing_input_is_news_before_jobs_start(desk):
    from testbed.http_server import HttpServer

    with HttpServer(desk.folder / "origin") as origin:
        desk.write_file(f"input: {{http: {{url: '{origin.url}/nothing.tar'}}}}\n" + QUICK)
        desk.run("run", "workflow.yaml", "--on", "htcondor", code=2)
    assert "no job would get this input" in desk.stderr
    assert desk.run_json("ps") == []


def test_live_words_come_from_the_pool(desk):
    gate = desk.folder / "gate"
    say = 'echo "{\\"epoch\\": 2, \\"epochs\\": 5, \\"loss\\": 0.5}" >> $PACKTRAIN_METRICS'
    desk.write_file(
        HEAD
        + f"steps:\n  - name: train\n    run:\n      command: |\n        {say}\n"
        + f"        until [ -e {gate} ]; do sleep 0.1; done\n"
    )
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    desk.wait_for(lambda: (runs := desk.run_json("ps")) and runs[-1]["jobs"][0]["metric"].get("loss") == 0.5)
    gate.touch()
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()


def test_where_chirp_is_off_a_run_is_none_the_worse(desk):
    """Nothing is told live; what the log and the journals tell is enough, for an evicted one, too."""
    gate = gated(desk, "expect: [model.txt]\n")
    with desk.pool.configured(ENABLE_CHIRP="False"):
        process = desk.start("run", "workflow.yaml", "--on", "htcondor")
        desk.wait_for(lambda: (runs := desk.run_json("ps")) and runs[-1]["jobs"][0]["status"] == "running")
        native = job_of(desk)["attempts"][0]["native"]
        desk.wait_for(lambda: list(desk.pool.folder.glob("execute/*/dir_*/scratch/logs/train.out")))
        desk.pool.run(["condor_vacate_job", native])
        desk.wait_for(lambda: len(job_of(desk)["attempts"]) == 2)
        gate.touch()
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, out + err
    log = (desk.run_folder() / "htcondor/event.log").read_text()
    assert "\n008 (" not in log, "nothing came by Chirp"
    first, second = job_of(desk)["attempts"]
    assert (first["status"], first["failure"]["kind"], second["status"]) == ("failed", "evicted", "succeeded")
    assert "begun" in desk.run("logs") and second["stages"]["steps"] > 0, "the journal came home"
    assert "steps" in out.partition("where the time went")[2]


def test_settings_of_a_person_are_used(desk):
    config = desk.write_file("htcondor: {project: Vision, lease: 2h, lines: {+Mine: 7}}\n", "config.yaml")
    desk.environment["PACKTRAIN_CONFIG"] = str(config)
    desk.write_file(QUICK)
    run = desk.run_json("run", "workflow.yaml", "--on", "htcondor")["run"]
    (ad,) = desk.pool.history(f'PacktrainRun == "{run}"', "ProjectName", "JobLeaseDuration", "Mine")
    assert (ad["ProjectName"], ad["JobLeaseDuration"], ad["Mine"]) == ("Vision", 7200, 7)
    config.write_text("htcondor: {projekt: x}\n")
    desk.run("run", "workflow.yaml", "--on", "htcondor", code=2)
    assert "has no key 'projekt'; did you mean 'project'?" in desk.stderr


def test_the_plan_as_json(desk):
    desk.write_file(QUICK)
    shown = json.loads(desk.run("run", "workflow.yaml", "--on", "htcondor", "--dry-run", "--json"))
    assert shown["engine"] == "htcondor"
    assert desk.run_json("ps") == []


def test_a_cancellation_waits_for_a_schedd_that_is_away(desk):
    gated(desk)
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    run = await_running(desk)["run"]
    desk.pool.run(["condor_off", "-fast", "-daemon", "schedd"])
    desk.wait_for(lambda: not list(desk.pool.processes("schedd")))
    desk.run("cancel", run, "--no-wait")
    desk.pool.run(["condor_on", "-daemon", "schedd"])
    assert process.wait(TIMEOUT_S) == 130
    process.communicate()
    assert [job["status"] for job in desk.run_json("ps", run)["jobs"]] == ["cancelled"]
    desk.wait_for(lambda: desk.pool.queue("true") == [])
