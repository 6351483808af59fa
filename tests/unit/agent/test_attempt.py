"""Tests of the attempt runner: the order of the stages, the first failure, and the final event."""

import errno

import pytest

from packtrain.agent.attempt import AttemptRunner, failure_from_error
from packtrain.errors import FailedError
from packtrain.events import JournalReader
from packtrain.plan import Job, Limits, Location, Output, Resources
from tests.support.attempt_contexts import attempt_contexts

SECRET = "correct-horse"


@pytest.fixture
def make_context(tmp_path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "token").write_text(SECRET)
    with attempt_contexts(tmp_path) as make:
        yield lambda **more: make(Job("0", (), Resources(), Limits(grace_s=0.2), (), **more))


def events(context):
    return JournalReader(context.journal.path).read()


def end_data(context):
    return events(context)[-1].data


def fail_with(error):
    def stage(context, stats):
        stats["bytes"] = 7
        raise error

    return stage


def write_output(context, stats):
    (context.sandbox.output / "f").write_text("1")


def test_internal_error_ends_cleanly(make_context, capsys):
    stages = (("probe", write_output), ("fetch", fail_with(ZeroDivisionError(SECRET))))
    context = make_context()
    assert AttemptRunner(context, stages).run() == 70
    assert [e.data["stage"] for e in events(context) if e.kind == "stage.ended"] == [
        "probe",
        "fetch",
        "sync",
        "clean",
    ]
    assert end_data(context)["failure"]["kind"] == "internal"
    assert not context.sandbox.root.exists()
    log = context.sandbox.attempt_folder.agent_log.read_text()
    assert "Traceback" in log
    assert "in stage" in log
    assert SECRET not in log + context.journal.path.read_text() + capsys.readouterr().err


def test_stats_of_failed_stage_are_reported(make_context):
    stages = (("fetch", fail_with(FailedError("truncated", "it ended early"))),)
    context = make_context()
    assert AttemptRunner(context, stages).run() == 32
    stage = next(e.data for e in events(context) if e.kind == "stage.ended")
    assert stage["bytes"] == 7
    assert stage["failure"]["detail"] == "it ended early"


def test_failure_skips_later_stages(make_context):
    fail = fail_with(FailedError("step_failed", "no"))
    stages = (("steps", fail), ("check", pytest.fail))
    assert AttemptRunner(make_context(), stages).run() == 10


def test_stop_before_stage_is_its_failure(make_context):
    stages = (("probe", write_output), ("fetch", pytest.fail))
    context = make_context()
    context.stop.request("terminated", "the agent received SIGTERM")
    assert AttemptRunner(context, stages).run() == 60
    assert end_data(context)["failure"]["stage"] == "probe"


def test_stop_after_last_stage_is_ignored(make_context):
    def write_output_then_stop(context, stats):
        write_output(context, stats)
        context.stop.request("terminated", "the agent received SIGTERM")

    stages = (("check", write_output_then_stop),)
    context = make_context()
    assert AttemptRunner(context, stages).run() == 0
    assert (context.sandbox.attempt_folder.output / "f").read_text() == "1"


def test_step_removes_output_folder(make_context):
    stages = (("steps", lambda context, stats: context.sandbox.output.rmdir()),)
    context = make_context()
    assert AttemptRunner(context, stages).run() == 11
    assert "removed the output folder" in end_data(context)["failure"]["detail"]


def test_outputs_of_failed_upload_are_listed(make_context):
    stages = (("steps", write_output),)
    context = make_context(output=Output(Location("nowhere://x")))
    assert AttemptRunner(context, stages).run() == 18
    assert [o["path"] for o in end_data(context)["outputs"]] == [".packtrain/agent-1/f"]
    assert (context.sandbox.attempt_folder.output / ".packtrain" / "agent-1" / "f").read_text() == "1"


@pytest.mark.parametrize("errno_value", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_full_disk_is_detected_by_errno(errno_value):
    failure = failure_from_error(OSError(errno_value, "No space left on device", "/scratch/x"), "steps")
    assert failure.kind == "disk_full"
    assert failure.detail == "the disk is full at /scratch/x: No space left on device"
