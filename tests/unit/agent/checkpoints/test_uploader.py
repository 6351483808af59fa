"""The checkpoint uploader's threads, restoring checkpoints, and reusing inputs in the next attempt."""

import json
import time

import pytest

from packtrain.agent.checkpoints.restore import restore_checkpoint
from packtrain.agent.checkpoints.uploader import CheckpointUploader
from packtrain.agent.outputs.sync import ContinuousSync
from packtrain.agent.processes.exit_status import CheckpointExit
from packtrain.agent.stages import reuse_inputs
from packtrain.errors import FailedError
from packtrain.events import JournalReader
from packtrain.plan import (
    CheckpointConfig,
    Input,
    Job,
    Limits,
    Location,
    Output,
    RemoteFile,
    Resources,
    S3Access,
)
from packtrain.plan.output_manifest import staged_name
from tests.support.attempt_contexts import attempt_contexts
from tests.support.waiting import wait_until

SCAN_INTERVAL_S = 0.05


@pytest.fixture
def make_context(tmp_path):
    """Makes contexts of several attempts of one job."""

    def make_context(emitter="agent-1", inputs=(), retry_timeout_s=0.5, output=None, path="c*.pt", min_interval_s=None):
        job = Job(
            "0",
            (),
            Resources(),
            Limits(grace_s=1),
            (),
            inputs=inputs,
            output=output or Output(Location(f"file://{tmp_path}/destination")),
            checkpoint=CheckpointConfig(path, min_interval_s),
            retry_timeout_s=retry_timeout_s,
        )
        reuse_folder = tmp_path / "reusable-inputs"
        return make(job, emitter, root=emitter, attempt=f"attempt-{emitter}", reuse_folder=reuse_folder)

    with attempt_contexts(tmp_path) as make:
        yield make_context


@pytest.fixture
def destination(tmp_path):
    """The output folder of the job. It does not exist until the first upload."""
    return tmp_path / "destination"


def events(context, kind):
    return [e.data for e in JournalReader(context.journal.path).read() if e.kind == kind]


def notices(context):
    return [data["text"] for data in events(context, "notice")]


def announce(context, name, step):
    with open(context.sandbox.checkpoints_file, "a") as file:
        file.write(json.dumps({"path": name, "step": step}) + "\n")


def save(context, name, text):
    temporary = context.sandbox.output / f".{name}.tmp-1"
    temporary.write_text(text)
    temporary.replace(context.sandbox.output / name)


def make_uploader(context, current_step=lambda: None, scan_interval_s=SCAN_INTERVAL_S):
    assert context.job.output is not None
    assert context.job.checkpoint is not None
    return CheckpointUploader(context, context.job.output, context.job.checkpoint, current_step, scan_interval_s)


def uploaded_steps(context):
    return [data["step"] for data in events(context, "checkpoint.saved")]


def staged_folders(context):
    return [path for path in context.sandbox.checkpoint_staging.iterdir() if path.is_dir()]


def test_unannounced_files_are_uploaded_when_stable(make_context):
    context, reported = make_context(), [None]
    with make_uploader(context, lambda: reported[0]):
        save(context, "c1.pt", "one")
        wait_until(lambda: uploaded_steps(context) == [0])
        reported[0] = 40
        (context.sandbox.output / "c1.pt").write_text("in place")  # as programs do that do not know packtrain
        wait_until(lambda: uploaded_steps(context) == [0, 40])
        save(context, "c2.pt", "two")
        wait_until(lambda: uploaded_steps(context) == [0, 40, 41])
    second = make_context("agent-2")
    restore_checkpoint(second)
    assert second.checkpoint_state.restored_step == 41
    assert second.checkpoint_state.restored_path == second.sandbox.output / "c2.pt"
    assert [path.name for path in second.sandbox.output.iterdir()] == ["c2.pt"]


def restore_files(context):
    restore_checkpoint(context)
    folder = context.sandbox.output
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_several_files_are_restored(make_context):
    first, names = make_context(path="*.pt"), ("model.pt", "optim.pt")
    for name in names:
        save(first, name, name)
    with make_uploader(first):
        wait_until(lambda: set(first.checkpoint_state.uploaded_versions) == set(names))
    second = make_context("agent-2", path="*.pt")
    assert restore_files(second) == {name: name for name in names}
    assert second.checkpoint_state.restored_path == second.sandbox.output
    assert notices(second) == []


