"""The names of a checkpoint's files, and what is told about them. Writing them needs torch: tests/unit/with_torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from packtrain.torch.checkpoint_files import CheckpointFiles
from packtrain.torch.training_state import TrainingState, find_problem, model_state_dict, parse_training_state


@pytest.fixture
def output(tmp_path, monkeypatch):
    for name in ("PACKTRAIN_RESUME", "DEEPSQUARE_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PACKTRAIN_OUTPUT", str(tmp_path))
    return tmp_path


def test_names_lie_below_the_output_folder(output, monkeypatch):
    files = CheckpointFiles("models/ckpt.pth", max_to_keep=2)
    assert (files.latest, files.best) == (output / "models/ckpt.pth", output / "models/ckpt.best.pth")
    monkeypatch.delenv("PACKTRAIN_OUTPUT")
    monkeypatch.setenv("DEEPSQUARE_OUTPUT", str(output / "deep"))
    assert CheckpointFiles("c.pt", max_to_keep=1).latest == output / "deep" / "c.pt"
    monkeypatch.delenv("DEEPSQUARE_OUTPUT")
    monkeypatch.chdir(output)
    assert CheckpointFiles("c.pt", max_to_keep=1).latest == output / "c.pt"
    assert CheckpointFiles(output / "x.pt", max_to_keep=1).latest == output / "x.pt"


def test_what_is_resumed_from_first(output, monkeypatch, tmp_path):
    files = CheckpointFiles("c.pt", max_to_keep=3)
    names = ["c.pt", ".c.pt.tmp-kept-1", ".c.pt.tmp-kept-2", "restored.pt", "given.pt"]
    for name in names:
        (output / name).touch()
    monkeypatch.setenv("PACKTRAIN_RESUME", str(output / "restored.pt"))
    assert [path.name for path in files.candidates(output / "given.pt")] == names
    (output / "c.pt").unlink()
    assert [path.name for path in files.candidates()] == names[1:4]
    monkeypatch.setenv("PACKTRAIN_RESUME", str(output / "c.pt"))
    assert [path.name for path in files.candidates()] == names[1:3], "what does not exist is nobody's"


def test_an_announcement_is_one_line_of_json(output, monkeypatch):
    monkeypatch.setenv("PACKTRAIN_CHECKPOINTS", str(output / "announced"))
    CheckpointFiles("a/c.pt", max_to_keep=1).notify_agent(step=1200, epoch=3)
    CheckpointFiles("/elsewhere/c.pt", max_to_keep=1).notify_agent(step=1201, epoch=3)
    lines = [json.loads(line) for line in (output / "announced").read_text().splitlines()]
    assert lines == [
        {"path": "a/c.pt", "step": 1200, "epoch": 3},
        {"path": "/elsewhere/c.pt", "step": 1201, "epoch": 3},
    ]


def test_one_that_cannot_be_told_ends_no_training(output, monkeypatch):
    monkeypatch.setenv("PACKTRAIN_CHECKPOINTS", "/dev/full")
    CheckpointFiles("c.pt", max_to_keep=1).notify_agent(step=1, epoch=1)
    monkeypatch.delenv("PACKTRAIN_CHECKPOINTS")
    CheckpointFiles("c.pt", max_to_keep=1).notify_agent(step=1, epoch=1)


def test_leftovers_of_the_dead_are_removed(output):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    living = os.getppid()
    names = [f".c.pt.tmp-{dead.pid}", f".c.pt.tmp-{dead.pid}-link", f".c.pt.tmp-{os.getpid()}"]
    kept = [".c.pt.tmp-kept-1", f".c.pt.tmp-{living}", "c.pt", ".other.pt.tmp-1"]
    for name in (*names, *kept):
        (output / name).touch()
    CheckpointFiles("c.pt", max_to_keep=2).remove_leftovers()
    assert sorted(path.name for path in output.iterdir()) == sorted(kept)


def test_positions_of_both_kinds_of_files():
    where = TrainingState(3, 17, 120, 0.5, {"accuracy": 0.4}, {"history": [1]})
    assert parse_training_state({"model": {}, "packtrain": {"version": 1, "position": where.to_dict()}}) == where
    # DeepSquare's program had finished its epochs 0 to 6: the eighth, as we count, comes next.
    assert parse_training_state({"net": {}, "acc": 91.5, "epoch": 6}) == TrainingState(epoch=8, best_value=0.915)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ([1], "it holds no model"),
        ({"weights": {}}, "it holds no model"),
        ({"model": {}}, "it does not say where the training stood"),
        ({"model": {}, "packtrain": {"version": 2}}, "its format has version 2, and this packtrain reads 1"),
        ({"model": {}, "packtrain": {"version": 1}}, ""),
        ({"net": {}, "acc": 1.0, "epoch": 0}, ""),
    ],
)
def test_what_is_no_checkpoint(state, problem):
    assert find_problem(state) == problem


def test_prefixes_of_wrappers_are_taken_off():
    assert model_state_dict({"net": {"module.conv.weight": 1, "module.fc.bias": 2}}) == {"conv.weight": 1, "fc.bias": 2}
    assert model_state_dict({"model": {"module.x": 1, "other": 2}}) == {"module.x": 1, "other": 2}
    assert model_state_dict({"model": {"module._orig_mod.x": 1}}) == {"x": 1}
