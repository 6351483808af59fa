"""Every kind of step against its documented meaning, with real processes."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from steps_bench import Bench, env, mark, sh

from packtrain.errors import FailedError
from packtrain.plan import For, Group, Launch, RunResources, Step, Use


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


def fails(bench, *steps, **job):
    with pytest.raises(FailedError) as caught:
        bench.run(*steps, **job)
    return caught.value


# run


def test_steps_run_in_order_in_the_sandbox(bench):
    bench.run(mark("one"), mark("two"), sh("pwd", name="where"))
    assert bench.trace() == ["one", "two"]
    assert bench.log("where.out").strip() == str(bench.box.root)


def test_a_failing_step_stops_the_level_and_says_its_last_words(bench):
    error = fails(bench, sh("echo busy; echo 'no scipy' >&2; echo >&2; exit 3", name="train"), mark("never"))
    assert error.kind == "step_failed"
    assert error.detail == 'step "train" ended with exit code 3; its last words: no scipy'
    assert bench.trace() == []
    assert bench.log("train.out") == "busy\n"


def test_a_failing_step_without_words(bench):
    assert fails(bench, sh("exit 4")).detail == 'step "step-1" ended with exit code 4; it said nothing on stderr'


def test_a_step_killed_by_a_signal_is_named_with_a_hint(bench):
    error = fails(bench, sh("kill -9 $$", name="big"))
    assert error.kind == "step_failed"
    assert "was killed by signal SIGKILL, often a sign of too little memory" in error.detail
    assert bench.events("step.ended")[0]["exit_code"] == 137


def test_a_shell_that_does_not_exist(bench):
    error = fails(bench, sh("true", shell="/bin/no-such-shell"))
    assert error.kind == "step_failed"
    assert "could not be started" in error.detail
    assert "/bin/no-such-shell" in error.detail


def test_another_shell_and_another_folder(bench):
    bench.run(sh('[[ -n "$BASH_VERSION" ]] && pwd', name="b", shell="/bin/bash", work_dir=str(bench.box.output)))
    assert bench.log("b.out").strip() == str(bench.box.output)


def test_events_of_a_step(bench):
    bench.run(sh("exit 0", name="train"))
    assert bench.events("step.started") == [{"step": "train", "command": "exit 0"}]
    (ended,) = bench.events("step.ended")
    assert (ended["step"], ended["exit_code"]) == ("train", 0)
    assert 0 <= ended["seconds"] < 5


def test_stdin_is_empty(bench):
    bench.run(sh("cat; echo end", name="in"))
    assert bench.log("in.out") == "end\n"


def test_a_broken_pipe_ends_a_program_as_usual(bench):
    bench.run(sh("yes | head -1", name="pipe"))
    assert bench.log("pipe.err") == ""


def test_an_entrypoint_needs_a_container(bench):
    error = fails(bench, sh("", name="x"))
    assert error.kind == "unsupported"
    assert error.detail.startswith('step "x" was not started: ')
    bench.run(sh("", catch=(mark("caught"),)))
    assert bench.trace() == ["caught"]


def test_a_variable_that_no_process_can_have(bench):
    error = fails(bench, sh("true", name="x", env=env(BAD="a\0b")))
    assert error.kind == "step_failed"
    assert 'step "x" could not be started' in error.detail


def test_steps_leave_no_open_files(bench):
    bench.run(sh("true", name="warm"))
    gc.collect()  # what earlier tests left open may be closed at any time
    before = len(os.listdir("/proc/self/fd"))
    bench.run(sh("true"), sh("x", shell="/no/shell", catch=(sh("true"),)), mark("a", condition="a == b"))
    assert len(os.listdir("/proc/self/fd")) <= before


def test_tasks_run_at_once_and_know_their_rank(bench):
    # Each copy waits for the other's file: one after the other they would never end.
    wait = 'touch up.$RANK; until [ -e up.$((1 - RANK)) ]; do sleep 0.01; done; echo "$PACKTRAIN_TASK $RANK'
    facts = ' $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $NTASKS $MASTER_PORT"'
    bench.run(sh(wait + facts, name="ddp", resources=RunResources(tasks=2)))
    first, second = bench.log("ddp.0.out").split(), bench.log("ddp.1.out").split()
    assert first[:-1] == ["0", "0", "0", "2", "2", "127.0.0.1", "2"]
    assert second[:-1] == ["1", "1", "1", "2", "2", "127.0.0.1", "2"]
    assert first[-1] == second[-1]
    assert int(first[-1]) > 0
    assert len(bench.events("step.started")) == 1


def test_a_failing_task_ends_the_others_and_is_the_one_reported(bench):
    command = "[ $RANK = 1 ] || exec sleep 60; echo rank one is ill >&2; exit 5"
    started = time.monotonic()
    error = fails(bench, sh(command, name="ddp", resources=RunResources(tasks=3)))
    assert error.detail == 'step "ddp/1" ended with exit code 5; its last words: rank one is ill'
    assert time.monotonic() - started < 5


def test_a_background_process_neither_hangs_the_step_nor_outlives_it(bench):
    started = time.monotonic()
    bench.run(sh("sleep 60 & echo $! > pid; echo said", name="bg"))
    assert time.monotonic() - started < 5
    assert bench.log("bg.out") == "said\n"
    assert_gone(int((bench.box.root / "pid").read_text()))


def test_a_daemon_that_left_the_group_does_not_hang_the_step(bench):
    started = time.monotonic()
    bench.run(sh("setsid sleep 20 & echo said", name="daemon"))
    assert time.monotonic() - started < 5
    assert bench.log("daemon.out") == "said\n"


def assert_gone(pid: int) -> None:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} still lives")


# group, names, logs


def test_groups_nest_and_name_their_logs(bench):
    inner = Step("inner", Group((sh("echo deep", name="a/b"), sh("echo unnamed"))))
    bench.run(Step("outer", Group((inner,))))
    assert bench.log("outer.inner.a_b.out") == "deep\n"
    assert bench.log("outer.inner.step-2.out") == "unnamed\n"
    assert [e["step"] for e in bench.events("step.started")] == ["outer/inner/a_b", "outer/inner/step-2"]


def test_steps_of_one_name_have_logs_of_their_own(bench):
    bench.run(sh("echo 1", name="x"), sh("echo 2", name="x"), sh("echo 3", name="../x y"))
    assert (bench.log("x.out"), bench.log("x-2.out"), bench.log("_x_y.out")) == ("1\n", "2\n", "3\n")


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


def launch(name, *steps, handle="", signal_at_exit=signal.SIGTERM):
    return Step(name, Launch(handle, int(signal_at_exit), steps))


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
    started = time.monotonic()
    bench.run(launch("s", deaf), sh("until [ -e up ]; do sleep 0.01; done"))
    assert time.monotonic() - started < 5
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


# stop


def test_a_stop_ends_all_processes_and_starts_nothing_more(bench):
    sleeper = sh("echo $$ >> trace; exec sleep 60", finally_=(mark("finally"),), catch=(mark("catch"),))
    loop = Step("loop", For("item", ("1", "2"), True, (sleeper,)), finally_=(mark("finally"),))

    def request():
        deadline = time.monotonic() + 10
        while len(bench.trace()) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        bench.stop.request("wall_time", "the time is over")

    threading.Thread(target=request).start()
    started = time.monotonic()
    error = fails(bench, launch("s", sleeper), loop, mark("never"))
    assert (error.kind, error.detail) == ("wall_time", "the time is over")
    assert time.monotonic() - started < 10
    pids = bench.trace()
    assert len(pids) == 3
    for pid in pids:
        assert_gone(int(pid))


def test_term_handled_with_exit_0_is_still_a_stop(bench):
    def request():
        while not (bench.box.root / "up").exists():
            time.sleep(0.01)
        bench.stop.request("terminated", "TERM")

    threading.Thread(target=request).start()
    command = "trap 'echo saved >> trace; exit 0' TERM; touch up; while :; do sleep 0.01; done"
    assert fails(bench, sh(command), mark("never")).kind == "terminated"
    assert bench.trace() == ["saved"]


def test_the_agents_own_term_reaches_the_step(tmp_path):
    program = (
        "import sys\nfrom pathlib import Path\nsys.path.insert(0, sys.argv[1])\n"
        "from steps_bench import Bench, sh\nbench = Bench(Path(sys.argv[2]))\nbench.stop.listen()\n"
        "wait = 'trap \"echo saved > trace; exit 0\" TERM; touch up; while :; do sleep 0.01; done'\n"
        "try:\n    bench.run(sh(wait))\n"
        "except Exception as error:\n    print(error)\nbench.close()\n"
    )
    argv = [sys.executable, "-c", program, os.path.dirname(__file__), str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as agent:
        while not (tmp_path / "sandbox/up").exists():
            assert agent.poll() is None
            time.sleep(0.01)
        agent.terminate()
        assert agent.communicate(timeout=20)[0] == "the agent received SIGTERM\n"
    assert (tmp_path / "sandbox/trace").read_text() == "saved\n"


def test_a_program_below_the_shell_has_the_grace_period_too(bench):
    """The shell dies of TERM at once; what it had started may still save."""

    def request():
        while not (bench.box.root / "up").exists():
            time.sleep(0.01)
        bench.stop.request("terminated", "TERM")

    threading.Thread(target=request).start()
    training = "trap 'sleep 1; echo saved > trace; exit 0' TERM; touch up; while :; do sleep 0.01; done"
    assert fails(bench, sh(f'sh -c "{training}" > quiet 2>&1; true')).kind == "terminated"
    assert bench.trace() == ["saved"]


def test_what_ignores_term_is_killed_after_the_grace_period(tmp_path):
    bench = Bench(tmp_path, grace_s=0.3)

    def request():
        while not (bench.box.root / "up").exists():
            time.sleep(0.01)
        bench.stop.request("terminated", "TERM")

    threading.Thread(target=request).start()
    command = "trap '' TERM; (trap '' TERM; sleep 60) & echo $! > pid; touch up; while :; do sleep 0.01; done"
    assert fails(bench, sh(command)).kind == "terminated"
    assert_gone(int((bench.box.root / "pid").read_text()))
    bench.close()


def test_after_a_stop_nothing_starts(bench):
    bench.stop.request("terminated", "TERM")
    assert fails(bench, mark("never")).kind == "terminated"
    assert bench.events("step.started") == []
    assert os.listdir(bench.box.home.logs) == []
