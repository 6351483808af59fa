"""Explanations of jobs and runs for `packtrain why`."""

from __future__ import annotations

import pytest

from packtrain.events import FAILURE_KINDS, kinds
from packtrain.plan import Input, Job, Limits, Resources, RunFolder
from packtrain.supervise.policies import PolicyConfig
from packtrain.views.explain import ExplainContext, explain_job, explain_run
from tests.support.event_builder import RunBuilder

PLUGIN = (Input("data", "inputs/data", transfer="plugin"),)


def make_config(jobs=("0",), has_multiple_sites=True, inputs=()):
    plans = {name: Job(name, (), Resources(), Limits(), (), inputs=inputs) for name in jobs}
    return PolicyConfig(jobs=plans, has_multiple_sites=has_multiple_sites)


def make_context(run, tmp_path, now=0.0, has_live_supervisor=True, config=None):
    return ExplainContext(
        run.state, RunFolder(tmp_path), has_live_supervisor, config or make_config(run.state.jobs), now
    )


def explain(run, tmp_path, **kwargs):
    context = make_context(run, tmp_path, **kwargs)
    return explain_job(context.state.jobs["0"], context)


def test_user_error_at_two_sites(tmp_path):
    run = RunBuilder()
    for number, site in ((1, "Ada"), (2, "Bob")):
        run.add_failed_attempt_at(site, number, "module_missing", host=f"w{number}", detail="No module named 'scipy'")
    run.end_job("failed", failure=run.job.executions[-1].failure.to_data())
    explanation = explain(run, tmp_path)
    assert explanation.summary == "No module named 'scipy' (module_missing, in the stage steps)"
    assert explanation.fault == "the workflow or its program: it failed in the same way at Ada, Bob"
    assert explanation.evidence == (
        "execution 1 on w1 at Ada, 9 s, exit code 21: module_missing",
        "execution 2 on w2 at Bob, 9 s, exit code 21: module_missing",
    )
    assert (explanation.actions_taken, explanation.next_action) == ("2 executions failed; r", "")
    assert explanation.remedy == FAILURE_KINDS["module_missing"].remedy


def test_stderr_and_checkpoint_are_evidence(tmp_path):
    run = RunBuilder()
    run.submit()
    run.start_agent()
    run.add_event("agent-1", "step.started", step="train")
    run.save_checkpoint(120)
    run.end_agent("failed", failure="out_of_memory")
    logs = RunFolder(tmp_path).attempt_folder("0", "0-1").logs
    logs.mkdir(parents=True)
    (logs / "train.err").write_text("a\n\nb\nKilled\n")
    explanation = explain(run, tmp_path)
    assert explanation.evidence[1:] == ("a", "b", "Killed", "the newest checkpoint is of training step 120")
    assert explanation.fault == "the workflow: its program needs more memory than it requests"
    assert explanation.next_action == "packtrain submits another attempt now, with 2 times the memory"


def test_fault_of_node_and_common_fault(tmp_path):
    run = RunBuilder()
    run.add_failed_attempt_at("Ada", 1, "container_failed", host="a1", detail="no such image")
    assert explain(run, tmp_path).fault == "the node it ran on: a1 at Ada"
    run.add_failed_attempt_at("Bob", 2, "container_failed", host="b1", detail="no such image")
    expected = "most likely the workflow or a server, not the nodes: it failed in the same way at Ada, Bob"
    assert explain(run, tmp_path).fault == expected


def test_job_that_never_ran_blames_no_node(tmp_path):
    run = RunBuilder()
    run.submit()
    run.answer_hold("give_up", run.hold("give_up"))
    run.end_attempt()
    assert explain(run, tmp_path).fault == "the pool or one of its nodes, before the job ran"


def test_next_attempt_and_avoided_nodes(tmp_path):
    run = RunBuilder("0", "1")
    run.now = 100.0
    run.add_succeeded_attempt_at("Bob", 1, "1", host="b1")
    run.add_failed_attempt_at("Ada", 1, "gpu_unusable", host="a1")
    assert (
        explain(run, tmp_path, now=100.5).next_action
        == "packtrain submits another attempt in 1.5 s, avoiding the node a1"
    )
    assert (
        explain(run, tmp_path, now=103.0).next_action == "packtrain submits another attempt now, avoiding the node a1"
    )
    expected = "nodes that the run avoids for now, because executions failed there: a1"
    assert explain_run(make_context(run, tmp_path, now=103.0)) == [expected]


