"""The training program of mnist-cnn, run as a user runs it, on a few of the real digits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from packtrain import recipes
from testbed import data

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]

TRAIN = Path(recipes.__file__).parent / "mnist-cnn" / "train.py"
TINY = ("--epochs", "2", "--limit-train", "640", "--limit-test", "200")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mnist")
    return data.small_mnist(folder, train=640, test=200)


def train(digits: Path, output: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    output.mkdir(exist_ok=True)
    names = {"PACKTRAIN_OUTPUT": str(output), "PACKTRAIN_METRICS": str(output / "reports"), "CPUS_PER_TASK": "1"}
    return subprocess.run(
        [sys.executable, TRAIN, "--data", digits, *TINY, *flags],
        env={**os.environ, **names}, capture_output=True, text=True,
    )  # fmt: skip


def test_learns_and_writes_the_lessons_model(digits, tmp_path):
    import torch

    done = train(digits, tmp_path, "--save-model")
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["parameters"] == 1_199_882 and metrics["accuracy"] > 0.3, "guessing gets 10% right"
    assert metrics["history"][1]["loss"] < metrics["history"][0]["loss"]
    weights = torch.load(tmp_path / "mnist_cnn.pt", weights_only=True)
    shapes = {name: tuple(value.shape) for name, value in weights.items() if name.endswith("weight")}
    convolutions = {"conv1.weight": (32, 1, 3, 3), "conv2.weight": (64, 32, 3, 3)}
    assert shapes == {**convolutions, "fc1.weight": (128, 9216), "fc2.weight": (10, 128)}
    last = json.loads((tmp_path / "reports").read_text().splitlines()[-1])
    assert (last["epoch"], last["step"], last["total_steps"]) == (2, 20, 20)


def test_missing_and_broken_data_are_told_in_a_sentence(tmp_path):
    assert "has no train-images-idx3-ubyte[.gz]; --data must name" in train(tmp_path, tmp_path / "out").stderr
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"<html>not found</html>")
    done = train(tmp_path, tmp_path / "out")
    assert "train-images-idx3-ubyte.gz is not one of MNIST's idx files" in done.stderr
    assert done.returncode == 1 and "Traceback" not in done.stderr
