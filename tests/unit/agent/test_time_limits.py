"""Tests of the time limits: when a stop is requested, and how the end of the steps is classified."""

import time
from dataclasses import replace

import pytest

from packtrain.agent.attempt import AttemptRunner
from packtrain.agent.processes.exit_status import CheckpointExit, StepError
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
from packtrain.agent.watched_files import file_version
from packtrain.errors import FailedError
from packtrain.events import JournalReader
from packtrain.plan import (
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
from tests.support.attempt_contexts import attempt_contexts
from tests.support.waiting import TIMEOUT_S

CHECKPOINT_EXIT = CheckpointExit("step_failed", 'step "train" ended with exit code 85', 85)
TERMINATED = FailedError("terminated", "the agent received SIGTERM")


class UploaderStub:
    """The attributes of a checkpoint uploader that `classify_exit` reads."""

    def __init__(self, max_step=None, last_error=None):
        self.max_step, self.last_error = max_step, last_error


@pytest.fixture
def make_context(tmp_path):
    def make_context(checkpoint=True, wall_time_s=None, steps=(), expect=(), output=None, **options):
        job = Job(
            "0",
            (),
            Resources(mem_per_cpu_mb=16),
            Limits(wall_time_s=wall_time_s, grace_s=30),
            steps,
            checkpoint=CheckpointConfig("c.pt") if checkpoint else None,
            expect=expect,
            output=output,
        )
        return make(job, grace_s=30, **options)

    with attempt_contexts(tmp_path) as make:
        yield make_context


# when a stop is requested


def test_no_limits(make_context):
    context = make_context()
    assert time_limits(context) == []
    assert "PACKTRAIN_DEADLINE" not in attempt_variables(context)


def test_reserve_covers_save_and_upload(make_context):
    context = make_context(wall_time_s=1000.0)
    (limit,) = time_limits(context)
    assert limit.expires_at - limit.stop_request_at(
        shutdown_reserve_s(context, limit, steps_running=True)
    ) == pytest.approx(35.0)
    context.checkpoint_state.upload_s = 60.0
    assert limit.expires_at - limit.stop_request_at(
        shutdown_reserve_s(context, limit, steps_running=True)
    ) == pytest.approx(155.0)
    assert shutdown_reserve_s(context, limit, steps_running=False) == 0.0, "only the steps save checkpoints"


def test_reserve_is_at_most_half_of_limit():
    assert TimeLimit(100.0, 20.0, "wall_time", "").stop_request_at(35.0) == 90.0


def test_no_reserve_without_checkpoints(make_context):
    context = make_context(checkpoint=False, wall_time_s=1000.0)
    assert shutdown_reserve_s(context, time_limits(context)[0], steps_running=True) == 0.0


def test_engine_deadline_uses_wall_clock(make_context):
    before_s, deadline_at = time.monotonic(), time.time() + 100
    context = make_context(checkpoint=False, deadline_at=deadline_at, started_at=before_s - 900)
    (limit,) = time_limits(context)
    assert before_s + 100 - 0.1 <= limit.expires_at <= time.monotonic() + 100
    assert limit.stop_kind == "terminated"
    assert shutdown_reserve_s(context, limit, steps_running=False) == 35.0
    deadline = float(attempt_variables(context)["PACKTRAIN_DEADLINE"])
    assert deadline == pytest.approx(deadline_at - 5, abs=0.1)


def test_first_limit_requests_stop(make_context):
    context = make_context(wall_time_s=1000.0, deadline_at=time.time() + 0.2)
    monitor = TimeLimitMonitor(context)
    assert context.stop.wait(TIMEOUT_S)
    assert context.stop.kind == "terminated"
    monitor.stop()


# classification of the exit


def test_requeue_in_place_after_wall_time(make_context):
    for kind, code in (("wall_time", 85), ("terminated", 86)):
        context = make_context()
        context.stop.request(kind, "the limit was reached", resume_in_place=code == 85)
        requeue = classify_exit(context, UploaderStub(7), FailedError(kind, "the limit was reached"))
        assert isinstance(requeue, RequeueRequested)
        assert (requeue.exit_code, requeue.step) == (code, 7)
        assert "the limit was reached" in str(requeue)


def test_engine_limit_resumes_in_place_if_checkpoint_is_transferred(make_context, tmp_path):
    (limit,) = time_limits(make_context(deadline_at=time.time() + 100))
    assert (limit.stop_kind, limit.resume_in_place) == ("terminated", False)
    (limit,) = time_limits(make_context(deadline_at=time.time() + 100, transferred_checkpoint=tmp_path))
    assert (limit.stop_kind, limit.resume_in_place) == ("terminated", True)


def test_checkpoint_transfer_is_due_after_interval(make_context, tmp_path):
    context = make_context(transferred_checkpoint=tmp_path)
    assert not is_checkpoint_transfer_due(context)
    context.checkpoint_state.committed_at = context.started_at + 3599
    assert not is_checkpoint_transfer_due(context)
    context.checkpoint_state.committed_at = context.started_at + 3600
    assert is_checkpoint_transfer_due(context)
    object.__setattr__(context, "transferred_checkpoint", None)
    assert not is_checkpoint_transfer_due(context)


def test_due_transfer_requests_stop(make_context, tmp_path):
    context = make_context(transferred_checkpoint=tmp_path)
    monitor = TimeLimitMonitor(context)
    monitor.steps_running = True
    context.checkpoint_state.committed_at = context.started_at + 3600
    assert context.stop.wait(TIMEOUT_S)
    assert (context.stop.kind, context.stop.resume_in_place) == ("wall_time", True)
    monitor.stop()


def test_unrequested_85_resumes_in_place(make_context):
    requeue = classify_exit(make_context(), UploaderStub(0), CHECKPOINT_EXIT)
    assert (requeue.exit_code, requeue.step) == (85, 0)


def test_other_exit_codes_are_failures(make_context):
    error = StepError("step_failed", "it ended with exit code 1", 1)
    assert classify_exit(make_context(), UploaderStub(7), error) is error
    assert classify_exit(make_context(checkpoint=False), None, error) is error


@pytest.mark.parametrize("max_step", [None, 3, 7])
def test_requeue_needs_progress(make_context, max_step):
    context = make_context()
    context.checkpoint_state.restored_step = 7
    error = classify_exit(context, UploaderStub(max_step), CHECKPOINT_EXIT)
    assert "no checkpoint beyond step 7 was saved" in error.detail
    context.stop.request("terminated", "x")
    assert classify_exit(context, UploaderStub(max_step), TERMINATED) is TERMINATED


def test_failed_upload_is_the_reason(make_context):
    error = classify_exit(make_context(), UploaderStub(None, TERMINATED), CHECKPOINT_EXIT)
    assert error.kind == "upload_failed"


def test_only_unchanged_uploads_are_discarded(make_context):
    context = make_context()
    for name in ("same", "changed", "other"):
        (context.sandbox.output / name).write_text("1")
    context.checkpoint_state.uploaded_versions = {
        n: file_version(context.sandbox.output / n) for n in ("same", "changed")
    }
    context.checkpoint_state.uploaded_versions["gone"] = (1, 1)
    (context.sandbox.output / "changed").write_text("22")
    discard_uploaded_files(context)
    assert sorted(path.name for path in context.sandbox.output.iterdir()) == ["changed", "other"]


def test_finished_steps_withdraw_graceful_request():
    stop = StopRequest()
    stop.request("wall_time", "the engine transfers its checkpoint", resume_in_place=True, graceful=True)
    assert stop.is_requested
    stop.mark_steps_finished()
    stop.check()
    assert (stop.is_requested, stop.kind, stop.requested_at) == (False, "", None)


@pytest.mark.parametrize("graceful_first", [True, False])
def test_signal_overrides_graceful_request(graceful_first):
    stop = StopRequest()
    for graceful in (graceful_first, not graceful_first):
        stop.request("terminated", "the agent received SIGTERM", graceful=graceful)
    stop.mark_steps_finished()
    with pytest.raises(FailedError):
        stop.check()


def test_reached_limit_is_not_graceful(make_context):
    context = make_context(checkpoint=False, wall_time_s=0.01)
    monitor = TimeLimitMonitor(context)
    assert context.stop.wait(TIMEOUT_S)
    monitor.stop()
    context.stop.mark_steps_finished()
    assert context.stop.is_requested


def test_limit_is_watched_after_steps(make_context):
    context = make_context(wall_time_s=1000.0, started_at=time.monotonic() - 970)
    monitor = TimeLimitMonitor(context)
    monitor.steps_running = True
    assert context.stop.wait(TIMEOUT_S)
    assert context.stop.graceful
    context.stop.mark_steps_finished()
    assert not context.stop.is_requested
    monitor._limits = [replace(limit, expires_at=time.monotonic()) for limit in monitor._limits]
    assert context.stop.wait(TIMEOUT_S), "by the limit itself"
    monitor.stop()
    assert not context.stop.graceful
    with pytest.raises(FailedError, match="wallTime"):
        context.stop.check()


def test_no_graceful_request_after_steps():
    stop = StopRequest()
    stop.mark_steps_finished()
    stop.request("wall_time", "the limit is near", graceful=True)
    assert not stop.is_requested
    stop.request("terminated", "SIGTERM")
    assert stop.is_requested


# steps that finish after a graceful request

REPORT_METRIC = 'trap "" TERM; echo \'{"step": 1}\' >> "$PACKTRAIN_METRICS"; '
WAIT_FOR_STOP_FILE = 'until [ -e "$PACKTRAIN_STOP" ]; do sleep 0.02; done; '


def run_with_graceful_stop(make_context, tmp_path, command, expect, finally_=()):
    """Run an attempt whose steps get a graceful stop request after their first metric."""
    step = Step("train", RunAction(REPORT_METRIC + WAIT_FOR_STOP_FILE + command), finally_=finally_)
    output = Output(Location(f"file://{tmp_path}/store"))
    context = make_context(steps=(step,), expect=tuple(map(ExpectedOutput, expect)), output=output)

    def request_stop(event):
        if event.kind == "metric":
            deadline = time.monotonic() + 1000
            context.stop.request(
                "wall_time", "the limit was near", resume_in_place=True, graceful=True, deadline=deadline
            )

    context.journal.set_listener(request_stop)
    code = AttemptRunner(context).run()
    return code, JournalReader(context.journal.path).read()[-1].data


SAVE = 'echo 1 > "$PACKTRAIN_OUTPUT/c.pt"; echo \'{"path": "c.pt", "step": 5}\' >> "$PACKTRAIN_CHECKPOINTS"; '
MODEL = 'echo 1 > "$PACKTRAIN_OUTPUT/model.pt"; '


@pytest.mark.parametrize("command", [MODEL, SAVE + MODEL])
def test_finished_training_succeeds(make_context, tmp_path, command):
    code, end_data = run_with_graceful_stop(make_context, tmp_path, command, ["model.pt"])
    assert (code, end_data["outcome"]) == (0, "succeeded")
    assert [path.name for path in (tmp_path / "store").rglob("model.pt")] == ["model.pt"]
    assert not (tmp_path / "store" / ".packtrain" / "requeued").exists()


@pytest.mark.parametrize("expect", [["model.pt"], ["c.pt"], []])
def test_checkpoint_without_final_output_is_requeued(make_context, tmp_path, expect):
    code, end_data = run_with_graceful_stop(make_context, tmp_path, SAVE, expect)
    assert (code, end_data["outcome"], end_data["step"]) == (85, "requeued", 5)


def test_skipped_finally_is_not_the_end(make_context, tmp_path):
    code, end_data = run_with_graceful_stop(
        make_context, tmp_path, MODEL, ["model.pt"], finally_=(Step("tidy", RunAction("true")),)
    )
    assert (code, end_data["failure"]["kind"]) == (16, "wall_time")
