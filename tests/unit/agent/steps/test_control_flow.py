"""if, catch, finally, for, launch and use against their documented meaning, with real processes."""

from __future__ import annotations

import signal

import pytest

from packtrain.plan import For, Group, Launch, Step, Use
from tests.support.step_harness import Bench, assert_gone, env, fails, launch, mark, sh


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


# if


@pytest.mark.parametrize(
    ("condition", "ran"),
    [("a == a", True), ("a == b", False), ("$FROM_JOB == yes", True), ("$OWN -gt 3", True), ("-e nothing", False)],
)
def test_if(bench, condition, ran):
    bench.run(mark("ran", condition=condition, env=env(OWN="4")), env=env(FROM_JOB="yes"))
    assert bench.trace() == (["ran"] if ran else [])
    assert ("is skipped" in bench.notices()) is not ran


@pytest.mark.parametrize("condition", ["a b", "a ==", "-f", "( a", "a =~ (", "$(exit"])
def test_an_invalid_condition_is_an_error_not_a_yes(bench, condition):
    error = fails(bench, mark("ran", name="odd", condition=condition))
    assert error.kind == "condition_invalid"
    assert f'step "odd" has the condition [[ {condition} ]]' in error.detail
    assert bench.trace() == []


def test_a_machine_without_bash(tmp_path):
    bench = Bench(tmp_path, host_env={"PATH": str(tmp_path)})
    assert "there is no bash on this machine" in fails(bench, mark("ran", condition="a == a")).detail
    bench.close()


def test_a_skipped_step_runs_no_finally(bench):
    bench.run(mark("ran", condition="a == b", finally_=(mark("finally"),)), mark("next"))
    assert bench.trace() == ["next"]


# catch and finally


def test_a_catch_handles_the_error_and_the_level_goes_on(bench):
    caught = sh("echo caught-$DEEPSQUARE_ERROR_CODE >> trace")
    bench.run(sh("exit 7", name="x", catch=(caught,), finally_=(mark("finally"),)), mark("next"))
    assert bench.trace() == ["caught-7", "finally", "next"]
    assert "is handled by its catch" in bench.notices()


def test_a_catch_is_not_run_without_an_error(bench):
    bench.run(mark("ran", catch=(mark("catch"),), finally_=(mark("finally"),)))
    assert bench.trace() == ["ran", "finally"]


def test_without_a_catch_finally_runs_and_the_error_stays(bench):
    error = fails(bench, sh("exit 7", name="x", finally_=(mark("finally"),)), mark("never"))
    assert 'step "x" ended with exit code 7' in error.detail
    assert bench.trace() == ["finally"]


def test_a_catch_that_fails_leaves_the_first_error(bench):
    error = fails(bench, sh("exit 7", name="x", catch=(sh("exit 8"),), finally_=(mark("finally"),)))
    assert 'step "x" ended with exit code 7' in error.detail
    assert 'step "x/catch/step-1" ended with exit code 8' in bench.notices()
    assert bench.trace() == ["finally"]


def test_a_failing_finally_counts(bench):
    error = fails(bench, mark("ran", name="x", finally_=(sh("exit 9"),)), mark("never"))
    assert 'step "x/finally/step-1" ended with exit code 9' in error.detail
    assert bench.trace() == ["ran"]


def test_the_catch_of_a_group_gets_the_code_of_the_step_inside(bench):
    group = Group((sh("exit 6"), mark("never")))
    bench.run(
        Step("g", group, catch=(sh("echo $DEEPSQUARE_ERROR_CODE >> trace"),)),
        sh("kill -TERM $$", catch=(sh("echo $DEEPSQUARE_ERROR_CODE >> trace"),)),
    )
    assert bench.trace() == ["6", "143"]


# for


def test_for_in_sequence_stops_at_the_first_failure(bench):
    body = sh('echo $item >> trace; [ "$item" != b ]', name="try")
    error = fails(bench, Step("loop", For("item", ("a", "b", "c"), False, (body,))))
    assert bench.trace() == ["a", "b"]
    assert 'step "loop/1/try"' in error.detail
    assert bench.log("loop.0.try.out") == ""


def test_for_in_parallel_runs_all_at_once_and_to_their_ends(bench):
    # Each body waits for all three to be up; the failing one does not end the others.
    body = "touch up.$index; until [ -e up.1 ] && [ -e up.2 ] && [ -e up.3 ]; do sleep 0.01; done; "
    body += "[ $index != 2 ] || exit 4; until [ -e down ]; do [ $index = 3 ] && touch down; sleep 0.01; done; "
    error = fails(bench, Step("loop", For("index", ("1", "2", "3"), True, (sh(body, name="b"), mark("done")))))
    assert 'step "loop/1/b" ended with exit code 4' in error.detail
    assert bench.trace() == ["done", "done"]


def test_the_variable_ends_with_the_loop(bench):
    bench.run(Step("loop", For("item", ("a",), False, (mark("$item"),))), sh("echo ${item:-none} >> trace"))
    assert bench.trace() == ["a", "none"]


# launch and dependsOn


