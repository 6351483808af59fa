"""Events and their JSON form."""

from __future__ import annotations

import json

import pytest

from packtrain.errors import FormatError
from packtrain.events import Event, new_emitter_id
from packtrain.events.event import EVENTS_VERSION

EVENT = Event(
    "run-1", "0", "agent-1", 7, "notice", 1700000000.5, 12.25, {"text": "ü → 汉", "n": [1, None, {"a": True}]}
)
GOOD = json.loads(EVENT.to_json())


def test_an_event_survives_the_round_trip():
    line = EVENT.to_json()
    assert "\n" not in line
    assert Event.from_json(line) == EVENT


def test_the_key_has_what_makes_an_event_unique():
    assert EVENT.key == ("run-1", "0", "agent-1", 7)


def test_an_unknown_kind_and_unknown_keys_are_kept_or_skipped():
    line = json.dumps({**GOOD, "kind": "of.tomorrow", "extra": 1})
    assert Event.from_json(line).kind == "of.tomorrow"


def test_whole_numbers_are_fine_as_times():
    assert Event.from_json(json.dumps({**GOOD, "wall": 1, "mono": 2})).wall == 1


def test_emitters_are_never_the_same():
    made = {new_emitter_id("agent") for _ in range(1000)}
    assert len(made) == 1000
    assert all(emitter.startswith("agent-") for emitter in made)


def without(key):
    return json.dumps({k: v for k, v in GOOD.items() if k != key})


def changed(**values):
    return json.dumps({**GOOD, **values})


BAD = {
    "empty": "",
    "not json": "{half",
    "a list": "[1, 2]",
    "a text": '"text"',
    "a number": "3",
    "null": "null",
    "too deep": "[" * 100_000,
    "a number of too many digits": '{"v": ' + "9" * 10_000 + "}",
    **{f"without {key}": without(key) for key in GOOD},
    "another version": changed(v=EVENTS_VERSION + 1),
    "data is a list": changed(data=[1]),
    "run is a number": changed(run=1),
    "kind is null": changed(kind=None),
    "seq is a text": changed(seq="1"),
    "seq is a bool": changed(seq=True),
    "seq is a float": changed(seq=1.5),
    "seq is beyond any store": changed(seq=2**80),
    "wall is beyond any float": changed(wall=10**400),
    "wall is not a number": changed(wall=float("nan")),
    "mono is infinite": changed(mono=float("inf")),
    "job has half a character": changed(job="\ud83d"),
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD.keys())
def test_what_is_no_event_is_a_format_error_and_nothing_else(line):
    with pytest.raises(FormatError, match="not an event") as caught:
        Event.from_json(line)
    assert len(str(caught.value)) < 600, "a long line is not repeated whole"
