"""Checkpoints while steps run: the threads around what `carrying` decides; and inputs that stay."""

import json
import time

import pytest

from packtrain.agent.agent_log import AgentLog
from packtrain.agent.checkpoints.restore import restore_checkpoint
from packtrain.agent.checkpoints.uploader import CheckpointUploader
from packtrain.agent.context import AttemptContext
from packtrain.agent.outputs.sync import ContinuousSync, sync_outputs
from packtrain.agent.processes.exit_status import CheckpointExit
from packtrain.agent.processes.guard import Guard
from packtrain.agent.processes.process_table import ProcessTable
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stages import reuse_inputs
from packtrain.agent.stop_request import StopRequest
from packtrain.errors import FailedError
from packtrain.events import Journal, JournalReader, Redactor
from packtrain.plan import (
    AttemptFolder,
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

LOOK_S = 0.05


@pytest.fixture
def make(tmp_path):
    """Contexts of one job's attempts."""
    guards = []

    def make(emitter="agent-1", inputs=(), patience_s=0.5, output=None, path="c*.pt", every_s=None):
        box = Sandbox(tmp_path / emitter, AttemptFolder(tmp_path / f"home-{emitter}"))
        box.create()
        redactor = Redactor()
        guards.append(Guard.start())
        output = output or Output(Location(f"file://{tmp_path}/place"))
        more = {
            "inputs": inputs,
            "output": output,
            "checkpoint": CheckpointConfig(path, every_s),
            "patience_s": patience_s,
        }
        job = Job("0", (), Resources(), Limits(grace_s=1), (), **more)
        journal = Journal(box.attempt_folder.journal, "r", "0", emitter, redactor)
        log, secrets = AgentLog(box.attempt_folder.agent_log, redactor), Secrets(tmp_path / "secrets")
        keep = tmp_path / "kept"
        return AttemptContext(
            job, box, journal, log, secrets, redactor, StopRequest(), ProcessTable(guards[-1], 0.2), reuse_folder=keep
        )

    yield make
    for guard in guards:
        guard.quit()


def events(context, kind):
    return [e.data for e in JournalReader(context.journal.path).read() if e.kind == kind]


def notices(context):
    return [data["text"] for data in events(context, "notice")]


def until(ready):
    deadline = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def announce(context, name, step):
    with open(context.box.checkpoints, "a") as file:
        file.write(json.dumps({"path": name, "step": step}) + "\n")


def save(context, name, text):
    temporary = context.box.output / f".{name}.tmp-1"
    temporary.write_text(text)
    temporary.replace(context.box.output / name)


def following(context, step_now=lambda: None):
    assert context.job.output is not None
    assert context.job.checkpoint is not None
    return CheckpointUploader(context, context.job.output, context.job.checkpoint, step_now, LOOK_S)


def saved(context):
    return [data["step"] for data in events(context, "checkpoint.saved")]


def test_what_nobody_announces_is_taken_when_it_rests(make, tmp_path):
    context, reported = make(), [None]
    with following(context, lambda: reported[0]):
        save(context, "c1.pt", "one")
        until(lambda: saved(context) == [0])
        reported[0] = 40
        (context.box.output / "c1.pt").write_text("in place")  # as programs do that know nothing of us
        until(lambda: saved(context) == [0, 40])
        save(context, "c2.pt", "two")
        until(lambda: saved(context) == [0, 40, 41])
        until(lambda: (tmp_path / "place" / "c2.pt").exists())
    assert (tmp_path / "place" / "c1.pt").read_text() == "in place"
    second = make("agent-2")
    restore_checkpoint(second)
    assert second.saved.start_step == 41
    assert second.saved.path == second.box.output / "c2.pt"
    assert [path.name for path in second.box.output.iterdir()] == ["c2.pt"]


def restored(context):
    restore_checkpoint(context)
    folder = context.box.output
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_several_files_beside_each_other_come_back(make):
    first, names = make(path="*.pt"), ("model.pt", "optim.pt")
    for name in names:
        save(first, name, name)
    with following(first):
        until(lambda: set(first.saved.carried) == set(names))
    second = make("agent-2", path="*.pt")
    assert restored(second) == {name: name for name in names}
    assert second.saved.path == second.box.output
    assert notices(second) == []


def test_a_folder_comes_back_as_a_whole_though_one_file_of_it_is_written_again(make, tmp_path):
    first, shown = make(path="ckpt/"), tmp_path / "place" / "ckpt" / "model.pt"
    (first.box.output / "ckpt").mkdir()
    (first.box.output / "ckpt" / "config.json").write_text("once")
    with following(first):
        for step in (1, 2, 3):
            (first.box.output / "ckpt" / "model.pt").write_text(f"model {step}")
            until(lambda step=step: shown.exists() and shown.read_text() == f"model {step}")
    assert restored(make("agent-2", path="ckpt/")) == {"ckpt/config.json": "once", "ckpt/model.pt": "model 3"}


def test_once_a_program_announces_nothing_else_counts(make, tmp_path):
    context = make()
    with following(context):
        save(context, "c1.pt", "one")
        announce(context, "c1.pt", 5)
        until(lambda: saved(context) == [5])
        save(context, "c.best.pt", "best")
        time.sleep(5 * LOOK_S)
        save(context, "c1.pt", "two")
        announce(context, "c1.pt", 6)
        until(lambda: saved(context) == [5, 6])
    assert not (tmp_path / "place" / "c.best.pt").exists()


def test_announced_in_vain(make):
    context = make()
    with following(context):
        announce(context, "nothing.pt", 1)
        announce(context, "../../etc/passwd", 2)
        until(lambda: notices(context))
    assert len(notices(context)) == 1, "told once for each kind"
    assert saved(context) == []


def test_at_a_bad_end_the_newest_is_carried_away(make):
    context = make()
    with pytest.raises(FailedError), following(context) as checkpoints:
        save(context, "c1.pt", "one")
        announce(context, "c1.pt", 9)
        raise FailedError("step_failed", "the program died at once")
    assert saved(context) == [9]
    assert checkpoints.max_step == 9


def test_the_last_one_has_the_time_that_was_reserved_for_it(make):
    """Asked ahead of a limit: twice the grace period is over, the limit is not."""
    context = make()
    context.stop.request("wall_time", "its time is near", gentle=True, by=time.monotonic() + 1000)
    context.stop.since -= 500
    with pytest.raises(FailedError), following(context) as checkpoints:
        save(context, "c1.pt", "one")
        announce(context, "c1.pt", 9)
        context.stop.check()
    assert checkpoints.last_error is None
    assert saved(context) == [9]


def test_what_a_killed_program_may_have_been_writing_is_not_taken(make):
    context = make()
    checkpoints = CheckpointUploader(
        context, context.job.output, context.job.checkpoint, lambda: None, scan_interval_s=60.0
    )
    with pytest.raises(FailedError), checkpoints:
        (context.box.output / "c1.pt").write_text("half of it")
        raise FailedError("terminated", "SIGTERM")
    assert saved(context) == []


@pytest.mark.parametrize("asked", [False, True])
def test_what_a_program_that_left_has_written_is_taken(make, asked):
    context = make()
    checkpoints = CheckpointUploader(
        context, context.job.output, context.job.checkpoint, lambda: None, scan_interval_s=60.0
    )
    with pytest.raises(FailedError), checkpoints:
        (context.box.output / "c1.pt").write_text("all of it")
        try:
            raise CheckpointExit("step_failed", "it ended with exit code 85", 85)
        except FailedError:
            if asked:
                raise FailedError("terminated", "SIGTERM")  # noqa: B904 - as the steps do
            raise
    assert saved(context) == [0]


def test_while_the_sink_is_in_trouble_the_disk_does_not_fill(make, tmp_path):
    (tmp_path / "place").write_text("a file is in the way of the folder")
    context = make()
    with following(context):
        for step in range(20):
            save(context, "c1.pt", f"step {step}")
            announce(context, "c1.pt", step)
            time.sleep(0.03)
        until(lambda: notices(context))
        until(lambda: len([path for path in context.box.aside.iterdir() if path.is_dir()]) <= 2)


def test_at_a_good_end_the_rest_is_dropped(make, tmp_path):
    (tmp_path / "place").write_text("a file is in the way of the folder")
    context = make()
    with following(context):
        save(context, "c1.pt", "one")
        announce(context, "c1.pt", 9)
        until(lambda: notices(context))
    assert saved(context) == []
    assert not [path for path in context.box.aside.iterdir() if path.is_dir()], "nothing is left aside"


def test_a_late_attempt_does_not_hide_the_final_checkpoint(make, tmp_path):
    """Of the one that ended well the last save was dropped without a record: only the outputs have it."""
    first, late = make(every_s=1000), make("agent-2")
    with following(first):
        for step in (1, 9):
            save(first, "c1.pt", f"step {step}")
            announce(first, "c1.pt", step)
            until(lambda step=step: first.saved.reached == step)
            until((tmp_path / "place" / "c1.pt").exists)
    sync_outputs(first, "", {})
    assert saved(first) == [1]
    with following(late):
        for step in (5, 10):
            save(late, "c1.pt", f"late, step {step}")
            announce(late, "c1.pt", step)
            until(lambda step=step: saved(late)[-1:] == [step])
            if step == 5:
                announce(late, "c1.pt", 6)  # once it is carried away, the one before was shown or not
                until(lambda: saved(late)[-1:] == [6])
                assert (tmp_path / "place" / "c1.pt").read_text() == "step 9"
        until(lambda: (tmp_path / "place" / "c1.pt").read_text() == "late, step 10")


def test_at_a_bad_end_patience_has_an_end(make, tmp_path):
    (tmp_path / "place").write_text("a file is in the way of the folder")
    context = make(output=Output(Location(f"file://{tmp_path}/place"), retry_timeout_s=0.3))
    with pytest.raises(FailedError), following(context) as checkpoints:
        save(context, "c1.pt", "one")
        announce(context, "c1.pt", 9)
        raise FailedError("step_failed", "the program died at once")
    assert checkpoints.max_step is None
    assert "place" in str(checkpoints.last_error)


def test_continuous_sync_leaves_checkpoints_and_temporary_files_alone(make, tmp_path):
    context = make()
    with ContinuousSync(context, context.job.output, LOOK_S):
        for name in ("c1.pt", ".log.txt.tmp-1", "log.txt"):
            (context.box.output / name).write_text("1")
        until((tmp_path / "place" / "log.txt").exists)
        time.sleep(3 * LOOK_S)
    assert [path.name for path in (tmp_path / "place").iterdir()] == ["log.txt"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "s3://bucket/x"])
