"""Tests of the recipe mnist-cnn on real digits. tests/e2e/test_exact_resume.py starts it with torchrun."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed import data
from tests.support.training_forkserver import read_output

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]

TINY = ("--epochs", "2", "--limit-train", "640", "--limit-test", "200")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mnist")
    return data.make_small_mnist(folder, n_train=640, n_test=200)


@pytest.fixture(scope="module")
def train(forkserver, digits):
    """Train, and return the exit code and the printed text."""

    def run(output: Path, *flags: str, data: Path = digits) -> tuple[int, str]:
        code = forkserver.run_training("mnist-cnn", output, ["--data", str(data), *TINY, *flags])
        return code, read_output(output)

    return run


def test_training_and_outputs(train, tmp_path):
    import torch

    code, printed = train(tmp_path, "--save-model")
    assert code == 0, printed
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["parameters"] == 1_199_882 and metrics["accuracy"] > 0.3, "guessing reaches 10%"
    assert metrics["history"][1]["loss"] < metrics["history"][0]["loss"]
    weights = torch.load(tmp_path / "mnist_cnn.pt", weights_only=True)
    shapes = {name: tuple(value.shape) for name, value in weights.items() if name.endswith("weight")}
    convolutions = {"conv1.weight": (32, 1, 3, 3), "conv2.weight": (64, 32, 3, 3)}
    assert shapes == {**convolutions, "fc1.weight": (128, 9216), "fc2.weight": (10, 128)}
    last = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["epoch"], last["step"], last["total_steps"]) == (1, 20, 20)


def test_missing_and_damaged_data(train, tmp_path):
    printed = train(tmp_path / "out", data=tmp_path)[1]
    assert "has no train-images-idx3-ubyte[.gz]; --data must name" in printed
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"<html>not found</html>")
    code, printed = train(tmp_path / "out", data=tmp_path)
    assert "train-images-idx3-ubyte.gz is not one of MNIST's idx files" in printed
    assert code == 1 and "Traceback" not in printed
