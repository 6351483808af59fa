"""`why`: what happened, the evidence, whose fault, what was done, what comes next, what to do."""

from __future__ import annotations

import pytest

from packtrain.events import FAILURE_KINDS, kinds
from packtrain.plan import Input, Job, Limits, Resources, RunFolder
from packtrain.supervise.policies import PolicyConfig
from packtrain.views.explain import ExplainContext, explain_job, explain_run
from tests.support.event_builder import RunBuilder

PLUGIN = (Input("data", "inputs/data", transfer="plugin"),)


def rules(jobs=("0",), many_sites=True, inputs=()):
    return PolicyConfig(
        jobs={name: Job(name, (), Resources(), Limits(), (), inputs=inputs) for name in jobs}, many_sites=many_sites
    )


def setting(story, tmp_path, now=0.0, attended=True, by=None):
    return ExplainContext(story.state, RunFolder(tmp_path), attended, by or rules(story.state.jobs), now)


def why(story, tmp_path, **more):
    about = setting(story, tmp_path, **more)
    return explain_job(about.state.jobs["0"], about)


def test_a_mistake_at_two_sites(tmp_path):
    story = RunBuilder()
    for number, site in ((1, "Ada"), (2, "Bob")):
        story.add_failed_attempt_at(site, number, "module_missing", host=f"w{number}", detail="No module named 'scipy'")
    story.end_job("failed", failure=story.job.executions[-1].failure.to_data())
    told = why(story, tmp_path)
    assert told.summary == "No module named 'scipy' (module_missing, in the stage steps)"
    assert told.fault == "the workflow or its program: it failed alike at Ada, Bob"
    assert told.evidence == (
        "attempt 1 on w1 at Ada, 9.0 s, exit code 21: module_missing",
        "attempt 2 on w2 at Bob, 9.0 s, exit code 21: module_missing",
    )
    assert (told.actions_taken, told.next_action) == ("2 attempts failed; r", "")
    assert told.remedy == FAILURE_KINDS["module_missing"].remedy


def test_the_last_words_of_the_step_are_evidence(tmp_path):
    story = RunBuilder()
    story.submit()
    story.start_agent()
    story.add_event("agent-1", "step.started", step="train")
    story.save_checkpoint(120)
    story.end_agent("failed", failure="out_of_memory")
    logs = RunFolder(tmp_path).attempt_folder("0", "0-1").logs
    logs.mkdir(parents=True)
    (logs / "train.err").write_text("a\n\nb\nKilled\n")
    told = why(story, tmp_path)
    assert told.evidence[1:] == ("a", "b", "Killed", "its newest checkpoint is that of training step 120")
    assert told.fault == "what the workflow asks for: its program needs more memory"
    assert told.next_action == "another attempt follows now, with 2 times the memory"


def test_a_fault_of_a_machine_and_one_that_is_the_same_everywhere(tmp_path):
    story = RunBuilder()
    story.add_failed_attempt_at("Ada", 1, "container_failed", host="a1", detail="no such image")
    assert why(story, tmp_path).fault == "the machine it ran on: a1 at Ada"
    story.add_failed_attempt_at("Bob", 2, "container_failed", host="b1", detail="no such image")
    expected = "most likely the workflow or a service, not the machines: it failed alike at Ada, Bob"
    assert why(story, tmp_path).fault == expected


def test_a_job_that_never_ran_blames_no_machine(tmp_path):
    story = RunBuilder()
    story.submit()
    story.answer_hold("give_up", story.hold("give_up"))
    story.end_attempt()
    assert why(story, tmp_path).fault == "the pool or a machine of it, before the job ran"


def test_when_the_next_attempt_comes_and_where_not(tmp_path):
    story = RunBuilder("0", "1")
    story.now = 100.0
    story.add_succeeded_attempt_at("Bob", 1, "1", host="b1")
    story.add_failed_attempt_at("Ada", 1, "gpu_unusable", host="a1")
    assert why(story, tmp_path, now=100.5).next_action == "another attempt follows in 1.5 s, not on a1"
    assert why(story, tmp_path, now=103.0).next_action == "another attempt follows now, not on a1"
    expected = "machines that are avoided for now, since attempts failed there: a1"
    assert explain_run(setting(story, tmp_path, now=103.0)) == [expected]


def test_one_that_waits_tells_for_how_long_and_until_when(tmp_path):
    story = RunBuilder()
    story.now = 1000.0
    story.add_supervisor_event(kinds.DECISION_MADE, action="submit", attempt="0-1", reason="r")
    story.add_supervisor_event(kinds.ATTEMPT_SUBMITTED, attempt="0-1", native_id="7.0", site="htcondor")
    told = why(story, tmp_path, now=1000.0 + 3 * 3600)
    assert told.summary.startswith("it waits for a machine of the pool, for 3 h 00 min; `condor_q -better-analyze 7.0`")
    assert told.next_action == ""
    late = why(story, tmp_path, now=1000.0 + 6 * 86400)
    assert late.next_action == "it fails in 24 h 00 min if no machine takes anything of the run until then"


def test_without_a_supervisor_nothing_follows_by_itself(tmp_path):
    story = RunBuilder()
    assert "`packtrain resume`" in why(story, tmp_path, attended=False).next_action
    story.add_failed_attempt(1, "service_unavailable")
    assert "`packtrain resume`" in why(story, tmp_path, attended=False).next_action