def test_folder_is_restored_completely(make_context):
    """Although only one of its files changes between the saves."""
    first = make_context(path="ckpt/")
    (first.sandbox.output / "ckpt").mkdir()
    (first.sandbox.output / "ckpt" / "config.json").write_text("once")
    with make_uploader(first):
        for step in (1, 2, 3):
            (first.sandbox.output / "ckpt" / "model.pt").write_text(f"model {step}")
            wait_until(lambda step=step: len(uploaded_steps(first)) == step)
    expected = {"ckpt/config.json": "once", "ckpt/model.pt": "model 3"}
    assert restore_files(make_context("agent-2", path="ckpt/")) == expected


def test_announcing_program_disables_scans(make_context):
    context = make_context()
    with make_uploader(context):
        save(context, "c1.pt", "one")
        announce(context, "c1.pt", 5)
        wait_until(lambda: uploaded_steps(context) == [5])
        save(context, "c.best.pt", "best")
        time.sleep(5 * SCAN_INTERVAL_S)
        save(context, "c1.pt", "two")
        announce(context, "c1.pt", 6)
        wait_until(lambda: uploaded_steps(context) == [5, 6])


def test_announced_file_does_not_exist(make_context):
    context = make_context()
    with make_uploader(context):
        announce(context, "nothing.pt", 1)
        announce(context, "../../etc/passwd", 2)
        wait_until(lambda: notices(context))
    assert len(notices(context)) == 1, "one notice for each kind of error"
    assert uploaded_steps(context) == []


# End of the steps


def test_newest_save_is_uploaded_after_failure(make_context):
    context = make_context()
    with pytest.raises(FailedError), make_uploader(context) as uploader:
        save(context, "c1.pt", "one")
        announce(context, "c1.pt", 9)
        raise FailedError("step_failed", "the program died at once")
    assert uploaded_steps(context) == [9]
    assert uploader.max_step == 9


def test_last_upload_may_use_reserved_time(make_context):
    """The stop was requested before a time limit: twice the grace period is over, but the limit is not reached."""
    context = make_context()
    context.stop.request("wall_time", "the limit is near", graceful=True, deadline=time.monotonic() + 1000)
    context.stop.requested_at -= 500
    with pytest.raises(FailedError), make_uploader(context) as uploader:
        save(context, "c1.pt", "one")
        announce(context, "c1.pt", 9)
        context.stop.check()
    assert uploader.last_error is None
    assert uploaded_steps(context) == [9]


def test_recent_file_of_killed_program_is_not_uploaded(make_context):
    context = make_context()
    with pytest.raises(FailedError), make_uploader(context, scan_interval_s=60.0):
        (context.sandbox.output / "c1.pt").write_text("half of it")
        raise FailedError("terminated", "SIGTERM")
    assert uploaded_steps(context) == []


@pytest.mark.parametrize("stop_requested", [False, True])
def test_recent_file_is_uploaded_after_checkpoint_exit(make_context, stop_requested):
    context = make_context()
    with pytest.raises(FailedError), make_uploader(context, scan_interval_s=60.0):
        (context.sandbox.output / "c1.pt").write_text("all of it")
        try:
            raise CheckpointExit("step_failed", "it ended with exit code 85", 85)
        except FailedError:
            if stop_requested:
                raise FailedError("terminated", "SIGTERM")  # noqa: B904 - as the steps do
            raise
    assert uploaded_steps(context) == [0]


def test_failing_uploads_do_not_fill_the_disk(make_context, destination):
    destination.write_text("a file prevents the folder")
    context = make_context()
    with make_uploader(context):
        for step in range(20):
            save(context, "c1.pt", f"step {step}")
            announce(context, "c1.pt", step)
            time.sleep(0.03)
        wait_until(lambda: notices(context))
        wait_until(lambda: len(staged_folders(context)) <= 2)


def test_pending_uploads_are_dropped_after_success(make_context, destination):
    destination.write_text("a file prevents the folder")
    context = make_context()
    with make_uploader(context):
        save(context, "c1.pt", "one")
        announce(context, "c1.pt", 9)
        wait_until(lambda: notices(context))
    assert uploaded_steps(context) == []
    assert not staged_folders(context)


