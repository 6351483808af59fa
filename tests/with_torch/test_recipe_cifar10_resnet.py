"""Tests of the recipe cifar10-resnet on real images."""

from __future__ import annotations

import json
import os
import pickle
import tarfile
from pathlib import Path

import pytest

from testbed import data
from tests.support.training_forkserver import read_output

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]

TINY = ("--epochs", "2", "--batch-size", "32", "--limit-train", "90", "--limit-test", "30")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cifar")
    with tarfile.open(data.make_small_cifar10(folder, per_batch=20)) as tar:
        tar.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def train(forkserver, images):
    """Train, and return the exit code and the printed text."""

    def run(output: Path, *flags: str, data: Path = images) -> tuple[int, str]:
        code = forkserver.run_training("cifar10-resnet", output, ["--data", str(data), *TINY, *flags])
        return code, read_output(output)

    return run


@pytest.fixture(scope="module")
def trained(train, tmp_path_factory):
    """The output of a training without interruption."""
    output = tmp_path_factory.mktemp("trained")
    code, printed = train(output, "--save-model", "--seed=1")
    assert code == 0, printed
    return output


def test_outputs(trained):
    import torch

    names = {path.name for path in trained.glob("[!.]*")} - {"printed-0", "notices.jsonl", "metrics.jsonl"}
    assert names == {"checkpoint.pt", "checkpoint.best.pt", "cifar10_resnet.pt", "metrics.json"}
    metrics = json.loads((trained / "metrics.json").read_text())
    assert (metrics["parameters"], metrics["settings"]["limit_train"], len(metrics["history"])) == (272_474, 90, 2)
    weights = torch.load(trained / "cifar10_resnet.pt", weights_only=True)
    saved = torch.load(trained / "checkpoint.pt", weights_only=True)["model"]
    assert all(torch.equal(saved[name], value) for name, value in weights.items())
    assert sum(v.numel() for k, v in weights.items() if k.endswith(("weight", "bias"))) == 272_474
    last = json.loads((trained / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["epoch"], last["epochs"], last["step"], last["total_steps"]) == (1, 2, 6, 6)
    assert last["accuracy"] == metrics["accuracy"]


def test_seed_decides_the_result(train, trained, tmp_path):
    assert [train(tmp_path / seed, f"--seed={seed}")[0] for seed in "12"] == [0, 0]
    runs = (trained, tmp_path / "1", tmp_path / "2")
    losses = [json.loads((output / "metrics.json").read_text())["test_loss"] for output in runs]
    assert losses[0] == losses[1] != losses[2]


class Hostile:
    """A pickle that writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickle_runs_no_code(train, tmp_path):
    batches = tmp_path / "cifar-10-batches-py"
    batches.mkdir()
    (batches / "data_batch_1").write_bytes(pickle.dumps({b"data": Hostile(tmp_path / "owned")}))
    code, printed = train(tmp_path / "out", data=tmp_path)
    assert code == 1
    assert "it asks for posix.mkdir, which no CIFAR-10 batch needs" in printed
    assert not (tmp_path / "owned").exists()


def test_missing_and_damaged_data(train, images, tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    first = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    assert "data_batch_1 does not exist; --data must name" in train(tmp_path / "out", data=tmp_path)[1]
    first.write_bytes((images / "cifar-10-batches-py" / "data_batch_1").read_bytes()[:5000])
    _, printed = train(tmp_path / "out", data=tmp_path)
    assert "data_batch_1 is not a batch of CIFAR-10" in printed and "Traceback" not in printed


def test_checkpoint_of_other_settings(train, trained):
    code, printed = train(trained, "--batch-size", "16")
    assert code == 1
    assert "train.py: " in printed and "made with global_batch_size 32, now 16" in printed
    assert "Traceback" not in printed
