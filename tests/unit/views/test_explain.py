"""`why`: what happened, the evidence, whose fault, what was done, what comes next, what to do."""

from __future__ import annotations

import pytest

from packtrain.events import FAILURE_KINDS
from packtrain.plan import Input, Job, Limits, Resources, RunFolder
from packtrain.supervise.policies import Rules
from packtrain.views.explain import Setting, explain_job, explain_run
from tests.support.event_builder import Story

PLUGIN = (Input("data", "inputs/data", delivery="plugin"),)


def rules(jobs=("0",), many_sites=True, inputs=()):
    return Rules(
        jobs={name: Job(name, (), Resources(), Limits(), (), inputs=inputs) for name in jobs}, many_sites=many_sites
    )


def setting(story, tmp_path, now=0.0, attended=True, by=None):
    return Setting(story.state, RunFolder(tmp_path), attended, by or rules(story.state.jobs), now)


def why(story, tmp_path, **more):
    about = setting(story, tmp_path, **more)
    return explain_job(about.state.jobs["0"], about)


def test_a_mistake_at_two_sites(tmp_path):
    story = Story()
    for number, site in ((1, "Ada"), (2, "Bob")):
        story.fail_at(site, number, "module_missing", host=f"w{number}", detail="No module named 'scipy'")
    story.verdict("failed", failure=story.job.attempts[-1].failure.to_data())
    told = why(story, tmp_path)
    assert told.what == "No module named 'scipy' (module_missing, in the stage steps)"
    assert told.fault == "the workflow or its program: it failed alike at Ada, Bob"
    assert told.evidence == (
        "attempt 1 on w1 at Ada, 9.0 s, exit code 21: module_missing",
        "attempt 2 on w2 at Bob, 9.0 s, exit code 21: module_missing",
    )
    assert (told.done, told.next) == ("2 attempts failed; r", "")
    assert told.remedy == FAILURE_KINDS["module_missing"].remedy


def test_the_last_words_of_the_step_are_evidence(tmp_path):
    story = Story()
    story.submit()
    story.start()
    story.say("agent-1", "step.started", step="train")
    story.checkpoint(120)
    story.end("failed", failure="out_of_memory")
    logs = RunFolder(tmp_path).attempt("0", "0-1").logs
    logs.mkdir(parents=True)
    (logs / "train.err").write_text("a\n\nb\nKilled\n")
    told = why(story, tmp_path)
    assert told.evidence[1:] == ("a", "b", "Killed", "its newest checkpoint is that of training step 120")
    assert told.fault == "what the workflow asks for: its program needs more memory"
    assert told.next == "another attempt follows now, with 2 times the memory"


def test_a_fault_of_a_machine_and_one_that_is_the_same_everywhere(tmp_path):
    story = Story()
    story.fail_at("Ada", 1, "container_failed", host="a1", detail="no such image")
    assert why(story, tmp_path).fault == "the machine it ran on: a1 at Ada"
    story.fail_at("Bob", 2, "container_failed", host="b1", detail="no such image")
    expected = "most likely the workflow or a service, not the machines: it failed alike at Ada, Bob"
    assert why(story, tmp_path).fault == expected


def test_a_job_that_never_ran_blames_no_machine(tmp_path):
    story = Story()
    story.submit()
    story.answer("give_up", story.held("give_up"))
    story.gone()
    assert why(story, tmp_path).fault == "the pool or a machine of it, before the job ran"


def test_when_the_next_attempt_comes_and_where_not(tmp_path):
    story = Story("0", "1")
    story.now = 100.0
    story.succeed_at("Bob", 1, "1", host="b1")
    story.fail_at("Ada", 1, "gpu_unusable", host="a1")
    assert why(story, tmp_path, now=100.5).next == "another attempt follows in 1.5 s, not on a1"
    assert why(story, tmp_path, now=103.0).next == "another attempt follows now, not on a1"
    expected = "machines that are avoided for now, since attempts failed there: a1"
    assert explain_run(setting(story, tmp_path, now=103.0)) == [expected]


def test_one_that_waits_tells_for_how_long_and_until_when(tmp_path):
    story = Story()
    story.now = 1000.0
    story.supervise("decided", action="submit", id="0-1", reason="r")
    story.supervise("confirmed", id="0-1", native="7.0", site="htcondor")
    told = why(story, tmp_path, now=1000.0 + 3 * 3600)
    assert told.what.startswith("it waits for a machine of the pool, for 3 h 00 min; `condor_q -better-analyze 7.0`")
    assert told.next == ""
    late = why(story, tmp_path, now=1000.0 + 6 * 86400)
    assert late.next == "it fails in 24 h 00 min if no machine takes anything of the run until then"


def test_without_a_supervisor_nothing_follows_by_itself(tmp_path):
    story = Story()
    assert "`packtrain resume`" in why(story, tmp_path, attended=False).next
    story.fail(1, "service_unavailable")
    assert "`packtrain resume`" in why(story, tmp_path, attended=False).next


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
    story = Story()
    story.submit()
    story.held(action)
    told = why(story, tmp_path, now=now)
    assert (told.what, told.next) == ("it is held", said)


