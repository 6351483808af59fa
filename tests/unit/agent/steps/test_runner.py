"""Steps, their tasks, names and ends against its documented meaning, with real processes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from packtrain.plan import ForAction, GroupAction, Step, StepResources
from tests.support.paths import PROJECT_ROOT
from tests.support.step_harness import (
    StepHarness,
    assert_process_ended,
    make_env_vars,
    make_launch_step,
    make_step,
    make_trace_step,
    run_expecting_failure,
)

SLEEP_S = 60  # of what has to be ended: nothing takes so long by itself, whatever the load


@pytest.fixture
def bench(tmp_path):
    made = StepHarness(tmp_path)
    yield made
    made.close()


# run


def test_steps_run_in_order_in_the_sandbox(bench):
    bench.run(make_trace_step("one"), make_trace_step("two"), make_step("pwd", name="where"))
    assert bench.read_trace() == ["one", "two"]
    assert bench.read_log("where.out").strip() == str(bench.sandbox.root)


def test_a_failing_step_stops_the_level_and_says_its_last_words(bench):
    error = run_expecting_failure(
        bench, make_step("echo busy; echo 'no scipy' >&2; echo >&2; exit 3", name="train"), make_trace_step("never")
    )
    assert error.kind == "step_failed"
    assert error.detail == 'step "train" ended with exit code 3; its last words: no scipy'
    assert bench.read_trace() == []
    assert bench.read_log("train.out") == "busy\n"


def test_a_failing_step_without_words(bench):
    assert (
        run_expecting_failure(bench, make_step("exit 4")).detail
        == 'step "step-1" ended with exit code 4; it said nothing on stderr'
    )


def test_a_step_killed_by_a_signal_is_named_with_a_hint(bench):
    error = run_expecting_failure(bench, make_step("kill -9 $$", name="big"))
    assert error.kind == "step_failed"
    assert "was killed by signal SIGKILL, often a sign of too little memory" in error.detail
    assert bench.events("step.ended")[0]["exit_code"] == 137


def test_a_shell_that_does_not_exist(bench):
    error = run_expecting_failure(bench, make_step("true", shell="/bin/no-such-shell"))
    assert error.kind == "step_failed"
    assert "could not be started" in error.detail
    assert "/bin/no-such-shell" in error.detail


def test_another_shell_and_another_folder(bench):
    bench.run(
        make_step('[[ -n "$BASH_VERSION" ]] && pwd', name="b", shell="/bin/bash", work_dir=str(bench.sandbox.output))
    )
    assert bench.read_log("b.out").strip() == str(bench.sandbox.output)


def test_events_of_a_step(bench):
    bench.run(make_step("exit 0", name="train"))
    assert bench.events("step.started") == [{"step": "train", "command": "exit 0"}]
    (ended,) = bench.events("step.ended")
    assert (ended["step"], ended["exit_code"]) == ("train", 0)
    assert ended["seconds"] >= 0


def test_stdin_is_empty(bench):
    bench.run(make_step("cat; echo end", name="in"))
    assert bench.read_log("in.out") == "end\n"


def test_a_broken_pipe_ends_a_program_as_usual(bench):
    bench.run(make_step("yes | head -1", name="pipe"))
    assert bench.read_log("pipe.err") == ""


def test_an_entrypoint_needs_a_container(bench):
    error = run_expecting_failure(bench, make_step("", name="x"))
    assert error.kind == "unsupported"
    assert error.detail.startswith('step "x" was not started: ')
    bench.run(make_step("", catch=(make_trace_step("caught"),)))
    assert bench.read_trace() == ["caught"]


def test_a_variable_that_no_process_can_have(bench):
    error = run_expecting_failure(bench, make_step("true", name="x", env=make_env_vars(BAD="a\0b")))
    assert error.kind == "step_failed"
    assert 'step "x" could not be started' in error.detail


def test_steps_leave_no_open_files(bench):
    bench.run(make_step("true", name="warm"))
    gc.collect()  # what earlier tests left open may be closed at any time
    before = len(os.listdir("/proc/self/fd"))
    bench.run(
        make_step("true"),
        make_step("x", shell="/no/shell", catch=(make_step("true"),)),
        make_trace_step("a", condition="a == b"),
    )
    assert len(os.listdir("/proc/self/fd")) <= before


def test_tasks_run_at_once_and_know_their_rank(bench):
    # Each copy waits for the other's file: one after the other they would never end.
    wait = 'touch up.$RANK; until [ -e up.$((1 - RANK)) ]; do sleep 0.01; done; echo "$PACKTRAIN_TASK $RANK'
    facts = ' $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $NTASKS $MASTER_PORT"'
    bench.run(make_step(wait + facts, name="ddp", resources=StepResources(tasks=2)))
    first, second = bench.read_log("ddp.0.out").split(), bench.read_log("ddp.1.out").split()
    assert first[:-1] == ["0", "0", "0", "2", "2", "127.0.0.1", "2"]
    assert second[:-1] == ["1", "1", "1", "2", "2", "127.0.0.1", "2"]
    assert first[-1] == second[-1]
    # torch listens there only once it is imported: no connection of this machine may be given the port meanwhile.
    assert 1024 < int(first[-1]) < int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(bench.events("step.started")) == 1


def test_a_failing_task_ends_the_others_and_is_the_one_reported(bench):
    command = f"[ $RANK = 1 ] || exec sleep {SLEEP_S}; echo rank one is ill >&2; exit 5"
    error = run_expecting_failure(bench, make_step(command, name="ddp", resources=StepResources(tasks=3)))
    assert error.detail == 'step "ddp/1" ended with exit code 5; its last words: rank one is ill'
    assert bench.events("step.ended")[0]["seconds"] < SLEEP_S


def test_a_background_process_neither_hangs_the_step_nor_outlives_it(bench):
    bench.run(make_step(f"sleep {SLEEP_S} & echo $! > pid; echo said", name="bg"))
    assert bench.events("step.ended")[0]["seconds"] < SLEEP_S
    assert bench.read_log("bg.out") == "said\n"
    assert_process_ended(int((bench.sandbox.root / "pid").read_text()))


def test_a_daemon_that_left_the_group_does_not_hang_the_step(bench):
    bench.run(make_step(f"setsid sleep {SLEEP_S} & echo said", name="daemon"))
    assert bench.events("step.ended")[0]["seconds"] < SLEEP_S
    assert bench.read_log("daemon.out") == "said\n"


# group, names, logs


def test_groups_nest_and_name_their_logs(bench):
    inner = Step("inner", GroupAction((make_step("echo deep", name="a/b"), make_step("echo unnamed"))))
    bench.run(Step("outer", GroupAction((inner,))))
    assert bench.read_log("outer.inner.a_b.out") == "deep\n"
    assert bench.read_log("outer.inner.step-2.out") == "unnamed\n"
    assert [e["step"] for e in bench.events("step.started")] == ["outer/inner/a_b", "outer/inner/step-2"]


def test_steps_of_one_name_have_logs_of_their_own(bench):
    bench.run(make_step("echo 1", name="x"), make_step("echo 2", name="x"), make_step("echo 3", name="../x y"))
    assert (bench.read_log("x.out"), bench.read_log("x-2.out"), bench.read_log("_x_y.out")) == ("1\n", "2\n", "3\n")


# stop


def test_a_stop_ends_all_processes_and_starts_nothing_more(bench):
    sleeper = make_step(
        f"echo $$ >> trace; exec sleep {SLEEP_S}",
        finally_=(make_trace_step("finally"),),
        catch=(make_trace_step("catch"),),
    )
    loop = Step("loop", ForAction("item", ("1", "2"), True, (sleeper,)), finally_=(make_trace_step("finally"),))

    def request():
        deadline = time.monotonic() + SLEEP_S
        while len(bench.read_trace()) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        bench.stop_request.request("wall_time", "the time is over")

    threading.Thread(target=request).start()
    error = run_expecting_failure(bench, make_launch_step("s", sleeper), loop, make_trace_step("never"))
    assert (error.kind, error.detail) == ("wall_time", "the time is over")
    assert all(ended["seconds"] < SLEEP_S for ended in bench.events("step.ended"))
    pids = bench.read_trace()
    assert len(pids) == 3
    for pid in pids:
        assert_process_ended(int(pid))


def test_term_handled_with_exit_0_is_still_a_stop(bench):
    def request():
        while not (bench.sandbox.root / "up").exists():
            time.sleep(0.01)
        bench.stop_request.request("terminated", "TERM")

    threading.Thread(target=request).start()
    command = "trap 'echo saved >> trace; exit 0' TERM; touch up; while :; do sleep 0.01; done"
    assert run_expecting_failure(bench, make_step(command), make_trace_step("never")).kind == "terminated"
    assert bench.read_trace() == ["saved"]


def test_the_agents_own_term_reaches_the_step(tmp_path):
    program = (
        "import sys\nfrom pathlib import Path\nsys.path.insert(0, sys.argv[1])\n"
        "from tests.support.step_harness import Bench, sh\nbench = Bench(Path(sys.argv[2]))\nbench.stop.listen()\n"
        "wait = 'trap \"echo saved > trace; exit 0\" TERM; touch up; while :; do sleep 0.01; done'\n"
        "try:\n    bench.run(sh(wait))\n"
        "except Exception as error:\n    print(error)\nbench.close()\n"
    )
    argv = [sys.executable, "-c", program, str(PROJECT_ROOT), str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as agent:
        while not (tmp_path / "sandbox/up").exists():
            assert agent.poll() is None
            time.sleep(0.01)
        agent.terminate()
        assert agent.communicate(timeout=20)[0] == "the agent received SIGTERM\n"
    assert (tmp_path / "sandbox/trace").read_text() == "saved\n"


def test_a_signal_that_no_handler_hears_reaches_the_step_too(tmp_path):
    """The main thread waits for the step, and another one was given the signal: so it is, too, when the signal comes
    at the very moment when that wait begins."""
    program = (
        "import signal, sys, threading, time\nfrom pathlib import Path\nsys.path.insert(0, sys.argv[1])\n"
        "from tests.support.step_harness import Bench, sh\nbench = Bench(Path(sys.argv[2]))\nbench.stop.listen()\n"
        "def other():\n    while not (bench.box.root / 'up').exists():\n        time.sleep(0.01)\n"
        "    time.sleep(0.3)\n    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "threading.Thread(target=other).start()\n"
        "try:\n    bench.run(sh('touch up; exec sleep 60'))\n"
        "except Exception as error:\n    print(error)\nbench.close()\n"
    )
    argv = [sys.executable, "-c", program, str(PROJECT_ROOT), str(tmp_path)]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=30).stdout
    assert said == "the agent received SIGTERM\n"


def test_a_program_below_the_shell_has_the_grace_period_too(bench):
    """The shell dies of TERM at once; what it had started may still save."""

    def request():
        while not (bench.sandbox.root / "up").exists():
            time.sleep(0.01)
        bench.stop_request.request("terminated", "TERM")

    threading.Thread(target=request).start()
    training = "trap 'sleep 1; echo saved > trace; exit 0' TERM; touch up; while :; do sleep 0.01; done"
    assert run_expecting_failure(bench, make_step(f'sh -c "{training}" > quiet 2>&1; true')).kind == "terminated"
    assert bench.read_trace() == ["saved"]


def test_what_ignores_term_is_killed_after_the_grace_period(tmp_path):
    bench = StepHarness(tmp_path, grace_s=0.3)

    def request():
        while not (bench.sandbox.root / "up").exists():
            time.sleep(0.01)
        bench.stop_request.request("terminated", "TERM")

    threading.Thread(target=request).start()
    command = "trap '' TERM; (trap '' TERM; sleep 60) & echo $! > pid; touch up; while :; do sleep 0.01; done"
    assert run_expecting_failure(bench, make_step(command)).kind == "terminated"
    assert_process_ended(int((bench.sandbox.root / "pid").read_text()))
    bench.close()


def test_after_a_stop_nothing_starts(bench):
    bench.stop_request.request("terminated", "TERM")
    assert run_expecting_failure(bench, make_trace_step("never")).kind == "terminated"
    assert bench.events("step.started") == []
    assert os.listdir(bench.sandbox.attempt_folder.logs) == []
