"""Tests of how the recipes check the number of GPUs."""

from __future__ import annotations

import pytest

from tests.support.training_forkserver import read_output

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]


@pytest.mark.parametrize(
    ("recipe", "data"),
    [
        ("mnist-cnn", "--data"),
        ("cifar10-resnet", "--data"),
        ("cifar10-dla", "--dataset"),
        ("imagenet-resnet50", "--data"),
    ],
)
def test_two_processes_and_one_gpu(forkserver, tmp_path, recipe, data):
    """NCCL would fail with a long and unclear message."""
    env = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    assert forkserver.run_training(recipe, tmp_path, [data, "."], {"gpus": 1}, **env) == 1
    assert read_output(tmp_path).startswith("train.py: more processes than GPUs")
