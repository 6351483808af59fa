"""Tests of steps, their tasks, log names and ends, with real processes."""

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
from tests.support.waiting import TIMEOUT_S, wait_until

SLEEP_S = 60  # duration of programs that must be ended early; no test takes that long by itself


@pytest.fixture
def harness(tmp_path):
    harness = StepHarness(tmp_path)
    yield harness
    harness.close()


# run


def test_steps_run_in_order_in_sandbox(harness):
    harness.run(make_trace_step("one"), make_trace_step("two"), make_step("pwd", name="where"))
    assert harness.read_trace() == ["one", "two"]
    assert harness.read_log("where.out").strip() == str(harness.sandbox.root)


def test_failing_step_stops_level(harness):
    error = run_expecting_failure(
        harness, make_step("echo busy; echo 'no scipy' >&2; echo >&2; exit 3", name="train"), make_trace_step("never")
    )
    assert error.kind == "step_failed"
    assert error.detail == 'step "train" ended with exit code 3; last line on stderr: no scipy'
    assert harness.read_trace() == []
    assert harness.read_log("train.out") == "busy\n"


def test_failing_step_without_output(harness):
    assert (
        run_expecting_failure(harness, make_step("exit 4")).detail
        == 'step "step-1" ended with exit code 4; stderr is empty'
    )


def test_killed_step_has_a_hint(harness):
    error = run_expecting_failure(harness, make_step("kill -9 $$", name="big"))
    assert error.kind == "step_failed"
    assert "was killed by signal SIGKILL, often a sign of too little memory" in error.detail
    assert harness.events("step.ended")[0]["exit_code"] == 137


def test_missing_shell(harness):
    error = run_expecting_failure(harness, make_step("true", shell="/bin/no-such-shell"))
    assert error.kind == "step_failed"
    assert "could not be started" in error.detail
    assert "/bin/no-such-shell" in error.detail


def test_other_shell_and_folder(harness):
    harness.run(
        make_step('[[ -n "$BASH_VERSION" ]] && pwd', name="b", shell="/bin/bash", work_dir=str(harness.sandbox.output))
    )
    assert harness.read_log("b.out").strip() == str(harness.sandbox.output)


def test_step_events(harness):
    harness.run(make_step("sleep 0.05", name="train"))
    assert harness.events("step.started") == [{"step": "train", "command": "sleep 0.05"}]
    (ended,) = harness.events("step.ended")
    assert (ended["step"], ended["exit_code"]) == ("train", 0)
    assert ended["seconds"] >= 0.05


def test_stdin_is_empty(harness):
    harness.run(make_step("cat; echo end", name="in"))
    assert harness.read_log("in.out") == "end\n"


def test_sigpipe_has_default_action(harness):
    harness.run(make_step("yes | head -1", name="pipe"))
    assert harness.read_log("pipe.err") == ""


def test_entrypoint_needs_container(harness):
    error = run_expecting_failure(harness, make_step("", name="x"))
    assert error.kind == "unsupported"
    assert error.detail.startswith('step "x" was not started: ')
    harness.run(make_step("", catch=(make_trace_step("caught"),)))
    assert harness.read_trace() == ["caught"]


def test_variable_with_zero_byte(harness):
    error = run_expecting_failure(harness, make_step("true", name="x", env=make_env_vars(BAD="a\0b")))
    assert error.kind == "step_failed"
    assert 'step "x" could not be started' in error.detail


def test_steps_leave_no_open_files(harness):
    harness.run(make_step("true", name="warm"))
    gc.collect()  # files that earlier tests did not close may be closed at any time
    before = len(os.listdir("/proc/self/fd"))
    harness.run(
        make_step("true"),
        make_step("x", shell="/no/shell", catch=(make_step("true"),)),
        make_trace_step("a", condition="a == b"),
    )
    assert len(os.listdir("/proc/self/fd")) <= before


