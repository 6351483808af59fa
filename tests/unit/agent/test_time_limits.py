"""When the steps are asked to leave, and what their end means then."""

import time
from dataclasses import replace

import pytest

from packtrain.agent.agent_log import AgentLog
from packtrain.agent.attempt import AttemptRunner
from packtrain.agent.checkpoints.detection import file_version
from packtrain.agent.context import AttemptContext
from packtrain.agent.processes.exit_status import CheckpointExit, StepError
from packtrain.agent.processes.guard import Guard
from packtrain.agent.processes.process_table import ProcessTable
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stop_request import StopRequest
from packtrain.agent.time_limits import (
    RequeueRequested,
    TimeLimit,
    TimeLimitMonitor,
    attempt_variables,
    classify_exit,
    discard_uploaded_files,
    is_checkpoint_transfer_due,
    shutdown_reserve_s,
    time_limits,
)
from packtrain.errors import FailedError
from packtrain.events import Journal, JournalReader, Redactor
from packtrain.plan import (
    AttemptFolder,
    CheckpointConfig,
    ExpectedOutput,
    Job,
    Limits,
    Location,
    Output,
    Resources,
    RunAction,
    Step,
)

LEFT = CheckpointExit("step_failed", 'step "train" ended with exit code 85', 85)
TERM = FailedError("terminated", "the agent received SIGTERM")


class Carried:
    """What `verdict` asks of the checkpoints."""

    def __init__(self, furthest=None, trouble=None):
        self.furthest, self.trouble = furthest, trouble


@pytest.fixture
def make(tmp_path):
    guards = []

    def make(checkpoint=True, wall=None, steps=(), expect=(), output=None, **more):
        box = Sandbox(tmp_path / "box", AttemptFolder(tmp_path / "home"))
        box.create()
        redactor = Redactor()
        guards.append(Guard.start())
        wanted = CheckpointConfig("c.pt") if checkpoint else None
        of_job = {"checkpoint": wanted, "expect": expect, "output": output}
        job = Job("0", (), Resources(mem_per_cpu_mb=16), Limits(wall_time_s=wall, grace_s=30), steps, **of_job)
        journal = Journal(box.attempt_folder.journal, "r", "0", "agent-1", redactor)
        log, secrets = AgentLog(box.attempt_folder.agent_log, redactor), Secrets(tmp_path / "secrets")
        return AttemptContext(
            job, box, journal, log, secrets, redactor, StopRequest(), ProcessTable(guards[-1], 30), **more
        )

    yield make
    for guard in guards:
        guard.quit()


# When


def test_without_limits_nobody_is_asked(make):
    context = make()
    assert time_limits(context) == []
    assert "PACKTRAIN_DEADLINE" not in attempt_variables(context)


def test_time_to_save_and_to_send_is_reserved(make):
    context = make(wall=1000.0)
    (limit,) = time_limits(context)
    assert limit.expires_at - limit.stop_request_at(
        shutdown_reserve_s(context, limit, steps_running=True)
    ) == pytest.approx(35.0)
    context.checkpoint_state.sync_s = 60.0
    assert limit.expires_at - limit.stop_request_at(
        shutdown_reserve_s(context, limit, steps_running=True)
    ) == pytest.approx(155.0)
    assert shutdown_reserve_s(context, limit, steps_running=False) == 0.0, (
        "a training that has ended is checked and brought home"
    )


def test_a_short_limit_is_not_spent_on_leaving():
    assert TimeLimit(100.0, 20.0, "wall_time", "").stop_request_at(35.0) == 90.0


def test_what_saves_nothing_has_its_time_to_the_last_second(make):
    context = make(checkpoint=False, wall=1000.0)
    assert shutdown_reserve_s(context, time_limits(context)[0], steps_running=True) == 0.0


def test_the_engines_limit_is_told_by_the_clock_on_the_wall(make):
    context = make(checkpoint=False, deadline_at=time.time() + 100, started_at=time.monotonic() - 900)
    (limit,) = time_limits(context)
    assert limit.expires_at - time.monotonic() == pytest.approx(100, abs=5)
    assert limit.stop_kind == "terminated"
    assert shutdown_reserve_s(context, limit, steps_running=False) == 35.0
    told = float(attempt_variables(context)["PACKTRAIN_DEADLINE"])
    assert told == pytest.approx(time.time() + 95, abs=5)