@pytest.mark.parametrize(
    ("action", "now", "said"),
    [
        ("release", 4.0, "packtrain lets it go again in 6.0 s: what kept it back may have passed"),
        ("release", 60.0, "packtrain lets it go again now: what kept it back may have passed"),
        ("wait", 3600.0, "packtrain gives this attempt up in 23 h 00 min: it was held for a day"),
        ("give_up", 0.0, "packtrain gives this attempt up now: it is held"),
    ],
)
def test_a_held_job_always_has_an_explanation_and_a_decision(tmp_path, action, now, said):
    story = RunBuilder()
    story.submit()
    story.hold(action)
    told = why(story, tmp_path, now=now)
    assert (told.summary, told.next_action) == ("it is held", said)


@pytest.mark.parametrize(("answer", "said"), [("release", "asked for its release"), ("give_up", "given it up")])
def test_a_decision_that_was_made_is_told(tmp_path, answer, said):
    story = RunBuilder()
    story.submit()
    story.answer_hold(answer, story.hold())
    assert said in why(story, tmp_path).next_action


def test_another_way_for_the_data_is_told_before_and_after(tmp_path):
    story = RunBuilder()
    story.submit()
    story.answer_hold("release", story.hold())
    story.release()
    hold = story.hold()
    by = rules(inputs=PLUGIN)
    assert "the agent fetches them" in why(story, tmp_path, by=by).next_action
    story.answer_hold("give_up", hold)
    story.end_attempt()
    assert why(story, tmp_path, now=1e6, by=by).next_action.endswith("with its data fetched by the agent")
    story.add_supervisor_event(
        kinds.DECISION_MADE, action="submit", attempt="0-2", reason="r", overrides={"fetch_with_agent": True}
    )
    told = why(story, tmp_path, by=by)
    assert told.actions_taken == "1 attempt failed; it was let go 1 time; attempt 2: with its data fetched by the agent"


def test_a_run_that_was_stopped(tmp_path):
    story = RunBuilder(*map(str, range(10)))
    for number, site in enumerate("AAB"):
        story.add_failed_attempt_at(site, 1, "step_failed", str(number))
        story.end_job("failed", str(number))
    stopped = {"kind": "run_stopped", "stage": "startup", "blame": "user", "transient": False, "detail": "d"}
    for number in range(3, 10):
        story.end_job("failed", str(number), failure=stopped)
    assert explain_run(setting(story, tmp_path)) == [
        "stopped after 3 identical failures on 2 sites; 7 jobs were not started"
    ]


def test_what_packtrain_itself_ended_is_no_evidence(tmp_path):
    story = RunBuilder()
    story.submit()
    story.cancel()
    story.end_attempt(detail="it was cancelled before it started")
    stopped = {"kind": "run_stopped", "stage": "startup", "blame": "user", "transient": False, "detail": "not started"}
    story.end_job("failed", failure=stopped)
    told = why(story, tmp_path)
    assert (told.evidence, told.actions_taken, told.exit_code) == ((), "r", 25)


def test_a_job_that_succeeded_after_failures_tells_them(tmp_path):
    story = RunBuilder()
    story.add_failed_attempt_at("Ada", 1, "evicted", host="a1")
    story.add_succeeded_attempt_at("Bob", 2)
    story.end_job("succeeded")
    told = why(story, tmp_path)
    assert (told.has_failed, told.actions_taken) == (False, "1 attempt failed")
    assert told.evidence == ("attempt 1 on a1 at Ada, 9.0 s, exit code 63: evicted",)


def test_what_is_told_has_a_form_for_machines(tmp_path):
    story = RunBuilder()
    story.add_failed_attempt(1, "disk_full")
    told = why(story, tmp_path)
    assert set(told.to_json()) >= {"job_id", "summary", "evidence", "fault", "actions_taken", "next_action", "remedy"}
    assert next(label for label, _ in told.labelled_lines()) == "problem"


def test_a_second_copy_and_which_of_both_was_first(tmp_path):
    story = RunBuilder()
    story.submit()
    story.start_agent("agent-1")
    reason = "on w1 at here it needs about 4.0 h more, elsewhere about 2.0 h"
    story.add_supervisor_event(kinds.DECISION_MADE, action="submit", attempt="0-2", reason=reason, copy_of="0-1")
    assert why(story, tmp_path).summary == "it runs on w1, in the stage startup", "the copy only waits"
    assert why(story, tmp_path).actions_taken == f"attempt 2 was started beside attempt 1: {reason}"
    story.start_agent("agent-2", "0-2")
    story.end_agent("succeeded", "agent-2")
    story.add_supervisor_event(kinds.DECISION_MADE, action="accept", attempt="0-2", reason="r")
    story.add_supervisor_event(kinds.DECISION_MADE, action="cancel", attempt="0-1", reason="attempt 2 succeeded first")
    story.end_job("succeeded", emitter="agent-2")
    story.end_agent("failed", "agent-1", failure="terminated")
    told = why(story, tmp_path)
    assert told.summary == "it succeeded: attempt 2 took 9.0 s and passed its checks"
    assert told.actions_taken.endswith("elsewhere about 2.0 h; attempt 2 succeeded first")
    assert not told.has_failed and told.evidence == ()


def test_a_job_that_was_moved(tmp_path):
    story = RunBuilder()
    story.submit()
    story.start_agent("agent-1")
    story.add_supervisor_event(
        kinds.DECISION_MADE, action="move", attempt="0-1", reason="it is late", avoid_nodes=["w1"]
    )
    story.end_agent("requeued", "agent-1")
    story.end_attempt()
    told = why(story, tmp_path)
    assert told.actions_taken == "attempt 1 was moved: it is late"
    assert told.next_action == "another attempt follows now, not on w1"


def test_places_known_from_earlier_runs(tmp_path):
    about = ExplainContext(
        RunBuilder().state, RunFolder(tmp_path), True, known_bad_sites={"Slow": "trainings take 3 times as long"}
    )
    assert explain_run(about) == ["Slow is avoided because of earlier runs: trainings take 3 times as long"]