def test_a_launch_runs_beside_the_level_and_is_ended_with_it(bench):
    server = sh("trap 'echo ended >> trace; exit 0' TERM; touch up; while :; do sleep 0.01; done", name="serve")
    bench.run(launch("server", server, mark("never")), sh("until [ -e up ]; do sleep 0.01; done"), mark("level"))
    assert bench.trace() == ["level", "ended"]
    assert "failed" not in bench.notices()


def test_the_signal_is_the_one_asked_for(bench):
    server = sh("trap 'echo usr1 >> trace; exit 0' USR1; touch up; while :; do sleep 0.01; done")
    bench.run(launch("s", server, signal_at_exit=signal.SIGUSR1), sh("until [ -e up ]; do sleep 0.01; done"))
    assert bench.trace() == ["usr1"]


def test_signal_0_awaits_the_launch_to_its_end(bench):
    late = sh("until [ -e go ]; do sleep 0.01; done; sleep 0.2; echo late >> trace")
    bench.run(launch("s", late, signal_at_exit=0), mark("level"), sh("touch go"))
    assert bench.trace() == ["level", "late"]


def test_a_launch_that_ignores_its_signal_is_killed_after_the_grace_period(tmp_path):
    bench = Bench(tmp_path, grace_s=0.3)
    deaf = sh("trap '' TERM; echo $$ > pid; touch up; while :; do sleep 0.01; done")
    bench.run(launch("s", deaf), sh("until [ -e up ]; do sleep 0.01; done"))
    assert_gone(int((bench.box.root / "pid").read_text()))
    bench.close()


def test_depends_on_waits_for_the_handle(bench):
    slow = sh("until [ -e go ]; do sleep 0.01; done; echo background >> trace")
    bench.run(launch("s", slow, handle="h"), mark("first"), sh("touch go"), mark("after", depends_on=("h",)))
    assert bench.trace() == ["first", "background", "after"]


def test_depends_on_is_awaited_before_the_condition(bench):
    slow = sh("sleep 0.2; touch made")
    bench.run(launch("s", slow, handle="h"), mark("after", depends_on=("h",), condition="-e made"))
    assert bench.trace() == ["after"]


def test_a_failed_launch_fails_only_what_depends_on_it(bench):
    # [d]: the journal also holds this very command, which must not match itself.
    told = sh('until grep -q "launche[d] step" ../journal.jsonl; do sleep 0.01; done')
    bench.run(launch("s", sh("exit 3"), handle="h"), told, mark("level"))
    assert bench.trace() == ["level"]
    assert 'the launched step "s" failed: step "s/step-1" ended with exit code 3' in bench.notices()


def test_a_step_that_depends_on_a_failed_launch_fails(bench):
    caught = sh("echo caught-$DEEPSQUARE_ERROR_CODE >> trace")
    error = fails(bench, launch("s", sh("exit 3"), handle="h"), mark("never", name="next", depends_on=("h",)))
    assert error.kind == "step_failed"
    assert 'step "next" depends on "h", which failed: step "s/step-1" ended with exit code 3' in error.detail
    bench.run(launch("s", sh("exit 3"), handle="h"), mark("never", depends_on=("h",), catch=(caught,)))
    assert bench.trace() == ["caught-3"]


def test_a_handle_belongs_to_its_level_and_a_skipped_launch_is_not_awaited(bench):
    skipped = Step("s", Launch("h", 15, (mark("never"),)), condition="a == b")
    bench.run(skipped, mark("after", depends_on=("h",)))
    assert bench.trace() == ["after"]


def test_a_launch_inside_a_launch_ends_with_it(bench):
    inner = sh("echo $$ > pid; touch up; exec sleep 60")
    outer = launch("outer", launch("inner", inner), sh("sleep 60"))
    bench.run(outer, sh("until [ -e up ]; do sleep 0.01; done"))
    assert_gone(int((bench.box.root / "pid").read_text()))


# use


def test_use_gives_arguments_and_takes_outputs(bench):
    steps = (
        sh('echo "$WHO $FROM_JOB $PLAIN" >> trace'),
        sh('echo "GREETING=hello  $WHO=" >> $DEEPSQUARE_ENV; echo "INNER=x" >> $DEEPSQUARE_ENV'),
        sh('echo "${INNER:-none}" >> trace'),
    )
    use = Step("module", Use("git", env(WHO="you"), "MOD", steps, ("GREETING", "MISSING")))
    after = sh('echo "${WHO:-gone} ${INNER:-gone} $PLAIN" >> trace; echo "[$MOD_GREETING]" > greeting')
    bench.run(sh("echo PLAIN=p >> $DEEPSQUARE_ENV"), use, after, env=env(FROM_JOB="job"))
    assert bench.trace() == ["you", "job", "p", "x", "gone", "gone", "p"]
    assert (bench.box.root / "greeting").read_text() == "[hello  you=]\n"
    assert "did not write its output MISSING" in bench.notices()


def test_use_without_a_prefix(bench):
    use = Step("m", Use("git", (), "", (sh("echo OUT=1 >> $DEEPSQUARE_ENV"),), ("OUT",)))
    bench.run(sh("printf OPEN=line >> $DEEPSQUARE_ENV"), use, sh("echo $OUT $OPEN >> trace"))
    assert bench.trace() == ["1", "line"]
