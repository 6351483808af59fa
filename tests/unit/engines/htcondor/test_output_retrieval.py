"""The files that the pool returns: outputs, and checkpoints for the next attempt."""

from __future__ import annotations

import contextlib
import hashlib
import json

import pytest

from packtrain.engines.htcondor.output_retrieval import (
    commit_outputs,
    has_all_outputs,
    job_spool_dir,
    save_spooled_checkpoint,
)
from packtrain.events import Event, kinds
from packtrain.plan import AttemptFolder, CheckpointConfig
from tests.support.condor_plans import make_job, output_at

pytestmark = pytest.mark.slow

LOCAL_JOB = make_job(output=output_at("file:///home/ada/out"))


def make_attempt(folder, *outcomes: str, outputs=(), n_outputs=None) -> AttemptFolder:
    """An attempt folder with one output, and a journal with an end event for each outcome."""
    attempt = AttemptFolder(folder)
    attempt.output.mkdir(parents=True)
    (attempt.output / "model.bin").write_bytes(bytes(10))
    listing = {"outputs": list(outputs), "n_outputs": len(outputs) if n_outputs is None else n_outputs}
    events = [
        Event("r", "0", f"agent-{n}", 1, kinds.AGENT_ENDED, 1.0, 1.0, {"outcome": outcome, **listing})
        for n, outcome in enumerate(outcomes)
    ]
    attempt.journal.write_text("".join(f"{event.to_json()}\n" for event in events))
    return attempt


MODEL = {"path": "model.bin", "bytes": 10}


@pytest.mark.parametrize(
    ("outputs", "is_complete"),
    [
        ([MODEL], True),
        ([], True),
        ([{**MODEL, "bytes": 11}], False),
        ([MODEL, {"path": "more.bin", "bytes": 1}], False),
        ([{}], False),
    ],
)
def test_listed_outputs_with_their_sizes(tmp_path, outputs, is_complete):
    assert has_all_outputs(LOCAL_JOB, make_attempt(tmp_path / "a", "succeeded", outputs=outputs)) is is_complete


@pytest.mark.parametrize(
    ("outcomes", "is_complete"),
    [(["failed"], False), (["requeued", "succeeded"], True), (["succeeded", "failed"], False)],
)
def test_last_end_event_wins(tmp_path, outcomes, is_complete):
    assert has_all_outputs(LOCAL_JOB, make_attempt(tmp_path / "a", *outcomes, outputs=[MODEL])) is is_complete


def test_spooled_checkpoint(tmp_path):
    job = make_job(checkpoint=CheckpointConfig("c.bin"))
    attempt = AttemptFolder(tmp_path / "0-1")
    (attempt.checkpoint).mkdir(parents=True)
    spool_dir = job_spool_dir(str(tmp_path), 10_007, 3)
    assert spool_dir == tmp_path / "7/3/cluster10007.proc3.subproc0"
    save_spooled_checkpoint(job, attempt, spool_dir)
    assert list(attempt.checkpoint.iterdir()) == [], "the spool has none"
    (spool_dir / "checkpoint/more").mkdir(parents=True)
    (spool_dir / "checkpoint/more/c.bin").write_text("weights")
    save_spooled_checkpoint(make_job(), attempt, spool_dir)
    assert list(attempt.checkpoint.iterdir()) == [], "HTCondor does not transfer its checkpoints"
    save_spooled_checkpoint(job, attempt, spool_dir)
    assert (attempt.checkpoint / "more/c.bin").read_text() == "weights"
    (spool_dir / "checkpoint/broken").symlink_to("nowhere")
    (spool_dir / "checkpoint/more/c.bin").write_text("newer")
    save_spooled_checkpoint(job, attempt, spool_dir)
    assert (attempt.checkpoint / "more/c.bin").read_text() == "weights"
    assert [path.name for path in attempt.root.iterdir()] == ["checkpoint"]


def write_many_outputs(attempt: AttemptFolder, emitter: str, count: int = 1500) -> None:
    """Write a listing of many outputs, and all of them but the last."""
    attempt.output_listing(emitter).parent.mkdir(parents=True)
    entries = [{"path": f"part/{number}", "bytes": 1} for number in range(count)]
    attempt.output_listing(emitter).write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    (attempt.output / "part").mkdir()
    for entry in entries[:-1]:
        (attempt.output / entry["path"]).write_text("x")


