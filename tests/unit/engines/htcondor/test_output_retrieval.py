"""What an attempt brought back, and whether that is all."""

from __future__ import annotations

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

HERE = make_job(output=output_at("file:///home/ada/out"))


def listed(outputs, files) -> dict:
    return {"outputs": list(outputs), "n_outputs": len(outputs) if files is None else files}


def attempt_that_said(folder, *outcomes: str, outputs=(), files=None) -> AttemptFolder:
    attempt = AttemptFolder(folder)
    attempt.output.mkdir(parents=True)
    (attempt.output / "model.bin").write_bytes(bytes(10))
    events = [
        Event("r", "0", f"agent-{n}", 1, kinds.AGENT_ENDED, 1.0, 1.0, {"outcome": outcome, **listed(outputs, files)})
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
        ([{}], False),
    ],
)
def test_all_that_the_agent_listed_is_there_in_its_size(tmp_path, outputs, home):
    assert has_all_outputs(HERE, attempt_that_said(tmp_path / "a", "succeeded", outputs=outputs)) is home


@pytest.mark.parametrize(
    ("outcomes", "home"), [(["failed"], False), (["continue", "succeeded"], True), (["succeeded", "failed"], False)]
)
def test_the_last_word_counts(tmp_path, outcomes, home):
    assert has_all_outputs(HERE, attempt_that_said(tmp_path / "a", *outcomes, outputs=[MODEL])) is home


def test_a_checkpoint_in_the_spool_is_brought_here_whole_or_not_at_all(tmp_path):
    training = make_job(checkpoint=CheckpointConfig("c.bin"))
    attempt = AttemptFolder(tmp_path / "0-1")
    (attempt.checkpoint).mkdir(parents=True)
    place = job_spool_dir(str(tmp_path), 10_007, 3)
    assert place == tmp_path / "7/3/cluster10007.proc3.subproc0"
    save_spooled_checkpoint(training, attempt, place)
    assert list(attempt.checkpoint.iterdir()) == [], "there is none"
    (place / "checkpoint/more").mkdir(parents=True)
    (place / "checkpoint/more/c.bin").write_text("weights")
    save_spooled_checkpoint(make_job(), attempt, place)
    assert list(attempt.checkpoint.iterdir()) == [], "it is not one of HTCondor's to carry"
    save_spooled_checkpoint(training, attempt, place)
    assert (attempt.checkpoint / "more/c.bin").read_text() == "weights"
    (place / "checkpoint/broken").symlink_to("nowhere")
    (place / "checkpoint/more/c.bin").write_text("newer")
    save_spooled_checkpoint(training, attempt, place)
    assert (attempt.checkpoint / "more/c.bin").read_text() == "weights"
    assert [path.name for path in attempt.root.iterdir()] == ["checkpoint"]


def many(attempt: AttemptFolder, emitter: str, count: int = 1500) -> None:
    """Outputs that the list beside them names, and all but one of them."""
    attempt.output_listing(emitter).parent.mkdir(parents=True)
    entries = [{"path": f"part/{number}", "bytes": 1} for number in range(count)]
    attempt.output_listing(emitter).write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    (attempt.output / "part").mkdir()
    for entry in entries[:-1]:
        (attempt.output / entry["path"]).write_text("x")


def test_any_number_of_outputs(tmp_path):
    attempt = attempt_that_said(tmp_path / "a", "succeeded", outputs=[MODEL], files=1500)
    assert not has_all_outputs(HERE, attempt), "the list is not here yet"
    many(attempt, "agent-7")
    assert not has_all_outputs(HERE, attempt), "it is of another start"
    attempt.output_listing("agent-7").parent.rename(attempt.output_listing("agent-0").parent)
    assert not has_all_outputs(HERE, attempt), "one is on its way"
    (attempt.output / "part/1499").write_text("x")
    assert has_all_outputs(HERE, attempt)


@pytest.mark.parametrize("cut", ['{"path": "x"', ""])
def test_a_list_that_did_not_come_whole_says_nothing(tmp_path, cut):
    attempt = attempt_that_said(tmp_path / "a", "succeeded", files=1500)
    many(attempt, "agent-0")
    (attempt.output / "part/1499").write_text("x")
    text = attempt.output_listing("agent-0").read_text()
    attempt.output_listing("agent-0").write_text(text[: text.rindex("{")] + cut)
    assert not has_all_outputs(HERE, attempt)


def test_where_nobody_lists_the_outputs_nothing_is_known(tmp_path):
    """An image without Python."""
    attempt = attempt_that_said(tmp_path / "a", "succeeded", files="unknown")
    assert not has_all_outputs(HERE, attempt)


def test_only_what_the_attempt_made_is_brought_home(tmp_path):
    """An earlier start was ended while its outputs were on their way."""
    attempt, home = attempt_that_said(tmp_path / "a", "succeeded", outputs=[MODEL]), tmp_path / "home"
    (attempt.output / "stale.bin").write_text("of a start before")
    attempt.checkpoint.mkdir()
    (attempt.checkpoint / "ckpt").write_text("no longer needed")
    for _ in range(2):
        commit_outputs(make_job(output=output_at(home.as_uri())), attempt)
        assert [path.name for path in home.iterdir()] == ["model.bin"]
    assert not attempt.checkpoint.exists()


def test_without_a_list_all_is_brought_home(tmp_path):
    attempt, home = attempt_that_said(tmp_path / "a", "succeeded", files="unknown"), tmp_path / "home"
    (attempt.output / ".packtrain/agent-0").mkdir(parents=True)
    (attempt.output / ".packtrain/agent-0/partial").touch()
    commit_outputs(make_job(output=output_at(home.as_uri())), attempt)
    assert [path.name for path in home.iterdir()] == ["model.bin"]


def test_without_a_journal_nothing_is_known(tmp_path):
    assert not has_all_outputs(HERE, AttemptFolder(tmp_path / "none"))


def test_outputs_of_another_place_were_brought_there_by_the_agent(tmp_path):
    attempt = attempt_that_said(tmp_path / "a", "succeeded", outputs=[{"path": "far.bin", "bytes": 1}])
    assert has_all_outputs(make_job(output=output_at("s3://b/x")), attempt)