def test_a_destination_that_cannot_be_asked_is_a_failure(make, url):
    dead = Output(Location(url, s3=S3Access("r", "http://127.0.0.1:9")))
    with pytest.raises(FailedError) as caught:
        restore_checkpoint(make("agent-2", output=dead, patience_s=0.1))
    assert caught.value.kind == "network_unreachable"


# Inputs that stay

DATA = (Input("", "input", (RemoteFile("data.txt", (Location("file:///x"),)),)),)


def test_inputs_go_from_one_attempt_to_the_next(make, tmp_path):
    first, second, third = (make(f"agent-{n}", DATA) for n in (1, 2, 3))
    (first.box.input / "data.txt").write_text("1")
    reuse_inputs.record_inputs_fingerprint(first)
    reuse_inputs.save_inputs(first)
    tally = {}
    assert reuse_inputs.restore_inputs(second, tally)
    assert tally["source"] == "kept by the attempt before"
    assert (second.box.input / "data.txt").read_text() == "1"
    assert second.box.inputs.is_dir()
    assert second.saved.inputs_kept
    assert not reuse_inputs.restore_inputs(third, {}), "they are the second one's now"
    reuse_inputs.save_inputs(second)
    assert reuse_inputs.restore_inputs(third, {})


def test_inputs_that_a_step_changed_do_not_stay(make, tmp_path):
    first = make("agent-1", DATA)
    (first.box.input / "data.txt").write_text("1")
    reuse_inputs.record_inputs_fingerprint(first)
    (first.box.input / "data.txt").write_text("22")
    reuse_inputs.save_inputs(first)
    assert not (tmp_path / "kept").exists()


def test_inputs_of_another_plan_are_not_taken(make, tmp_path):
    first = make("agent-1", DATA)
    (first.box.input / "data.txt").write_text("1")
    reuse_inputs.record_inputs_fingerprint(first)
    reuse_inputs.save_inputs(first)
    other = make("agent-2", (Input("", "input", (RemoteFile("other.txt", (Location("file:///y"),)),)),))
    assert not reuse_inputs.restore_inputs(other, {})
    assert list(other.box.input.iterdir()) == []
    assert not (tmp_path / "kept").exists(), "and nobody else takes them"