def test_waiting_job(tmp_path):
    run = RunBuilder()
    run.now = 1000.0
    run.add_supervisor_event(kinds.DECISION_MADE, action="submit", attempt="0-1", reason="r")
    run.add_supervisor_event(kinds.ATTEMPT_SUBMITTED, attempt="0-1", native_id="7.0", site="htcondor")
    explanation = explain(run, tmp_path, now=1000.0 + 3 * 3600)
    assert explanation.summary.startswith("waiting for a node of the pool, for 3 h; run `condor_q -better-analyze 7.0`")
    assert explanation.next_action == ""
    later = explain(run, tmp_path, now=1000.0 + 6 * 86400)
    assert later.next_action == "the job fails in 24 h unless a node of the pool takes one of the run's jobs before"


def test_job_that_waits_in_slurm(tmp_path):
    run = RunBuilder()
    run.now = 1000.0
    run.add_supervisor_event(kinds.DECISION_MADE, action="submit", attempt="0-1", reason="r")
    run.add_supervisor_event(kinds.ATTEMPT_SUBMITTED, attempt="0-1", native_id="7_0", site="slurm")
    reason = "waits for free resources; Slurm expects to start it on 18 Nov at 14:30"
    context = make_context(run, tmp_path, now=4600.0)
    context.state.update_progress({"0-1": {"attempt": "0-1", "wait_reason": reason}}, 1000.0)
    summary = explain_job(context.state.jobs["0"], context).summary
    assert summary == f"waiting in Slurm's queue as job 7_0, for 1 h: {reason}"


def test_no_supervisor(tmp_path):
    run = RunBuilder()
    assert "`packtrain resume run-1`" in explain(run, tmp_path, has_live_supervisor=False).next_action
    run.add_failed_attempt(1, "service_unavailable")
    assert "`packtrain resume run-1`" in explain(run, tmp_path, has_live_supervisor=False).next_action


@pytest.mark.parametrize(
    ("action", "now", "expected"),
    [
        ("release", 4.0, "packtrain releases it in 6 s: the cause of the hold may be gone"),
        ("release", 60.0, "packtrain releases it now: the cause of the hold may be gone"),
        ("wait", 3600.0, "packtrain gives up this attempt in 23 h: it has been held for a day"),
        ("give_up", 0.0, "packtrain gives up this attempt now: it is held"),
    ],
)
def test_held_job(tmp_path, action, now, expected):
    run = RunBuilder()
    run.submit()
    run.hold(action)
    explanation = explain(run, tmp_path, now=now)
    assert (explanation.summary, explanation.next_action) == ("it is held", expected)


@pytest.mark.parametrize(
    ("answer", "expected"), [("release", "requested its release"), ("give_up", "given up this attempt")]
)
def test_decided_hold_response(tmp_path, answer, expected):
    run = RunBuilder()
    run.submit()
    run.answer_hold(answer, run.hold())
    assert expected in explain(run, tmp_path).next_action


def test_transfer_fallback(tmp_path):
    run = RunBuilder()
    run.submit()
    run.answer_hold("release", run.hold())
    run.release()
    hold = run.hold()
    config = make_config(inputs=PLUGIN)
    assert "the agent of the next attempt fetches the inputs" in explain(run, tmp_path, config=config).next_action
    run.answer_hold("give_up", hold)
    run.end_attempt()
    assert explain(run, tmp_path, now=1e6, config=config).next_action.endswith("with its inputs fetched by the agent")
    run.add_supervisor_event(
        kinds.DECISION_MADE, action="submit", attempt="0-2", reason="r", overrides={"fetch_with_agent": True}
    )
    explanation = explain(run, tmp_path, config=config)
    assert (
        explanation.actions_taken
        == "1 execution failed; released 1 time; attempt 0-2 was submitted with its inputs fetched by the agent"
    )


