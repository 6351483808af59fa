"""After a power cut at any step of a save, the checkpoints of a training program are complete."""

from __future__ import annotations

import os
import warnings

import pytest
import torch

from packtrain.torch.checkpoint_files import CheckpointFiles, load_first_valid
from packtrain.torch.training_state import CHECKPOINT_VERSION, PACKTRAIN_KEY, TrainingState
from testbed.power_cut import Disk, PowerCuts, write_names, write_nothing, write_randomly

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]
WRITEBACKS = {"nothing": lambda: write_nothing, "names": lambda: write_names, "random": lambda: write_randomly(1)}


@pytest.mark.parametrize("writeback", WRITEBACKS.values(), ids=WRITEBACKS)
@pytest.mark.parametrize("has_hard_links", [True, False])
def test_saves(tmp_path, monkeypatch, writeback, has_hard_links):
    def refuse(*args, **kwargs):
        raise PermissionError

    if not has_hard_links:
        monkeypatch.setattr(os, "link", refuse)
    with Disk(tmp_path / "disk") as disk:
        cuts = PowerCuts([disk], tmp_path, writeback())
        files = CheckpointFiles(disk.path / "new/checkpoint.pt", max_to_keep=2)
        with cuts.record():
            for step in (1, 2, 3):
                files.write(make_state(step), is_best=step < 3)
        step = 0
        for cut in cuts.boot():
            step = max(step, check(files, cut))
            assert step == check(files, cut), f"{cut}: a later step was there before"
    assert step == 3


def make_state(step: int) -> dict:
    position = {"version": CHECKPOINT_VERSION, "training_state": TrainingState(step=step).to_dict()}
    return {"model": {"weights": torch.full((5000,), float(step))}, PACKTRAIN_KEY: position}


def check(files: CheckpointFiles, cut: str) -> int:
    """Return the newest step; every file must be complete."""
    steps = [0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # loading warns of damaged files
        for path in [*files.candidates(), *([files.best] if files.best.exists() else [])]:
            weights = load_first_valid([path])[1]["model"]["weights"]
            assert weights.eq(weights[0]).all(), (cut, path)
            steps.append(int(weights[0]))
    return max(steps)