@pytest.mark.parametrize(("answer", "said"), [("release", "asked for its release"), ("give_up", "given it up")])
def test_a_decision_that_was_made_is_told(tmp_path, answer, said):
    story = Story()
    story.submit()
    story.answer(answer, story.held())
    assert said in why(story, tmp_path).next


def test_another_way_for_the_data_is_told_before_and_after(tmp_path):
    story = Story()
    story.submit()
    story.answer("release", story.held())
    story.released()
    hold = story.held()
    by = rules(inputs=PLUGIN)
    assert "the agent fetches them" in why(story, tmp_path, by=by).next
    story.answer("give_up", hold)
    story.gone()
    assert why(story, tmp_path, now=1e6, by=by).next.endswith("with its data fetched by the agent")
    story.supervise("decided", action="submit", id="0-2", reason="r", amendment={"agent_brings": True})
    told = why(story, tmp_path, by=by)
    assert told.done == "1 attempt failed; it was let go 1 time; attempt 2: with its data fetched by the agent"


def test_a_run_that_was_stopped(tmp_path):
    story = Story(*map(str, range(10)))
    for number, site in enumerate("AAB"):
        story.fail_at(site, 1, "step_failed", str(number))
        story.verdict("failed", str(number))
    stopped = {"kind": "run_stopped", "stage": "start", "blame": "user", "transient": False, "detail": "d"}
    for number in range(3, 10):
        story.verdict("failed", str(number), failure=stopped)
    assert explain_run(setting(story, tmp_path)) == [
        "stopped after 3 identical failures on 2 sites; 7 jobs were not started"
    ]


def test_what_packtrain_itself_ended_is_no_evidence(tmp_path):
    story = Story()
    story.submit()
    story.cancel()
    story.gone(detail="it was cancelled before it started")
    stopped = {"kind": "run_stopped", "stage": "start", "blame": "user", "transient": False, "detail": "not started"}
    story.verdict("failed", failure=stopped)
    told = why(story, tmp_path)
    assert (told.evidence, told.done, told.exit_code) == ((), "r", 25)


def test_a_job_that_succeeded_after_failures_tells_them(tmp_path):
    story = Story()
    story.fail_at("Ada", 1, "evicted", host="a1")
    story.succeed_at("Bob", 2)
    story.verdict("succeeded")
    told = why(story, tmp_path)
    assert (told.failed, told.done) == (False, "1 attempt failed")
    assert told.evidence == ("attempt 1 on a1 at Ada, 9.0 s, exit code 63: evicted",)


def test_what_is_told_has_a_form_for_machines(tmp_path):
    story = Story()
    story.fail(1, "disk_full")
    told = why(story, tmp_path)
    assert set(told.to_data()) >= {"job", "what", "evidence", "fault", "done", "next", "remedy", "exit_code"}
    assert next(label for label, _ in told.lines()) == "what"


def test_a_second_copy_and_which_of_both_was_first(tmp_path):
    story = Story()
    story.submit()
    story.start("agent-1")
    reason = "on w1 at here it needs about 4.0 h more, elsewhere about 2.0 h"
    story.supervise("decided", action="submit", id="0-2", reason=reason, copy_of="0-1")
    assert why(story, tmp_path).what == "it runs on w1, in the stage start", "the copy only waits"
    assert why(story, tmp_path).done == f"attempt 2 was started beside attempt 1: {reason}"
    story.start("agent-2", "0-2")
    story.end("succeeded", "agent-2")
    story.supervise("decided", action="accept", target="0-2", reason="r")
    story.supervise("decided", action="cancel", target="0-1", reason="attempt 2 succeeded first")
    story.verdict("succeeded", emitter="agent-2")
    story.end("failed", "agent-1", failure="terminated")
    told = why(story, tmp_path)
    assert told.what == "it succeeded: attempt 2 took 9.0 s and passed its checks"
    assert told.done.endswith("elsewhere about 2.0 h; attempt 2 succeeded first")
    assert not told.failed and told.evidence == ()


def test_a_job_that_was_moved(tmp_path):
    story = Story()
    story.submit()
    story.start("agent-1")
    story.supervise("decided", action="move", target="0-1", reason="it is late", avoid_machines=["w1"])
    story.end("continue", "agent-1")
    story.gone()
    told = why(story, tmp_path)
    assert told.done == "attempt 1 was moved: it is late"
    assert told.next == "another attempt follows now, not on w1"


def test_places_known_from_earlier_runs(tmp_path):
    about = Setting(Story().state, RunFolder(tmp_path), True, known_bad={"Slow": "trainings take 3 times as long"})
    assert explain_run(about) == ["Slow is avoided because of earlier runs: trainings take 3 times as long"]