def test_nothing_is_written_under_the_users_name(make_context, destination):
    """Only the supervisor writes there, so a late attempt replaces nothing that was accepted."""
    for emitter in ("agent-1", "agent-2"):
        context = make_context(emitter)
        with make_uploader(context):
            save(context, "c1.pt", emitter)
            announce(context, "c1.pt", 9)
            wait_until(lambda context=context: uploaded_steps(context) == [9])
    assert [path.name for path in destination.iterdir()] == [".packtrain"]


def test_retry_timeout_ends_last_upload(make_context, destination):
    destination.write_text("a file prevents the folder")
    context = make_context(output=Output(Location(f"file://{destination}"), retry_timeout_s=0.3))
    with pytest.raises(FailedError), make_uploader(context) as uploader:
        save(context, "c1.pt", "one")
        announce(context, "c1.pt", 9)
        raise FailedError("step_failed", "the program died at once")
    assert uploader.max_step is None
    assert "destination" in str(uploader.last_error)


def test_continuous_sync_skips_checkpoints_and_temporary_files(make_context, destination):
    context = make_context()
    with ContinuousSync(context, context.job.output, SCAN_INTERVAL_S):
        for name in ("c1.pt", ".log.txt.tmp-1", "log.txt"):
            (context.sandbox.output / name).write_text("1")
        staged = destination / staged_name("r", "0", "agent-1", "")
        wait_until((staged / "log.txt").exists)
        time.sleep(3 * SCAN_INTERVAL_S)
    assert [path.name for path in staged.iterdir()] == ["log.txt"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "s3://bucket/x"])
def test_restore_from_unreachable_destination_fails(make_context, url):
    output = Output(Location(url, s3=S3Access("r", "http://127.0.0.1:9")))
    with pytest.raises(FailedError) as caught:
        restore_checkpoint(make_context("agent-2", output=output, retry_timeout_s=0.1))
    assert caught.value.kind == "network_unreachable"


# Reuse of inputs

INPUTS = (Input("", "input", (RemoteFile("data.txt", (Location("file:///x"),)),)),)


def test_next_attempt_reuses_inputs(make_context):
    first, second, third = (make_context(f"agent-{n}", INPUTS) for n in (1, 2, 3))
    (first.sandbox.input / "data.txt").write_text("1")
    reuse_inputs.record_inputs_fingerprint(first)
    reuse_inputs.save_inputs(first)
    stats = {}
    assert reuse_inputs.restore_inputs(second, stats)
    assert stats["source"] == "reused"
    assert (second.sandbox.input / "data.txt").read_text() == "1"
    assert second.sandbox.inputs.is_dir()
    assert second.checkpoint_state.inputs_reused
    assert not reuse_inputs.restore_inputs(third, {}), "the second attempt has them"
    reuse_inputs.save_inputs(second)
    assert reuse_inputs.restore_inputs(third, {})


def test_changed_inputs_are_not_saved(make_context, tmp_path):
    first = make_context("agent-1", INPUTS)
    (first.sandbox.input / "data.txt").write_text("1")
    reuse_inputs.record_inputs_fingerprint(first)
    (first.sandbox.input / "data.txt").write_text("22")
    reuse_inputs.save_inputs(first)
    assert not (tmp_path / "reusable-inputs").exists()


@pytest.mark.parametrize("boot_id", ["the next boot", ""])
def test_inputs_are_not_reused_after_a_reboot(make_context, monkeypatch, boot_id):
    """Nothing synced them, so a power cut may have left holes of the right size."""
    first = make_context("agent-1", INPUTS)
    (first.sandbox.input / "data.txt").write_text("1")
    reuse_inputs.record_inputs_fingerprint(first)
    reuse_inputs.save_inputs(first)
    monkeypatch.setattr(reuse_inputs, "boot_id", lambda: boot_id)
    assert not reuse_inputs.restore_inputs(make_context("agent-2", INPUTS), {})


def test_inputs_of_another_plan_are_not_reused(make_context, tmp_path):
    first = make_context("agent-1", INPUTS)
    (first.sandbox.input / "data.txt").write_text("1")
    reuse_inputs.record_inputs_fingerprint(first)
    reuse_inputs.save_inputs(first)
    other_inputs = (Input("", "input", (RemoteFile("other.txt", (Location("file:///y"),)),)),)
    other = make_context("agent-2", other_inputs)
    assert not reuse_inputs.restore_inputs(other, {})
    assert list(other.sandbox.input.iterdir()) == []
    assert not (tmp_path / "reusable-inputs").exists(), "they are deleted"