def test_tasks_run_at_once_with_ranks(harness):
    # Each copy waits for the other's file, so they must run at the same time.
    wait = 'touch up.$RANK; until [ -e up.$((1 - RANK)) ]; do sleep 0.01; done; echo "$PACKTRAIN_TASK $RANK'
    more_variables = ' $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT"'
    harness.run(make_step(wait + more_variables, name="ddp", resources=StepResources(tasks=2)))
    first, second = harness.read_log("ddp.0.out").split(), harness.read_log("ddp.1.out").split()
    assert first[:-1] == ["0", "0", "0", "2", "2", "127.0.0.1"]
    assert second[:-1] == ["1", "1", "1", "2", "2", "127.0.0.1"]
    assert first[-1] == second[-1]
    # torch listens only after it is imported; the kernel must not assign the port to a connection meanwhile.
    assert 1024 < int(first[-1]) < int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(harness.events("step.started")) == 1


def test_failing_task_ends_others(harness):
    command = f"[ $RANK = 1 ] || exec sleep {SLEEP_S}; echo rank one is ill >&2; exit 5"
    error = run_expecting_failure(harness, make_step(command, name="ddp", resources=StepResources(tasks=3)))
    assert error.detail == 'step "ddp/1" ended with exit code 5; last line on stderr: rank one is ill'
    assert harness.events("step.ended")[0]["seconds"] < SLEEP_S


def test_background_process_ends_with_step(harness):
    harness.run(make_step(f"sleep {SLEEP_S} & echo $! > pid; echo text", name="bg"))
    assert harness.events("step.ended")[0]["seconds"] < SLEEP_S
    assert harness.read_log("bg.out") == "text\n"
    assert_process_ended(int((harness.sandbox.root / "pid").read_text()))


def test_daemon_does_not_block_step(harness):
    harness.run(make_step(f"setsid sleep {SLEEP_S} & echo text", name="daemon"))
    assert harness.events("step.ended")[0]["seconds"] < SLEEP_S
    assert harness.read_log("daemon.out") == "text\n"


# group, names, logs


def test_log_names_of_nested_groups(harness):
    inner = Step("inner", GroupAction((make_step("echo deep", name="a/b"), make_step("echo unnamed"))))
    harness.run(Step("outer", GroupAction((inner,))))
    assert harness.read_log("outer.inner.a_b.out") == "deep\n"
    assert harness.read_log("outer.inner.step-2.out") == "unnamed\n"
    assert [e["step"] for e in harness.events("step.started")] == ["outer/inner/a_b", "outer/inner/step-2"]


def test_log_names_of_equal_step_names(harness):
    harness.run(make_step("echo 1", name="x"), make_step("echo 2", name="x"), make_step("echo 3", name="../x y"))
    assert (harness.read_log("x.out"), harness.read_log("x-2.out"), harness.read_log("_x_y.out")) == (
        "1\n",
        "2\n",
        "3\n",
    )


# stop


def test_stop_ends_all_processes(harness):
    sleeper = make_step(
        f"echo $$ >> trace; exec sleep {SLEEP_S}",
        finally_=(make_trace_step("finally"),),
        catch=(make_trace_step("catch"),),
    )
    loop = Step("loop", ForAction("item", ("1", "2"), True, (sleeper,)), finally_=(make_trace_step("finally"),))

    def request():
        wait_until(lambda: len(harness.read_trace()) == 3)
        harness.stop_request.request("wall_time", "the limit was reached")

    threading.Thread(target=request).start()
    error = run_expecting_failure(harness, make_launch_step("s", sleeper), loop, make_trace_step("never"))
    assert (error.kind, error.detail) == ("wall_time", "the limit was reached")
    assert all(ended["seconds"] < SLEEP_S for ended in harness.events("step.ended"))
    pids = harness.read_trace()
    assert len(pids) == 3
    for pid in pids:
        assert_process_ended(int(pid))


def test_exit_0_after_term_is_a_stop(harness):
    def request():
        wait_until((harness.sandbox.root / "up").exists)
        harness.stop_request.request("terminated", "TERM")

    threading.Thread(target=request).start()
    command = "trap 'echo saved >> trace; exit 0' TERM; touch up; while :; do sleep 0.01; done"
    assert run_expecting_failure(harness, make_step(command), make_trace_step("never")).kind == "terminated"
    assert harness.read_trace() == ["saved"]


