"""Events as JSON lines."""

from __future__ import annotations

import json

import pytest

from packtrain.errors import FormatError
from packtrain.events import Event, new_emitter_id
from packtrain.events.event import EVENTS_VERSION

EVENT = Event(
    "run-1", "0", "agent-1", 7, "notice", 1700000000.5, 12.25, {"text": "ü → 汉", "n": [1, None, {"a": True}]}
)
VALID = json.loads(EVENT.to_json())


def test_round_trip():
    line = EVENT.to_json()
    assert "\n" not in line
    assert Event.from_json(line) == EVENT


def test_key():
    assert EVENT.key == ("run-1", "0", "agent-1", 7)


def test_unknown_kind_and_keys():
    """Unknown kinds are kept and unknown keys ignored, for events of newer versions."""
    line = json.dumps({**VALID, "kind": "future.kind", "extra": 1})
    assert Event.from_json(line).kind == "future.kind"


def test_int_times():
    assert Event.from_json(json.dumps({**VALID, "wall": 1, "mono": 2})).wall == 1


def test_emitter_ids_are_unique():
    emitters = {new_emitter_id("agent") for _ in range(1000)}
    assert len(emitters) == 1000
    assert all(emitter.startswith("agent-") for emitter in emitters)


def without_key(key):
    return json.dumps({k: v for k, v in VALID.items() if k != key})


def with_values(**values):
    return json.dumps({**VALID, **values})


INVALID = {
    "empty": "",
    "not json": "{half",
    "a list": "[1, 2]",
    "a string": '"text"',
    "a number": "3",
    "null": "null",
    "too deep": "[" * 100_000,
    "int with too many digits": '{"v": ' + "9" * 10_000 + "}",
    **{f"without {key}": without_key(key) for key in VALID},
    "another version": with_values(v=EVENTS_VERSION + 1),
    "data is a list": with_values(data=[1]),
    "run is a number": with_values(run=1),
    "kind is null": with_values(kind=None),
    "seq is a string": with_values(seq="1"),
    "seq is a bool": with_values(seq=True),
    "seq is a float": with_values(seq=1.5),
    "seq is too large for the store": with_values(seq=2**80),
    "wall is too large for a float": with_values(wall=10**400),
    "wall is NaN": with_values(wall=float("nan")),
    "mono is infinite": with_values(mono=float("inf")),
    "job has a lone surrogate": with_values(job="\ud83d"),
}


@pytest.mark.parametrize("line", INVALID.values(), ids=INVALID.keys())
def test_invalid_lines(line):
    with pytest.raises(FormatError, match="not an event") as error:
        Event.from_json(line)
    assert len(str(error.value)) < 600, "the message shortens a long line"
