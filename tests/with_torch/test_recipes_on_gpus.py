"""What the recipes say of GPUs before they use one."""

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
def test_two_processes_and_one_gpu(nursery, tmp_path, recipe, data):
    """NCCL would refuse it, with a page of its own words."""
    assert nursery.run_training(recipe, tmp_path, [data, "."], {"gpus": 1}, WORLD_SIZE="2", LOCAL_WORLD_SIZE="2") == 1
    assert read_output(tmp_path).startswith("train.py: more processes than GPUs")
