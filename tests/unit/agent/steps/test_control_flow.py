"""if, catch, finally, for, launch and use against their documented meaning, with real processes."""

from __future__ import annotations

import signal

import pytest

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
def bench(tmp_path):
    made = StepHarness(tmp_path)
    yield made
    made.close()


# if


@pytest.mark.parametrize(
    ("condition", "ran"),
    [("a == a", True), ("a == b", False), ("$FROM_JOB == yes", True), ("$OWN -gt 3", True), ("-e nothing", False)],
)
def test_if(bench, condition, ran):
    bench.run(
        make_trace_step("ran", condition=condition, env=make_env_vars(OWN="4")), env=make_env_vars(FROM_JOB="yes")
    )
    assert bench.read_trace() == (["ran"] if ran else [])
    assert ("is skipped" in bench.notices()) is not ran


@pytest.mark.parametrize("condition", ["a b", "a ==", "-f", "( a", "a =~ (", "$(exit"])
def test_an_invalid_condition_is_an_error_not_a_yes(bench, condition):
    error = run_expecting_failure(bench, make_trace_step("ran", name="odd", condition=condition))
    assert error.kind == "condition_invalid"
    assert f'step "odd" has the condition [[ {condition} ]]' in error.detail
    assert bench.read_trace() == []


def test_a_machine_without_bash(tmp_path):
    bench = StepHarness(tmp_path, host_environment={"PATH": str(tmp_path)})
    assert (
        "there is no bash on this machine"
        in run_expecting_failure(bench, make_trace_step("ran", condition="a == a")).detail
    )
    bench.close()


def test_a_skipped_step_runs_no_finally(bench):
    bench.run(
        make_trace_step("ran", condition="a == b", finally_=(make_trace_step("finally"),)), make_trace_step("next")
    )
    assert bench.read_trace() == ["next"]


# catch and finally


def test_a_catch_handles_the_error_and_the_level_goes_on(bench):
    caught = make_step("echo caught-$DEEPSQUARE_ERROR_CODE >> trace")
    bench.run(
        make_step("exit 7", name="x", catch=(caught,), finally_=(make_trace_step("finally"),)), make_trace_step("next")
    )
    assert bench.read_trace() == ["caught-7", "finally", "next"]
    assert "is handled by its catch" in bench.notices()


def test_a_catch_is_not_run_without_an_error(bench):
    bench.run(make_trace_step("ran", catch=(make_trace_step("catch"),), finally_=(make_trace_step("finally"),)))
    assert bench.read_trace() == ["ran", "finally"]


def test_without_a_catch_finally_runs_and_the_error_stays(bench):
    error = run_expecting_failure(
        bench, make_step("exit 7", name="x", finally_=(make_trace_step("finally"),)), make_trace_step("never")
    )
    assert 'step "x" ended with exit code 7' in error.detail
    assert bench.read_trace() == ["finally"]


def test_a_catch_that_fails_leaves_the_first_error(bench):
    error = run_expecting_failure(
        bench, make_step("exit 7", name="x", catch=(make_step("exit 8"),), finally_=(make_trace_step("finally"),))
    )
    assert 'step "x" ended with exit code 7' in error.detail
    assert 'step "x/catch/step-1" ended with exit code 8' in bench.notices()
    assert bench.read_trace() == ["finally"]


def test_a_failing_finally_counts(bench):
    error = run_expecting_failure(
        bench, make_trace_step("ran", name="x", finally_=(make_step("exit 9"),)), make_trace_step("never")
    )
    assert 'step "x/finally/step-1" ended with exit code 9' in error.detail
    assert bench.read_trace() == ["ran"]


def test_the_catch_of_a_group_gets_the_code_of_the_step_inside(bench):
    group = GroupAction((make_step("exit 6"), make_trace_step("never")))
    bench.run(
        Step("g", group, catch=(make_step("echo $DEEPSQUARE_ERROR_CODE >> trace"),)),
        make_step("kill -TERM $$", catch=(make_step("echo $DEEPSQUARE_ERROR_CODE >> trace"),)),
    )
    assert bench.read_trace() == ["6", "143"]


# for


def test_for_in_sequence_stops_at_the_first_failure(bench):
    body = make_step('echo $item >> trace; [ "$item" != b ]', name="try")
    error = run_expecting_failure(bench, Step("loop", ForAction("item", ("a", "b", "c"), False, (body,))))
    assert bench.read_trace() == ["a", "b"]
    assert 'step "loop/1/try"' in error.detail
    assert bench.read_log("loop.0.try.out") == ""


def test_for_in_parallel_runs_all_at_once_and_to_their_ends(bench):
    # Each body waits for all three to be up; the failing one does not end the others.
    body = "touch up.$index; until [ -e up.1 ] && [ -e up.2 ] && [ -e up.3 ]; do sleep 0.01; done; "
    body += "[ $index != 2 ] || exit 4; until [ -e down ]; do [ $index = 3 ] && touch down; sleep 0.01; done; "
    error = run_expecting_failure(
        bench,
        Step("loop", ForAction("index", ("1", "2", "3"), True, (make_step(body, name="b"), make_trace_step("done")))),
    )
    assert 'step "loop/1/b" ended with exit code 4' in error.detail
    assert bench.read_trace() == ["done", "done"]


def test_the_variable_ends_with_the_loop(bench):
    bench.run(
        Step("loop", ForAction("item", ("a",), False, (make_trace_step("$item"),))),
        make_step("echo ${item:-none} >> trace"),
    )
    assert bench.read_trace() == ["a", "none"]


# launch and dependsOn


