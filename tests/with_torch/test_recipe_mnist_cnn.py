"""The training program of mnist-cnn on a few of the real digits. By torchrun: tests/e2e/test_exact_resume.py."""

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
def train(nursery, digits):
    """The exit code, and what it said."""

    def run(output: Path, *flags: str, data: Path = digits) -> tuple[int, str]:
        return nursery.run_training("mnist-cnn", output, ["--data", str(data), *TINY, *flags]), read_output(output)

    return run


def test_learns_and_writes_the_lessons_model(train, tmp_path):
    import torch

    code, told = train(tmp_path, "--save-model")
    assert code == 0, told
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["parameters"] == 1_199_882 and metrics["accuracy"] > 0.3, "guessing gets 10% right"
    assert metrics["history"][1]["loss"] < metrics["history"][0]["loss"]
    weights = torch.load(tmp_path / "mnist_cnn.pt", weights_only=True)
    shapes = {name: tuple(value.shape) for name, value in weights.items() if name.endswith("weight")}
    convolutions = {"conv1.weight": (32, 1, 3, 3), "conv2.weight": (64, 32, 3, 3)}
    assert shapes == {**convolutions, "fc1.weight": (128, 9216), "fc2.weight": (10, 128)}
    last = json.loads((tmp_path / "reports").read_text().splitlines()[-1])
    assert (last["epoch"], last["step"], last["total_steps"]) == (2, 20, 20)


def test_missing_and_broken_data_are_told_in_a_sentence(train, tmp_path):
    told = train(tmp_path / "out", data=tmp_path)[1]
    assert "has no train-images-idx3-ubyte[.gz]; --data must name" in told
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"<html>not found</html>")
    code, told = train(tmp_path / "out", data=tmp_path)
    assert "train-images-idx3-ubyte.gz is not one of MNIST's idx files" in told
    assert code == 1 and "Traceback" not in told
