"""The checkpoint record: JSON round trip, rejection of invalid records, and the order of records."""

import json
from dataclasses import replace

import pytest

from packtrain.agent.checkpoints.record import CheckpointRecord, SavedFile, best_first
from packtrain.errors import FormatError

RECORD = CheckpointRecord(
    run="run-1",
    job="0",
    emitter="agent-1",
    generation=3,
    step=120,
    epoch=2,
    path="ckpt.pt",
    files=(SavedFile("ckpt.pt", size=10, sha256="ab"),),
    saved_at=1.5,
)


def record_json(**changes):
    return json.dumps({**json.loads(RECORD.to_json()), **changes})


def test_round_trip():
    assert CheckpointRecord.from_json(RECORD.to_json()) == RECORD
    assert CheckpointRecord.from_json(replace(RECORD, epoch=None).to_json()).epoch is None
    assert CheckpointRecord.from_json(record_json(unknown_key="ignored")) == RECORD
    assert RECORD.prefix == ".packtrain/checkpoints/run-1/0/agent-1/3"
    assert RECORD.total_bytes == 10
    assert CheckpointRecord.from_json(record_json(path=".")).path == ".", "several files in the output folder itself"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "[" * 100000,
        record_json(version=1),
        record_json(step="120"),
        record_json(step=True),
        record_json(files=[]),
        record_json(files=[{"name": "../../etc/passwd", "size": 1, "sha256": ""}]),
        record_json(files=[{"name": "/etc/passwd", "size": 1, "sha256": ""}]),
        record_json(path=".."),
        record_json(path=""),
        record_json(files=[{"name": ".", "size": 1, "sha256": ""}]),
        record_json(files=None),
        record_json(saved_at=None),
    ],
)
def test_invalid_record(text):
    with pytest.raises(FormatError):
        CheckpointRecord.from_json(text)


def test_best_first():
    """The highest step comes first, then the newest generation."""
    older = replace(RECORD, generation=2)
    further = replace(RECORD, step=121, generation=1, emitter="agent-0")
    assert best_first([older, RECORD, further]) == [further, RECORD, older]