def test_the_first_limit_asks(make):
    context = make(wall=1000.0, deadline_at=time.time() + 0.2)
    watch = TimeLimitMonitor(context)
    assert context.stop.wait(10)
    assert context.stop.kind == "terminated"
    watch.stop()


# What it means


def test_asked_by_the_wall_time_it_goes_on_here_else_elsewhere(make):
    for kind, code in (("wall_time", 85), ("terminated", 86)):
        context = make()
        context.stop.request(kind, "it was time", resume_in_place=code == 85)
        left = classify_exit(context, Carried(7), FailedError(kind, "it was time"))
        assert isinstance(left, RequeueRequested)
        assert (left.exit_code, left.step) == (code, 7)
        assert "it was time" in str(left)


def test_where_the_engine_carries_checkpoints_its_limit_leads_on_here(make, tmp_path):
    (limit,) = time_limits(make(deadline=time.time() + 100))
    assert (limit.stop_kind, limit.resume_in_place) == ("terminated", False)
    (limit,) = time_limits(make(deadline=time.time() + 100, carried=tmp_path))
    assert (limit.stop_kind, limit.resume_in_place) == ("terminated", True)


def test_the_engine_carries_when_it_is_time_and_there_is_something_new(make, tmp_path):
    context = make(transferred_checkpoint=tmp_path)
    assert not is_checkpoint_transfer_due(context)
    context.saved.sealed_at = context.started_at + 3599
    assert not is_checkpoint_transfer_due(context)
    context.saved.sealed_at = context.started + 3600
    assert is_checkpoint_transfer_due(context)
    object.__setattr__(context, "carried", None)
    assert not is_checkpoint_transfer_due(context)


def test_to_be_carried_the_steps_are_asked_to_leave(make, tmp_path):
    context = make(transferred_checkpoint=tmp_path)
    watch = TimeLimitMonitor(context)
    watch.steps_running = True
    context.saved.sealed_at = context.started + 3600
    assert context.stop.wait(10)
    assert (context.stop.kind, context.stop.here) == ("wall_time", True)
    watch.stop()


def test_85_unasked_goes_on_here(make):
    left = classify_exit(make(), Carried(0), LEFT)
    assert (left.exit_code, left.step) == (85, 0)


def test_an_error_of_its_own_stays_one_though_it_saved(make):
    error = StepError("step_failed", "it ended with exit code 1", 1)
    assert classify_exit(make(), Carried(7), error) is error
    assert classify_exit(make(checkpoint=False), None, error) is error


@pytest.mark.parametrize("furthest", [None, 3, 7])
def test_without_progress_it_is_a_failure(make, furthest):
    context = make()
    context.checkpoint_state.start_step = 7
    found = classify_exit(context, Carried(furthest), LEFT)
    assert "no checkpoint beyond step 7 was saved" in found.detail
    context.stop.request("terminated", "x")
    assert classify_exit(context, Carried(furthest), TERM) is TERM


def test_a_sink_in_trouble_is_the_reason(make):
    found = classify_exit(make(), Carried(None, TERM), LEFT)
    assert found.kind == "upload_failed"


def test_only_what_stands_there_unchanged_is_not_copied_again(make):
    context = make()
    for name in ("same", "changed", "other"):
        (context.sandbox.output / name).write_text("1")
    context.saved.carried = {n: file_version(context.sandbox.output / n) for n in ("same", "changed")}
    context.saved.carried["gone"] = (1, 1)
    (context.box.output / "changed").write_text("22")
    discard_uploaded_files(context)
    assert sorted(path.name for path in context.box.output.iterdir()) == ["changed", "other"]


def test_who_came_to_the_end_of_the_steps_need_not_leave():
    stop = StopRequest()
    stop.request("wall_time", "its checkpoint is carried away", resume_in_place=True, graceful=True)
    assert stop.is_requested
    stop.mark_steps_finished()
    stop.check()
    assert (stop.is_requested, stop.kind, stop.requested_at) == (False, "", None)