def test_stopped_run(tmp_path):
    run = RunBuilder(*map(str, range(10)))
    for number, site in enumerate("AAB"):
        run.add_failed_attempt_at(site, 1, "step_failed", str(number))
        run.end_job("failed", str(number))
    stopped = {"kind": "run_stopped", "stage": "startup", "blame": "user", "transient": False, "detail": "d"}
    for number in range(3, 10):
        run.end_job("failed", str(number), failure=stopped)
    assert explain_run(make_context(run, tmp_path)) == [
        "stopped after 3 identical failures on 2 sites; 7 jobs were not started"
    ]


def test_cancelled_attempt_is_no_evidence(tmp_path):
    run = RunBuilder()
    run.submit()
    run.cancel()
    run.end_attempt(detail="cancelled")
    stopped = {"kind": "run_stopped", "stage": "startup", "blame": "user", "transient": False, "detail": "not started"}
    run.end_job("failed", failure=stopped)
    explanation = explain(run, tmp_path)
    assert (explanation.evidence, explanation.actions_taken, explanation.exit_code) == ((), "r", 25)


def test_success_after_failure(tmp_path):
    run = RunBuilder()
    run.add_failed_attempt_at("Ada", 1, "evicted", host="a1")
    run.add_succeeded_attempt_at("Bob", 2)
    run.end_job("succeeded")
    explanation = explain(run, tmp_path)
    assert (explanation.has_failed, explanation.actions_taken) == (False, "1 execution failed")
    assert explanation.evidence == ("execution 1 on a1 at Ada, 9 s, exit code 63: evicted",)


def test_json_and_labels(tmp_path):
    run = RunBuilder()
    run.add_failed_attempt(1, "disk_full")
    explanation = explain(run, tmp_path)
    assert set(explanation.to_json()) >= {
        "job_id",
        "summary",
        "evidence",
        "fault",
        "actions_taken",
        "next_action",
        "remedy",
    }
    assert next(label for label, _ in explanation.labelled_lines()) == "problem"


def test_job_that_has_not_failed_has_no_problem(tmp_path):
    explanation = explain(RunBuilder(), tmp_path)
    assert next(label for label, _ in explanation.labelled_lines()) == "status"


def test_second_copy(tmp_path):
    run = RunBuilder()
    run.submit()
    run.start_agent("agent-1")
    reason = "it needs about 4 h more on w1 at here, but about 2 h elsewhere"
    run.add_supervisor_event(kinds.DECISION_MADE, action="submit", attempt="0-2", reason=reason, copy_of="0-1")
    assert explain(run, tmp_path).summary == "running on w1, in the stage startup", "the copy is queued"
    assert explain(run, tmp_path).actions_taken == f"attempt 0-2 was submitted as a copy of attempt 0-1: {reason}"
    run.start_agent("agent-2", "0-2")
    run.end_agent("succeeded", "agent-2")
    run.add_supervisor_event(kinds.DECISION_MADE, action="accept", attempt="0-2", reason="r")
    run.add_supervisor_event(kinds.DECISION_MADE, action="cancel", attempt="0-1", reason="attempt 0-2 succeeded first")
    run.end_job("succeeded", emitter="agent-2")
    run.end_agent("failed", "agent-1", failure="terminated")
    explanation = explain(run, tmp_path)
    assert explanation.summary == "the job succeeded: execution 2 took 9 s and passed all checks"
    assert explanation.actions_taken.endswith("about 2 h elsewhere; attempt 0-2 succeeded first")
    assert not explanation.has_failed and explanation.evidence == ()


def test_moved_job(tmp_path):
    run = RunBuilder()
    run.submit()
    run.start_agent("agent-1")
    run.add_supervisor_event(kinds.DECISION_MADE, action="move", attempt="0-1", reason="it is slow", avoid_nodes=["w1"])
    run.end_agent("requeued", "agent-1")
    run.end_attempt()
    explanation = explain(run, tmp_path)
    assert explanation.actions_taken == "attempt 0-1 was moved: it is slow"
    assert explanation.next_action == "packtrain submits another attempt now, avoiding the node w1"


def test_sites_avoided_because_of_earlier_runs(tmp_path):
    context = ExplainContext(
        RunBuilder().state, RunFolder(tmp_path), True, known_bad_sites={"Slow": "trainings take 3 times as long there"}
    )
    assert explain_run(context) == ["Slow is avoided because of earlier runs: trainings take 3 times as long there"]