def test_term_is_forwarded_to_step(tmp_path):
    program = (
        "import sys\nfrom pathlib import Path\nsys.path.insert(0, sys.argv[1])\n"
        "from tests.support.step_harness import StepHarness, make_step\n"
        "harness = StepHarness(Path(sys.argv[2]))\nharness.stop_request.install_signal_handlers()\n"
        "wait = 'trap \"echo saved > trace; exit 0\" TERM; touch up; while :; do sleep 0.01; done'\n"
        "try:\n    harness.run(make_step(wait))\n"
        "except Exception as error:\n    print(error)\nharness.close()\n"
    )
    argv = [sys.executable, "-c", program, str(PROJECT_ROOT), str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as agent:
        while not (tmp_path / "sandbox/up").exists():
            assert agent.poll() is None
            time.sleep(0.01)
        agent.terminate()
        assert agent.communicate(timeout=TIMEOUT_S)[0] == "the agent received SIGTERM\n"
    assert (tmp_path / "sandbox/trace").read_text() == "saved\n"


def test_signal_to_other_thread_reaches_step(tmp_path):
    """The main thread waits for the step while another thread receives the signal.

    The same happens if the signal arrives just when that wait begins.
    """
    program = (
        "import signal, sys, threading, time\nfrom pathlib import Path\nsys.path.insert(0, sys.argv[1])\n"
        "from tests.support.step_harness import StepHarness, make_step\n"
        "harness = StepHarness(Path(sys.argv[2]))\nharness.stop_request.install_signal_handlers()\n"
        "def other():\n    while not (harness.sandbox.root / 'up').exists():\n        time.sleep(0.01)\n"
        "    time.sleep(0.3)\n    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "threading.Thread(target=other).start()\n"
        "try:\n    harness.run(make_step('touch up; exec sleep 60'))\n"
        "except Exception as error:\n    print(error)\nharness.close()\n"
    )
    argv = [sys.executable, "-c", program, str(PROJECT_ROOT), str(tmp_path)]
    output = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S).stdout
    assert output == "the agent received SIGTERM\n"


def test_grace_period_applies_to_whole_group(harness):
    """SIGTERM ends the shell at once, while the program it started still saves a checkpoint."""

    def request():
        wait_until((harness.sandbox.root / "up").exists)
        harness.stop_request.request("terminated", "TERM")

    threading.Thread(target=request).start()
    training = "trap 'sleep 1; echo saved > trace; exit 0' TERM; touch up; while :; do sleep 0.01; done"
    assert run_expecting_failure(harness, make_step(f'sh -c "{training}" > quiet 2>&1; true')).kind == "terminated"
    assert harness.read_trace() == ["saved"]


def test_kill_after_grace_period(tmp_path):
    harness = StepHarness(tmp_path, grace_s=0.3)

    def request():
        wait_until((harness.sandbox.root / "up").exists)
        harness.stop_request.request("terminated", "TERM")

    threading.Thread(target=request).start()
    command = "trap '' TERM; (trap '' TERM; sleep 60) & echo $! > pid; touch up; while :; do sleep 0.01; done"
    assert run_expecting_failure(harness, make_step(command)).kind == "terminated"
    assert_process_ended(int((harness.sandbox.root / "pid").read_text()))
    harness.close()


def test_nothing_starts_after_stop(harness):
    harness.stop_request.request("terminated", "TERM")
    assert run_expecting_failure(harness, make_trace_step("never")).kind == "terminated"
    assert harness.events("step.started") == []
    assert os.listdir(harness.sandbox.attempt_folder.logs) == []


def test_missing_work_dir_is_created(harness, tmp_path):
    folder = tmp_path / "new" / "deeper"
    harness.run(make_step("pwd", name="a", work_dir=str(folder)), make_step("pwd", name="b", work_dir="work/x"))
    assert harness.read_log("a.out").strip() == str(folder)
    assert harness.read_log("b.out").strip() == str(harness.sandbox.root / "work/x")


def test_work_dir_that_cannot_be_created(harness, tmp_path):
    (tmp_path / "file").touch()
    error = run_expecting_failure(harness, make_step("pwd", name="a", work_dir=str(tmp_path / "file" / "x")))
    assert f'step "a" was not started: its workDir {tmp_path}/file/x cannot be created: Not a directory' in str(error)