@pytest.mark.parametrize("gentle_first", [True, False])
def test_a_signal_counts_though_a_gentle_request_came_before_or_after(gentle_first):
    stop = StopRequest()
    for gentle in (gentle_first, not gentle_first):
        stop.request("terminated", "TERM", graceful=gentle)
    stop.mark_steps_finished()
    with pytest.raises(FailedError):
        stop.check()


def test_a_limit_that_is_reached_is_not_gentle(make):
    context = make(checkpoint=False, wall=0.01)
    watch = TimeLimitMonitor(context)
    assert context.stop.wait(5)
    watch.stop()
    context.stop.mark_steps_finished()
    assert context.stop.is_requested


def test_after_the_steps_a_limit_is_still_watched(make):
    context = make(wall=1000.0, started_at=time.monotonic() - 970)
    watch = TimeLimitMonitor(context)
    watch.steps_running = True
    assert context.stop.wait(20)
    assert context.stop.graceful
    context.stop.steps_are_done()
    assert not context.stop.requested
    watch._limits = [replace(limit, expires_at=time.monotonic()) for limit in watch._limits]
    assert context.stop.wait(20), "by the limit itself"
    watch.stop()
    assert not context.stop.gentle
    with pytest.raises(FailedError, match="wallTime"):
        context.stop.check()


def test_once_the_steps_are_done_there_is_no_gentle_request():
    stop = StopRequest()
    stop.mark_steps_finished()
    stop.request("wall_time", "its time is near", graceful=True)
    assert not stop.is_requested
    stop.request("terminated", "SIGTERM")
    assert stop.is_requested


# Steps that come to their end after they were asked to leave

SPEAK = 'trap "" TERM; echo \'{"step": 1}\' >> "$PACKTRAIN_METRICS"; '
WAIT = 'until [ -e "$PACKTRAIN_STOP" ]; do sleep 0.02; done; '


def asked(make, tmp_path, command, expect, finally_=()):
    """An attempt whose steps are asked to leave once they have said a first word."""
    step = Step("train", RunAction(SPEAK + WAIT + command), finally_=finally_)
    output = Output(Location(f"file://{tmp_path}/place"))
    context = make(steps=(step,), expect=tuple(map(ExpectedOutput, expect)), output=output)

    def ask(event):
        if event.kind == "metric":
            context.stop.request("wall_time", "its time was near", here=True, gentle=True, by=time.monotonic() + 1000)

    context.journal.set_listener(ask)
    code = AttemptRunner(context, time.monotonic()).run()
    return code, JournalReader(context.journal.path).read()[-1].data


SAVE = 'echo 1 > "$PACKTRAIN_OUTPUT/c.pt"; echo \'{"path": "c.pt", "step": 5}\' >> "$PACKTRAIN_CHECKPOINTS"; '
MODEL = 'echo 1 > "$PACKTRAIN_OUTPUT/model.pt"; '


@pytest.mark.parametrize("command", [MODEL, SAVE + MODEL])
def test_a_training_that_came_to_its_end_has_succeeded(make, tmp_path, command):
    code, ended = asked(make, tmp_path, command, ["model.pt"])
    assert (code, ended["outcome"]) == (0, "succeeded")
    assert (tmp_path / "place" / "model.pt").exists()
    assert not (tmp_path / "place" / ".packtrain" / "left").exists()


@pytest.mark.parametrize("expect", [["model.pt"], ["c.pt"], []])
def test_one_that_only_saved_has_left_whatever_its_status(make, tmp_path, expect):
    code, ended = asked(make, tmp_path, SAVE, expect)
    assert (code, ended["outcome"], ended["step"]) == (85, "continue", 5)


def test_without_what_is_done_finally_it_is_not_the_end(make, tmp_path):
    code, ended = asked(make, tmp_path, MODEL, ["model.pt"], finally_=(Step("tidy", RunAction("true")),))
    assert (code, ended["failure"]["kind"]) == (16, "wall_time")
