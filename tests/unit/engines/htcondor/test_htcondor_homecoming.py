"""What an attempt brought back, and whether that is all."""

from __future__ import annotations

import pytest
from plans import at, job

from packtrain.engines.htcondor.homecoming import is_home
from packtrain.events import Event, kinds
from packtrain.plan import AttemptFolder

HERE = job(output=at("file:///home/ada/out"))


def attempt_that_said(folder, *outcomes: str, outputs=()) -> AttemptFolder:
    attempt = AttemptFolder(folder)
    attempt.output.mkdir(parents=True)
    (attempt.output / "model.bin").write_bytes(bytes(10))
    events = [
        Event("r", "0", f"agent-{n}", 1, kinds.ATTEMPT_ENDED, 1.0, 1.0, {"outcome": outcome, "outputs": list(outputs)})
        for n, outcome in enumerate(outcomes)
    ]
    attempt.journal.write_text("".join(f"{event.to_json()}\n" for event in events))
    return attempt


MODEL = {"path": "model.bin", "bytes": 10}


@pytest.mark.parametrize(
    ("outputs", "home"),
    [
        ([MODEL], True),
        ([], True),
        ([{**MODEL, "bytes": 11}], False),
        ([MODEL, {"path": "more.bin", "bytes": 1}], False),
        ([MODEL] * 1000, False),
        ([{}], False),
    ],
)
def test_all_that_the_agent_listed_is_there_in_its_size(tmp_path, outputs, home):
    assert is_home(HERE, attempt_that_said(tmp_path / "a", "succeeded", outputs=outputs)) is home


@pytest.mark.parametrize(
    ("outcomes", "home"), [(["failed"], False), (["continue", "succeeded"], True), (["succeeded", "failed"], False)]
)
def test_the_last_word_counts(tmp_path, outcomes, home):
    assert is_home(HERE, attempt_that_said(tmp_path / "a", *outcomes, outputs=[MODEL])) is home


def test_without_a_journal_nothing_is_known(tmp_path):
    assert not is_home(HERE, AttemptFolder(tmp_path / "none"))


def test_outputs_of_another_place_were_brought_there_by_the_agent(tmp_path):
    attempt = attempt_that_said(tmp_path / "a", "succeeded", outputs=[{"path": "far.bin", "bytes": 1}])
    assert is_home(job(output=at("s3://b/x")), attempt)