def test_many_outputs(tmp_path):
    attempt = make_attempt(tmp_path / "a", "succeeded", outputs=[MODEL], n_outputs=1500)
    assert not has_all_outputs(LOCAL_JOB, attempt), "the listing has not been returned yet"
    write_many_outputs(attempt, "agent-7")
    assert not has_all_outputs(LOCAL_JOB, attempt), "the listing is of another execution"
    attempt.output_listing("agent-7").parent.rename(attempt.output_listing("agent-0").parent)
    assert not has_all_outputs(LOCAL_JOB, attempt), "one output is missing"
    (attempt.output / "part/1499").write_text("x")
    assert has_all_outputs(LOCAL_JOB, attempt)


@pytest.mark.parametrize("cut", ['{"path": "x"', ""])
def test_truncated_listing(tmp_path, cut):
    attempt = make_attempt(tmp_path / "a", "succeeded", n_outputs=1500)
    write_many_outputs(attempt, "agent-0")
    (attempt.output / "part/1499").write_text("x")
    text = attempt.output_listing("agent-0").read_text()
    attempt.output_listing("agent-0").write_text(text[: text.rindex("{")] + cut)
    assert not has_all_outputs(LOCAL_JOB, attempt)


def test_no_listing(tmp_path):
    """As in an image without Python."""
    attempt = make_attempt(tmp_path / "a", "succeeded", n_outputs="unknown")
    assert not has_all_outputs(LOCAL_JOB, attempt)


def test_commit_listed_outputs(tmp_path):
    """An earlier execution was interrupted while its outputs were returned."""
    attempt, output = make_attempt(tmp_path / "a", "succeeded", outputs=[MODEL]), tmp_path / "output"
    (attempt.output / "stale.bin").write_text("of an earlier execution")
    attempt.checkpoint.mkdir()
    (attempt.checkpoint / "ckpt").write_text("no longer needed")
    for _ in range(2):
        commit_outputs(make_job(output=output_at(output.as_uri())), attempt)
        assert [path.name for path in output.iterdir()] == ["model.bin"]
    assert not attempt.checkpoint.exists()


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ({**MODEL, "sha256": hashlib.sha256(bytes(10)).hexdigest()}, None),
        ({**MODEL, "sha256": "0" * 64}, "another sha256"),
        ({"path": "model.bin", "bytes": 11}, "has 10 bytes, but had 11"),
        ({"path": "gone.bin", "bytes": 10}, "gone.bin"),
    ],
)
def test_outputs_damaged_by_a_power_cut(tmp_path, output, problem):
    """The pool returned them without a sync. Nothing is moved, so the user has no mixture of old and new files."""
    attempt, target = make_attempt(tmp_path / "a", "succeeded", outputs=[output]), tmp_path / "output"
    with contextlib.nullcontext() if problem is None else pytest.raises(OSError, match=problem):
        commit_outputs(make_job(output=output_at(target.as_uri())), attempt)
    assert [path.name for path in target.iterdir()] == ([] if problem else ["model.bin"])


@pytest.mark.parametrize("n_outputs", [1500, None])
def test_commit_with_a_damaged_list(tmp_path, n_outputs):
    attempt = make_attempt(tmp_path / "a", "succeeded", n_outputs=n_outputs)
    if n_outputs is None:
        attempt.journal.write_bytes(b"")
    with pytest.raises(OSError, match="missing or damaged"):
        commit_outputs(make_job(output=output_at((tmp_path / "output").as_uri())), attempt)


def test_listed_path_outside_of_the_outputs(tmp_path):
    """The list comes from a worker."""
    (tmp_path / "model.bin").write_bytes(bytes(10))
    attempt = make_attempt(tmp_path / "a", "succeeded", outputs=[{"path": "../../model.bin", "bytes": 10}])
    with contextlib.suppress(OSError):
        commit_outputs(make_job(output=output_at((tmp_path / "b/c").as_uri())), attempt)
    assert (tmp_path / "model.bin").exists()


def test_commit_without_listing(tmp_path):
    attempt, output = make_attempt(tmp_path / "a", "succeeded", n_outputs="unknown"), tmp_path / "output"
    (attempt.output / ".packtrain/agent-0").mkdir(parents=True)
    (attempt.output / ".packtrain/agent-0/partial").touch()
    commit_outputs(make_job(output=output_at(output.as_uri())), attempt)
    assert [path.name for path in output.iterdir()] == ["model.bin"]


def test_no_journal(tmp_path):
    assert not has_all_outputs(LOCAL_JOB, AttemptFolder(tmp_path / "none"))


def test_uploaded_outputs(tmp_path):
    attempt = make_attempt(tmp_path / "a", "succeeded", outputs=[{"path": "far.bin", "bytes": 1}])
    assert has_all_outputs(make_job(output=output_at("s3://b/x")), attempt)
