"""The record of a generation: what is written can be read, and what is no record is refused."""

import json
from dataclasses import replace

import pytest

from packtrain.agent.checkpoints.record import CheckpointRecord, SavedFile, best_first
from packtrain.errors import FormatError

RECORD = CheckpointRecord("run-1", "0", "agent-1", 3, 120, 2, "ckpt.pt", (SavedFile("ckpt.pt", 10, "ab"),), 1.5)


def changed(**more):
    return json.dumps({**json.loads(RECORD.to_json()), **more})


def test_there_and_back():
    assert CheckpointRecord.from_json(RECORD.to_json()) == RECORD
    assert CheckpointRecord.from_json(replace(RECORD, epoch=None).to_json()).epoch is None
    assert CheckpointRecord.from_json(changed(of="tomorrow")) == RECORD
    assert RECORD.prefix == ".packtrain/checkpoints/run-1/0/agent-1/3"
    assert RECORD.total_bytes == 10
    assert CheckpointRecord.from_json(changed(path=".")).path == ".", (
        "files beside each other, in no folder of their own"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "[" * 100000,
        changed(version=1),
        changed(step="120"),
        changed(step=True),
        changed(files=[]),
        changed(files=[{"name": "../../etc/passwd", "size": 1, "sha256": ""}]),
        changed(files=[{"name": "/etc/passwd", "size": 1, "sha256": ""}]),
        changed(path=".."),
        changed(path=""),
        changed(files=[{"name": ".", "size": 1, "sha256": ""}]),
        changed(files=None),
        changed(saved_at=None),
    ],
)
def test_what_is_no_record(text):
    with pytest.raises(FormatError):
        CheckpointRecord.from_json(text)


def test_the_furthest_training_comes_first_then_the_newest_generation():
    older = replace(RECORD, generation=2)
    further = replace(RECORD, step=121, generation=1, emitter="agent-0")
    assert best_first([older, RECORD, further]) == [further, RECORD, older]
