"""The agent as Slurm runs it: announced ends, restarts under the same number, and scratch folders of killed agents."""

from __future__ import annotations

import signal

import pytest

from packtrain.plan import ExpectedOutput, Limits
from packtrain.plan.claim import is_claim_held
from tests.support.agent_runs import assert_failed, make_job, make_step
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

WAIT_FOR_STOP = "touch started; until [ -e stop ]; do sleep 0.05; done"


def test_announced_end(attempt):
    """A program that finishes its work when the end is announced has succeeded."""
    step = make_step(f"trap 'touch stop' TERM; {WAIT_FOR_STOP}; echo done > $DEEPSQUARE_OUTPUT/model")
    run = attempt(make_job(step, expect=(ExpectedOutput("model"),)), options=("--announced", "60")).start()
    run.wait_for_file("started")
    run.process.send_signal(signal.SIGUSR1)
    assert run.wait() == 0, run.stderr


def test_announced_end_of_a_job_that_does_not_finish(attempt):
    run = attempt(make_job(make_step("touch started; sleep 60")), options=("--announced", "60")).start()
    run.wait_for_file("started")
    run.process.send_signal(signal.SIGUSR1)
    run.wait()
    assert_failed(run, 60, "terminated", "steps", "the pool announced the end of the job")


@pytest.mark.parametrize(("stop_signal", "shell", "program"), [("B:USR1", "stop", ""), ("USR1", "", "stop")])
def test_stop_signal(attempt, stop_signal, shell, program):
    """Before the end the shell or its programs get a signal of their own, and the job may still finish."""
    wrong = "$PACKTRAIN_OUTPUT/wrong"
    loop = f"trap 'touch {program or wrong}' USR1; {WAIT_FOR_STOP}"
    command = (
        f"trap 'touch {shell or wrong}' USR1; bash -c \"{loop}\" & wait; wait; echo done > $DEEPSQUARE_OUTPUT/model"
    )
    step = make_step(command, shell="/bin/bash", stop_signal=stop_signal)
    run = attempt(
        make_job(step, expect=(ExpectedOutput("model", command=f"test ! -e {wrong}"),)), options=("--announced", "60")
    ).start()
    run.wait_for_file("started")
    run.process.send_signal(signal.SIGUSR1)
    assert run.wait() == 0, run.stderr


def test_grace_ends_before_the_pool_kills(attempt):
    """The agent kills the program after half of the two seconds that it has, not after 100 s."""
    step = make_step("trap '' TERM; touch started; while :; do sleep 0.1; done")
    run = attempt(make_job(step, limits=Limits(grace_s=100)), options=("--kill-wait", "2")).start()
    run.wait_for_file("started")
    run.process.send_signal(signal.SIGTERM)
    run.wait()
    assert_failed(run, 60, "terminated", "steps", "SIGTERM")


def test_restart_after_success(attempt, tmp_path):
    """The pool restarts an attempt that has just succeeded; its program does not run again."""
    log = tmp_path / "runs"
    run = attempt(make_job(make_step(f"echo run >> {log}; echo 1 > $DEEPSQUARE_OUTPUT/model"))).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    run.options = ("--execution", "2")
    assert run.start_and_wait().process.returncode == 0
    assert log.read_text() == "run\n"
    first, second = run.events("agent.ended")
    assert second.data == first.data and second.emitter != first.emitter


def test_abandoned_sandbox_is_removed(attempt):
    killed = attempt(make_job(make_step("touch started; sleep 1000"))).start()
    killed.wait_for_file("started")
    (abandoned,) = killed.scratch.iterdir()
    killed.process.kill()
    killed.process.wait()
    wait_until(lambda: not is_claim_held(killed.attempt_folder))  # until then its guard lives
    running, later = attempt(make_job(make_step(WAIT_FOR_STOP))), attempt(make_job(make_step("true")))
    running.scratch = later.scratch = killed.scratch
    notice = running.start().wait_for_event("notice", stage="probe")
    assert notice.data["text"] == f"removed {abandoned}, which a killed agent had left"
    running.wait_for_file("started")
    assert later.start_and_wait().process.returncode == 0
    (sandbox,) = killed.scratch.iterdir()
    (sandbox / "stop").touch()
    assert running.wait() == 0
