"""Tests of if, catch, finally, for, launch and use, with real processes."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from packtrain.errors import FailedError
from packtrain.plan import ForAction, GroupAction, LaunchAction, Step, UseAction
from tests.support.step_harness import (
    StepHarness,
    assert_process_ended,
    make_env_vars,
    make_launch_step,
    make_step,
    make_trace_step,
    run_expecting_failure,
)


@pytest.fixture
def harness(tmp_path):
    harness = StepHarness(tmp_path)
    yield harness
    harness.close()


# if


@pytest.mark.parametrize(
    ("condition", "runs"),
    [("a == a", True), ("a == b", False), ("$FROM_JOB == yes", True), ("$OWN -gt 3", True), ("-e nothing", False)],
)
def test_if(harness, condition, runs):
    harness.run(
        make_trace_step("ran", condition=condition, env=make_env_vars(OWN="4")), env=make_env_vars(FROM_JOB="yes")
    )
    assert harness.read_trace() == (["ran"] if runs else [])
    assert ("is skipped" in harness.notices()) is not runs


@pytest.mark.parametrize("condition", ["a b", "a ==", "-f", "( a", "a =~ (", "$(exit"])
def test_invalid_condition_is_an_error(harness, condition):
    error = run_expecting_failure(harness, make_trace_step("ran", name="odd", condition=condition))
    assert error.kind == "condition_invalid"
    assert f'the condition [[ {condition} ]] of step "odd" cannot be evaluated' in error.detail
    assert harness.read_trace() == []


def test_machine_without_bash(tmp_path):
    harness = StepHarness(tmp_path, host_environment={"PATH": str(tmp_path)})
    assert (
        "there is no bash on this machine"
        in run_expecting_failure(harness, make_trace_step("ran", condition="a == a")).detail
    )
    harness.close()


def test_skipped_step_runs_no_finally(harness):
    harness.run(
        make_trace_step("ran", condition="a == b", finally_=(make_trace_step("finally"),)), make_trace_step("next")
    )
    assert harness.read_trace() == ["next"]


# catch and finally


def test_catch_handles_error_and_level_continues(harness):
    caught = make_step("echo caught-$DEEPSQUARE_ERROR_CODE >> trace")
    harness.run(
        make_step("exit 7", name="x", catch=(caught,), finally_=(make_trace_step("finally"),)), make_trace_step("next")
    )
    assert harness.read_trace() == ["caught-7", "finally", "next"]
    assert "handled its failure" in harness.notices()


def test_catch_needs_an_error(harness):
    harness.run(make_trace_step("ran", catch=(make_trace_step("catch"),), finally_=(make_trace_step("finally"),)))
    assert harness.read_trace() == ["ran", "finally"]


@pytest.mark.parametrize("catch", [(), (make_step("exit 8"),), (make_step("true"),)])
@pytest.mark.parametrize("code", [0, 7])
def test_finally_has_the_error_code(harness, catch, code):
    """The code is that of the step, also if its `catch` handled the failure or failed too."""
    last = make_step("echo finally-$DEEPSQUARE_ERROR_CODE >> trace")
    with suppress(FailedError):
        harness.run(make_step(f"exit {code}", catch=catch, finally_=(last,)))
    assert harness.read_trace() == [f"finally-{code}"]


def test_finally_runs_without_catch(harness):
    error = run_expecting_failure(
        harness, make_step("exit 7", name="x", finally_=(make_trace_step("finally"),)), make_trace_step("never")
    )
    assert 'step "x" ended with exit code 7' in error.detail
    assert harness.read_trace() == ["finally"]


def test_failed_catch_keeps_first_error(harness):
    error = run_expecting_failure(
        harness, make_step("exit 7", name="x", catch=(make_step("exit 8"),), finally_=(make_trace_step("finally"),))
    )
    assert 'step "x" ended with exit code 7' in error.detail
    assert 'step "x/catch/step-1" ended with exit code 8' in harness.notices()
    assert harness.read_trace() == ["finally"]


def test_failed_finally_is_an_error(harness):
    error = run_expecting_failure(
        harness, make_trace_step("ran", name="x", finally_=(make_step("exit 9"),)), make_trace_step("never")
    )
    assert 'step "x/finally/step-1" ended with exit code 9' in error.detail
    assert harness.read_trace() == ["ran"]


def test_catch_of_group_gets_code_of_inner_step(harness):
    group = GroupAction((make_step("exit 6"), make_trace_step("never")))
    harness.run(
        Step("g", group, catch=(make_step("echo $DEEPSQUARE_ERROR_CODE >> trace"),)),
        make_step("kill -TERM $$", catch=(make_step("echo $DEEPSQUARE_ERROR_CODE >> trace"),)),
    )
    assert harness.read_trace() == ["6", "143"]


# for


def test_sequential_for_stops_at_first_failure(harness):
    body = make_step('echo $item >> trace; [ "$item" != b ]', name="try")
    error = run_expecting_failure(harness, Step("loop", ForAction("item", ("a", "b", "c"), False, (body,))))
    assert harness.read_trace() == ["a", "b"]
    assert 'step "loop/1/try"' in error.detail
    assert harness.read_log("loop.0.try.out") == ""


def test_parallel_for_runs_all_to_the_end(harness):
    # Each body waits for all three to be up; the failing one does not end the others.
    body = "touch up.$index; until [ -e up.1 ] && [ -e up.2 ] && [ -e up.3 ]; do sleep 0.01; done; "
    body += "[ $index != 2 ] || exit 4; until [ -e down ]; do [ $index = 3 ] && touch down; sleep 0.01; done; "
    error = run_expecting_failure(
        harness,
        Step("loop", ForAction("index", ("1", "2", "3"), True, (make_step(body, name="b"), make_trace_step("done")))),
    )
    assert 'step "loop/1/b" ended with exit code 4' in error.detail
    assert harness.read_trace() == ["done", "done"]


def test_loop_variable_is_local(harness):
    harness.run(
        Step("loop", ForAction("item", ("a",), False, (make_trace_step("$item"),))),
        make_step("echo ${item:-none} >> trace"),
    )
    assert harness.read_trace() == ["a", "none"]


# launch and dependsOn


def test_launch_ends_with_its_level(harness):
    server = make_step("trap 'echo ended >> trace; exit 0' TERM; touch up; while :; do sleep 0.01; done", name="serve")
    harness.run(
        make_launch_step("server", server, make_trace_step("never")),
        make_step("until [ -e up ]; do sleep 0.01; done"),
        make_trace_step("level"),
    )
    assert harness.read_trace() == ["level", "ended"]
    assert "failed" not in harness.notices()


def test_launch_gets_its_signal(harness):
    server = make_step("trap 'echo usr1 >> trace; exit 0' USR1; touch up; while :; do sleep 0.01; done")
    harness.run(
        make_launch_step("s", server, signal_at_exit=signal.SIGUSR1), make_step("until [ -e up ]; do sleep 0.01; done")
    )
    assert harness.read_trace() == ["usr1"]


def test_signal_0_waits_for_launch(harness):
    late = make_step("until [ -e go ]; do sleep 0.01; done; sleep 0.2; echo late >> trace")
    harness.run(make_launch_step("s", late, signal_at_exit=0), make_trace_step("level"), make_step("touch go"))
    assert harness.read_trace() == ["level", "late"]


def test_launch_is_killed_after_grace_period(tmp_path):
    harness = StepHarness(tmp_path, grace_s=0.3)
    ignores_term = make_step("trap '' TERM; echo $$ > pid; touch up; while :; do sleep 0.01; done")
    harness.run(make_launch_step("s", ignores_term), make_step("until [ -e up ]; do sleep 0.01; done"))
    assert_process_ended(int((harness.sandbox.root / "pid").read_text()))
    harness.close()


def test_depends_on_waits_for_handle(harness):
    slow = make_step("until [ -e go ]; do sleep 0.01; done; echo background >> trace")
    harness.run(
        make_launch_step("s", slow, handle="h"),
        make_trace_step("first"),
        make_step("touch go"),
        make_trace_step("after", depends_on=("h",)),
    )
    assert harness.read_trace() == ["first", "background", "after"]


def test_depends_on_precedes_condition(harness):
    slow = make_step("sleep 0.2; touch made")
    harness.run(
        make_launch_step("s", slow, handle="h"), make_trace_step("after", depends_on=("h",), condition="-e made")
    )
    assert harness.read_trace() == ["after"]


def test_failed_launch_does_not_fail_level(harness):
    # [d]: the journal also contains this command, which must not match itself.
    wait_for_notice = make_step('until grep -q "launche[d] step" ../journal.jsonl; do sleep 0.01; done')
    harness.run(make_launch_step("s", make_step("exit 3"), handle="h"), wait_for_notice, make_trace_step("level"))
    assert harness.read_trace() == ["level"]
    assert 'the launched step "s" failed: step "s/step-1" ended with exit code 3' in harness.notices()


def test_dependency_on_failed_launch_fails(harness):
    caught = make_step("echo caught-$DEEPSQUARE_ERROR_CODE >> trace")
    error = run_expecting_failure(
        harness,
        make_launch_step("s", make_step("exit 3"), handle="h"),
        make_trace_step("never", name="next", depends_on=("h",)),
    )
    assert error.kind == "step_failed"
    assert 'step "next" depends on "h", which failed: step "s/step-1" ended with exit code 3' in error.detail
    harness.run(
        make_launch_step("s", make_step("exit 3"), handle="h"),
        make_trace_step("never", depends_on=("h",), catch=(caught,)),
    )
    assert harness.read_trace() == ["caught-3"]


def test_skipped_launch_is_not_awaited(harness):
    skipped = Step("s", LaunchAction("h", 15, (make_trace_step("never"),)), condition="a == b")
    harness.run(skipped, make_trace_step("after", depends_on=("h",)))
    assert harness.read_trace() == ["after"]


def test_inner_launch_ends_with_outer(harness):
    inner = make_step("echo $$ > pid; touch up; exec sleep 60")
    outer = make_launch_step("outer", make_launch_step("inner", inner), make_step("sleep 60"))
    harness.run(outer, make_step("until [ -e up ]; do sleep 0.01; done"))
    assert_process_ended(int((harness.sandbox.root / "pid").read_text()))


# use


def test_use_arguments_and_outputs(harness):
    steps = (
        make_step('echo "$WHO $FROM_JOB $PLAIN" >> trace'),
        make_step('echo "GREETING=hello  $WHO=" >> $DEEPSQUARE_ENV; echo "INNER=x" >> $DEEPSQUARE_ENV'),
        make_step('echo "${INNER:-none}" >> trace'),
    )
    use = Step("module", UseAction("git", make_env_vars(WHO="you"), "MOD", steps, ("GREETING", "MISSING")))
    after = make_step('echo "${WHO:-gone} ${INNER:-gone} $PLAIN" >> trace; echo "[$MOD_GREETING]" > greeting')
    harness.run(make_step("echo PLAIN=p >> $DEEPSQUARE_ENV"), use, after, env=make_env_vars(FROM_JOB="job"))
    assert harness.read_trace() == ["you", "job", "p", "x", "gone", "gone", "p"]
    assert (harness.sandbox.root / "greeting").read_text() == "[hello  you=]\n"
    assert "did not write its output MISSING" in harness.notices()


def test_use_without_a_prefix(harness):
    use = Step("m", UseAction("git", (), "", (make_step("echo OUT=1 >> $DEEPSQUARE_ENV"),), ("OUT",)))
    harness.run(make_step("printf OPEN=line >> $DEEPSQUARE_ENV"), use, make_step("echo $OUT $OPEN >> trace"))
    assert harness.read_trace() == ["1", "line"]