def test_a_launch_runs_beside_the_level_and_is_ended_with_it(bench):
    server = make_step("trap 'echo ended >> trace; exit 0' TERM; touch up; while :; do sleep 0.01; done", name="serve")
    bench.run(
        make_launch_step("server", server, make_trace_step("never")),
        make_step("until [ -e up ]; do sleep 0.01; done"),
        make_trace_step("level"),
    )
    assert bench.read_trace() == ["level", "ended"]
    assert "failed" not in bench.notices()


def test_the_signal_is_the_one_asked_for(bench):
    server = make_step("trap 'echo usr1 >> trace; exit 0' USR1; touch up; while :; do sleep 0.01; done")
    bench.run(
        make_launch_step("s", server, signal_at_exit=signal.SIGUSR1), make_step("until [ -e up ]; do sleep 0.01; done")
    )
    assert bench.read_trace() == ["usr1"]


def test_signal_0_awaits_the_launch_to_its_end(bench):
    late = make_step("until [ -e go ]; do sleep 0.01; done; sleep 0.2; echo late >> trace")
    bench.run(make_launch_step("s", late, signal_at_exit=0), make_trace_step("level"), make_step("touch go"))
    assert bench.read_trace() == ["level", "late"]


def test_a_launch_that_ignores_its_signal_is_killed_after_the_grace_period(tmp_path):
    bench = StepHarness(tmp_path, grace_s=0.3)
    deaf = make_step("trap '' TERM; echo $$ > pid; touch up; while :; do sleep 0.01; done")
    bench.run(make_launch_step("s", deaf), make_step("until [ -e up ]; do sleep 0.01; done"))
    assert_process_ended(int((bench.sandbox.root / "pid").read_text()))
    bench.close()


def test_depends_on_waits_for_the_handle(bench):
    slow = make_step("until [ -e go ]; do sleep 0.01; done; echo background >> trace")
    bench.run(
        make_launch_step("s", slow, handle="h"),
        make_trace_step("first"),
        make_step("touch go"),
        make_trace_step("after", depends_on=("h",)),
    )
    assert bench.read_trace() == ["first", "background", "after"]


def test_depends_on_is_awaited_before_the_condition(bench):
    slow = make_step("sleep 0.2; touch made")
    bench.run(make_launch_step("s", slow, handle="h"), make_trace_step("after", depends_on=("h",), condition="-e made"))
    assert bench.read_trace() == ["after"]


def test_a_failed_launch_fails_only_what_depends_on_it(bench):
    # [d]: the journal also holds this very command, which must not match itself.
    told = make_step('until grep -q "launche[d] step" ../journal.jsonl; do sleep 0.01; done')
    bench.run(make_launch_step("s", make_step("exit 3"), handle="h"), told, make_trace_step("level"))
    assert bench.read_trace() == ["level"]
    assert 'the launched step "s" failed: step "s/step-1" ended with exit code 3' in bench.notices()


def test_a_step_that_depends_on_a_failed_launch_fails(bench):
    caught = make_step("echo caught-$DEEPSQUARE_ERROR_CODE >> trace")
    error = run_expecting_failure(
        bench,
        make_launch_step("s", make_step("exit 3"), handle="h"),
        make_trace_step("never", name="next", depends_on=("h",)),
    )
    assert error.kind == "step_failed"
    assert 'step "next" depends on "h", which failed: step "s/step-1" ended with exit code 3' in error.detail
    bench.run(
        make_launch_step("s", make_step("exit 3"), handle="h"),
        make_trace_step("never", depends_on=("h",), catch=(caught,)),
    )
    assert bench.read_trace() == ["caught-3"]


def test_a_handle_belongs_to_its_level_and_a_skipped_launch_is_not_awaited(bench):
    skipped = Step("s", LaunchAction("h", 15, (make_trace_step("never"),)), condition="a == b")
    bench.run(skipped, make_trace_step("after", depends_on=("h",)))
    assert bench.read_trace() == ["after"]


def test_a_launch_inside_a_launch_ends_with_it(bench):
    inner = make_step("echo $$ > pid; touch up; exec sleep 60")
    outer = make_launch_step("outer", make_launch_step("inner", inner), make_step("sleep 60"))
    bench.run(outer, make_step("until [ -e up ]; do sleep 0.01; done"))
    assert_process_ended(int((bench.sandbox.root / "pid").read_text()))


# use


def test_use_gives_arguments_and_takes_outputs(bench):
    steps = (
        make_step('echo "$WHO $FROM_JOB $PLAIN" >> trace'),
        make_step('echo "GREETING=hello  $WHO=" >> $DEEPSQUARE_ENV; echo "INNER=x" >> $DEEPSQUARE_ENV'),
        make_step('echo "${INNER:-none}" >> trace'),
    )
    use = Step("module", UseAction("git", make_env_vars(WHO="you"), "MOD", steps, ("GREETING", "MISSING")))
    after = make_step('echo "${WHO:-gone} ${INNER:-gone} $PLAIN" >> trace; echo "[$MOD_GREETING]" > greeting')
    bench.run(make_step("echo PLAIN=p >> $DEEPSQUARE_ENV"), use, after, env=make_env_vars(FROM_JOB="job"))
    assert bench.read_trace() == ["you", "job", "p", "x", "gone", "gone", "p"]
    assert (bench.sandbox.root / "greeting").read_text() == "[hello  you=]\n"
    assert "did not write its output MISSING" in bench.notices()


def test_use_without_a_prefix(bench):
    use = Step("m", UseAction("git", (), "", (make_step("echo OUT=1 >> $DEEPSQUARE_ENV"),), ("OUT",)))
    bench.run(make_step("printf OPEN=line >> $DEEPSQUARE_ENV"), use, make_step("echo $OUT $OPEN >> trace"))
    assert bench.read_trace() == ["1", "line"]
