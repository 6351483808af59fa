"""Tests of the recipe cifar10-dla: its model, its files, and resuming.

tests/e2e/test_published_workflows.py starts it with DeepSquare's workflows.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import torch

from testbed import data
from tests.support.training_forkserver import read_output

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]

N_PARAMETERS = 15_142_970


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cifar")
    with tarfile.open(data.make_small_cifar10(folder, per_batch=2)) as tar:
        tar.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def train(forkserver, images):
    """Train two epochs of two batches of two images. Return the exit code and the printed text."""

    def run(output: Path, *flags: object, dataset: Path = images, **env: str) -> tuple[int, str]:
        settings = [f"--dataset={dataset}", f"--checkpoint_out={output}/ckpt.pth", "--epochs", 2, "--batch-size", 2]
        limits = ["--limit-train", 4, "--limit-test", 2]
        arguments = [str(flag) for flag in (*settings, *limits, *flags)]
        code = forkserver.run_training("cifar10-dla", output, arguments, **env)
        return code, read_output(output)

    return run


def load_checkpoint(folder: Path):
    return torch.load(folder / "ckpt.pth", weights_only=True)


@pytest.fixture(scope="module")
def uninterrupted(train, tmp_path_factory):
    """The output of a training without interruption."""
    output = tmp_path_factory.mktemp("uninterrupted")
    code, printed = train(output)
    assert code == 0, printed
    return output


def conv_bn_names(conv: str, bn: str) -> list[str]:
    bn_names = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return [f"{conv}.weight", *(f"{bn}.{name}" for name in bn_names)]


def block_names(prefix: str, has_shortcut: bool) -> list[str]:
    names = conv_bn_names(f"{prefix}.conv1", f"{prefix}.bn1") + conv_bn_names(f"{prefix}.conv2", f"{prefix}.bn2")
    return names + (conv_bn_names(f"{prefix}.shortcut.0", f"{prefix}.shortcut.1") if has_shortcut else [])


def tree_names(prefix: str, level: int, has_shortcut: bool = True) -> list[str]:
    """Return the names in DeepSquare's checkpoints: the root first; only the first block has a shortcut."""

    def child_names(child: str, has_shortcut: bool) -> list[str]:
        return block_names(child, has_shortcut) if level == 1 else tree_names(child, level - 1, has_shortcut)

    root = conv_bn_names(f"{prefix}.root.conv", f"{prefix}.root.bn")
    return root + child_names(f"{prefix}.left_tree", has_shortcut) + child_names(f"{prefix}.right_tree", False)


NAMES = [
    *(name for stem in ("base", "layer1", "layer2") for name in conv_bn_names(f"{stem}.0", f"{stem}.1")),
    *(name for number, level in ((3, 1), (4, 2), (5, 2), (6, 1)) for name in tree_names(f"layer{number}", level)),
    "linear.weight",
    "linear.bias",
]


def test_model_has_the_names_of_the_original(uninterrupted):
    net = load_checkpoint(uninterrupted)["net"]
    assert len(NAMES) == 236 and NAMES[0] == "base.0.weight"
    assert list(net) == NAMES, "the same names, in the same order"
    parameters = [name for name in NAMES if name.endswith(("weight", "bias"))]
    assert sum(net[name].numel() for name in parameters) == N_PARAMETERS
    shapes = {
        "base.0.weight": (16, 3, 3, 3),
        "layer3.root.conv.weight": (64, 128, 1, 1),
        "layer4.left_tree.left_tree.shortcut.0.weight": (128, 64, 1, 1),
        "layer5.right_tree.root.conv.weight": (256, 512, 1, 1),
        "layer6.left_tree.conv1.weight": (512, 256, 3, 3),
        "linear.weight": (10, 512),
    }
    assert {name: tuple(net[name].shape) for name in shapes} == shapes


def test_outputs(uninterrupted):
    saved = load_checkpoint(uninterrupted)
    metrics = json.loads((uninterrupted / "metrics.json").read_text())
    assert saved["epoch"] == 1, "epochs 0 and 1 are complete"
    assert saved["acc"] == pytest.approx(100 * metrics["accuracy"])
    assert [row["epoch"] for row in metrics["history"]] == [0, 1]
    last = json.loads((uninterrupted / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["epoch"], last["epochs"], last["step"], last["total_steps"]) == (1, 2, 4, 4)
    names = {path.name for path in uninterrupted.glob("[!.]*")} - {"printed-0", "notices.jsonl", "metrics.jsonl"}
    assert names == {"ckpt.pth", "ckpt.best.pth", "metrics.json"}


def test_resume_is_exact(train, uninterrupted, tmp_path):
    (tmp_path / "stop").write_text("term")
    code, printed = train(tmp_path / "a", PACKTRAIN_STOP=str(tmp_path / "stop"))
    assert code == 85, printed
    assert load_checkpoint(tmp_path / "a")["epoch"] == -1, "no epoch is complete"
    code, printed = train(tmp_path / "b", f"--checkpoint_in={tmp_path}/a/ckpt.pth")
    assert code == 0, printed
    assert "resuming in epoch 0 after 1 of 2 batches" in printed
    expected, resumed = load_checkpoint(uninterrupted)["net"], load_checkpoint(tmp_path / "b")["net"]
    assert all(torch.equal(expected[name], resumed[name]) for name in NAMES)
    assert (uninterrupted / "metrics.json").read_text() == (tmp_path / "b/metrics.json").read_text()


def test_checkpoint_of_the_original_program(train, uninterrupted, tmp_path):
    """On GPUs it writes the prefix `module.` before each name, and only these three keys."""
    net = {f"module.{name}": value for name, value in load_checkpoint(uninterrupted)["net"].items()}
    torch.save({"net": net, "acc": 51.5, "epoch": 3}, tmp_path / "original.pth")
    code, printed = train(tmp_path / "out", f"--checkpoint_in={tmp_path}/original.pth", "--epochs", 4)
    assert code == 0, printed
    assert "the checkpoint has completed all 4 epochs: nothing to train" in printed
    saved = load_checkpoint(tmp_path / "out")
    assert all(torch.equal(saved["net"][name], net[f"module.{name}"]) for name in NAMES) and saved["epoch"] == 3
    metrics = json.loads((tmp_path / "out/metrics.json").read_text())
    assert metrics["accuracy"] == json.loads((uninterrupted / "metrics.json").read_text())["accuracy"]


def test_error_messages(train, uninterrupted, tmp_path):
    code, printed = train(tmp_path / "a", f"--checkpoint_in={uninterrupted}/ckpt.pth", "--seed", 2)
    assert code == 1 and "Traceback" not in printed
    assert "the checkpoint was made with seed 1, now 2" in printed
    _, printed = train(tmp_path / "b", dataset=tmp_path)
    assert "data_batch_1 does not exist; --dataset must name" in printed
