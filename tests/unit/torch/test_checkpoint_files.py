"""Tests of the names and the keys of checkpoint files. Tests that write them need torch: tests/with_torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from packtrain.torch.checkpoint_files import CheckpointFiles
from packtrain.torch.training_state import (
    CHECKPOINT_VERSION,
    TrainingState,
    find_problem,
    model_state_dict,
    parse_training_state,
)


@pytest.fixture
def output(tmp_path, monkeypatch):
    for name in ("PACKTRAIN_RESUME", "DEEPSQUARE_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PACKTRAIN_OUTPUT", str(tmp_path))
    return tmp_path


def test_files_are_in_the_output_folder(output, monkeypatch):
    files = CheckpointFiles("models/ckpt.pth", max_to_keep=2)
    assert (files.latest, files.best) == (output / "models/ckpt.pth", output / "models/ckpt.best.pth")
    monkeypatch.delenv("PACKTRAIN_OUTPUT")
    monkeypatch.setenv("DEEPSQUARE_OUTPUT", str(output / "deep"))
    assert CheckpointFiles("c.pt", max_to_keep=1).latest == output / "deep" / "c.pt"
    monkeypatch.delenv("DEEPSQUARE_OUTPUT")
    monkeypatch.chdir(output)
    assert CheckpointFiles("c.pt", max_to_keep=1).latest == output / "c.pt"
    assert CheckpointFiles(output / "x.pt", max_to_keep=1).latest == output / "x.pt"


def test_candidates(output, monkeypatch, tmp_path):
    files = CheckpointFiles("c.pt", max_to_keep=3)
    names = ["c.pt", ".c.pt.tmp-previous-1", ".c.pt.tmp-previous-2", "restored.pt", "given.pt"]
    for name in names:
        (output / name).touch()
    monkeypatch.setenv("PACKTRAIN_RESUME", str(output / "restored.pt"))
    assert [path.name for path in files.candidates(output / "given.pt")] == names
    (output / "c.pt").unlink()
    assert [path.name for path in files.candidates()] == names[1:4]
    monkeypatch.setenv("PACKTRAIN_RESUME", str(output / "c.pt"))
    assert [path.name for path in files.candidates()] == names[1:3], "a missing file is no candidate"


def test_notice_is_one_line_of_json(output, monkeypatch):
    monkeypatch.setenv("PACKTRAIN_CHECKPOINTS", str(output / "notices"))
    CheckpointFiles("a/c.pt", max_to_keep=1).notify_agent(step=1200, epoch=3)
    CheckpointFiles("/elsewhere/c.pt", max_to_keep=1).notify_agent(step=1201, epoch=3)
    lines = [json.loads(line) for line in (output / "notices").read_text().splitlines()]
    assert lines == [
        {"path": "a/c.pt", "step": 1200, "epoch": 3},
        {"path": "/elsewhere/c.pt", "step": 1201, "epoch": 3},
    ]


def test_failed_notice_is_ignored(output, monkeypatch):
    monkeypatch.setenv("PACKTRAIN_CHECKPOINTS", "/dev/full")
    CheckpointFiles("c.pt", max_to_keep=1).notify_agent(step=1, epoch=1)
    monkeypatch.delenv("PACKTRAIN_CHECKPOINTS")
    CheckpointFiles("c.pt", max_to_keep=1).notify_agent(step=1, epoch=1)


def test_leftovers_of_dead_processes_are_removed(output):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    living = os.getppid()
    leftovers = [f".c.pt.tmp-{dead.pid}", f".c.pt.tmp-{dead.pid}-link", f".c.pt.tmp-{os.getpid()}"]
    others = [".c.pt.tmp-previous-1", f".c.pt.tmp-{living}", "c.pt", ".other.pt.tmp-1"]
    for name in (*leftovers, *others):
        (output / name).touch()
    CheckpointFiles("c.pt", max_to_keep=2).remove_leftovers()
    assert sorted(path.name for path in output.iterdir()) == sorted(others)


def test_parse_training_state():
    training_state = TrainingState(3, 17, 120, 0.5, {"accuracy": 0.4}, {"history": [1]})
    ours = {"version": CHECKPOINT_VERSION, "training_state": training_state.to_dict()}
    assert parse_training_state({"model": {}, "packtrain": ours}) == training_state
    assert parse_training_state({"model": {}, "packtrain": {"training_state": {}}}) == TrainingState(epoch=0, batch=0)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ([1], "it holds no model"),
        ({"weights": {}}, "it holds no model"),
        ({"model": {}}, "it holds no training state"),
        ({"model": {}, "packtrain": {"version": 1}}, "its format has version 1, and this packtrain reads 3"),
        ({"model": {}, "packtrain": {"version": 3}}, ""),
        ({"net": {}, "acc": 1.0, "epoch": 0}, "it holds no model"),
    ],
)
def test_find_problem(state, problem):
    assert find_problem(state) == problem


def test_prefixes_of_wrappers_are_removed():
    assert model_state_dict({"model": {"module.conv.weight": 1, "module.fc.bias": 2}}) == {
        "conv.weight": 1,
        "fc.bias": 2,
    }
    assert model_state_dict({"model": {"module.x": 1, "other": 2}}) == {"module.x": 1, "other": 2}
    assert model_state_dict({"model": {"module._orig_mod.x": 1}}) == {"x": 1}
