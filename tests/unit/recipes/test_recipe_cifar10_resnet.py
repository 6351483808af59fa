"""The training program of cifar10-resnet, run as a user runs it, on real images."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from packtrain import recipes
from testbed import data

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]

TRAIN = Path(recipes.__file__).parent / "cifar10-resnet" / "train.py"
TINY = ("--epochs", "2", "--batch-size", "32", "--limit-train", "90", "--limit-test", "30")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cifar")
    with tarfile.open(data.small_cifar10(folder, per_batch=20)) as tar:
        tar.extractall(folder)
    return folder


def train(images: Path, output: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    output.mkdir(exist_ok=True)
    names = {"PACKTRAIN_OUTPUT": str(output), "PACKTRAIN_METRICS": str(output / "reports"), "CPUS_PER_TASK": "1"}
    return subprocess.run(
        [sys.executable, TRAIN, "--data", images, *TINY, *flags],
        env={**os.environ, **names}, capture_output=True, text=True,
    )  # fmt: skip


def test_trains_reports_and_writes_its_outputs(images, tmp_path):
    import torch

    done = train(images, tmp_path, "--save-model")
    assert done.returncode == 0, done.stderr
    made = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert made == {"checkpoint.pt", "checkpoint.best.pt", "cifar10_resnet.pt", "metrics.json", "reports"}
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert (metrics["parameters"], metrics["settings"]["limit_train"], len(metrics["history"])) == (272_474, 90, 2)
    weights = torch.load(tmp_path / "cifar10_resnet.pt", weights_only=True)
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["model"]
    assert all(torch.equal(saved[name], value) for name, value in weights.items())
    assert sum(v.numel() for k, v in weights.items() if k.endswith(("weight", "bias"))) == 272_474
    last = json.loads((tmp_path / "reports").read_text().splitlines()[-1])
    assert (last["epoch"], last["epochs"], last["step"], last["total_steps"]) == (2, 2, 6, 6)
    assert last["accuracy"] == metrics["accuracy"]


def test_the_seed_decides_the_result(images, tmp_path):
    runs = [("a", "--seed=1"), ("b", "--seed=1"), ("c", "--seed=2")]
    for name, seed in runs:
        assert train(images, tmp_path / name, seed).returncode == 0
    losses = [json.loads((tmp_path / name / "metrics.json").read_text())["test_loss"] for name, _ in runs]
    assert losses[0] == losses[1] != losses[2]


class Hostile:
    """A pickle that writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_runs_nothing_that_a_pickle_brings(tmp_path):
    batches = tmp_path / "cifar-10-batches-py"
    batches.mkdir()
    (batches / "data_batch_1").write_bytes(pickle.dumps({b"data": Hostile(tmp_path / "owned")}))
    done = train(tmp_path, tmp_path / "out")
    assert done.returncode == 1
    assert "it asks for posix.mkdir, which no CIFAR-10 batch needs" in done.stderr
    assert not (tmp_path / "owned").exists()


def test_missing_and_broken_data_are_told_in_a_sentence(images, tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    first = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    assert "data_batch_1 does not exist; --data must name" in train(tmp_path, tmp_path / "out").stderr
    first.write_bytes((images / "cifar-10-batches-py" / "data_batch_1").read_bytes()[:5000])
    done = train(tmp_path, tmp_path / "out")
    assert "data_batch_1 is not a batch of CIFAR-10" in done.stderr and "Traceback" not in done.stderr


def test_other_settings_than_the_checkpoints_are_told_in_a_sentence(images, tmp_path):
    assert train(images, tmp_path).returncode == 0
    done = train(images, tmp_path, "--batch-size", "16")
    assert done.returncode == 1
    assert "train.py: " in done.stderr and "made with batch_size 32, now 16" in done.stderr
    assert "Traceback" not in done.stderr
