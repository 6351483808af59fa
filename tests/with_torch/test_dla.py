"""The training program of cifar10-dla: its model, its files, going on where it was. As DeepSquare's workflows start it:
tests/e2e/test_published_workflows.py."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import torch

from testbed import data
from tests.support.training_forkserver import read_output

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]

PARAMETERS = 15_142_970


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cifar")
    with tarfile.open(data.make_small_cifar10(folder, per_batch=2)) as tar:
        tar.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def train(nursery, images):
    """Two epochs of two batches of two images; the exit code, and what it said."""

    def run(output: Path, *flags: object, dataset: Path = images, **more: str) -> tuple[int, str]:
        given = [f"--dataset={dataset}", f"--checkpoint_out={output}/ckpt.pth", "--epochs", 2, "--batch-size", 2]
        few = ["--limit-train", 4, "--limit-test", 2]
        code = nursery.run_training("cifar10-dla", output, [str(flag) for flag in (*given, *few, *flags)], **more)
        return code, read_output(output)

    return run


def checkpoint(folder: Path):
    return torch.load(folder / "ckpt.pth", weights_only=True)


@pytest.fixture(scope="module")
def straight(train, tmp_path_factory):
    """A training that nobody disturbed."""
    output = tmp_path_factory.mktemp("straight")
    code, told = train(output)
    assert code == 0, told
    return output


def conv_bn(conv: str, bn: str) -> list[str]:
    numbers = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return [f"{conv}.weight", *(f"{bn}.{name}" for name in numbers)]


def block(at: str, shortcut: bool) -> list[str]:
    names = conv_bn(f"{at}.conv1", f"{at}.bn1") + conv_bn(f"{at}.conv2", f"{at}.bn2")
    return names + (conv_bn(f"{at}.shortcut.0", f"{at}.shortcut.1") if shortcut else [])


def tree(at: str, level: int, shortcut: bool = True) -> list[str]:
    """Of DeepSquare's checkpoints: the root's names come first; only the first block of a tree has a shortcut."""
    part = block if level == 1 else lambda where, short: tree(where, level - 1, short)
    root = conv_bn(f"{at}.root.conv", f"{at}.root.bn")
    return root + part(f"{at}.left_tree", shortcut) + part(f"{at}.right_tree", False)


NAMES = [
    *(name for stem in ("base", "layer1", "layer2") for name in conv_bn(f"{stem}.0", f"{stem}.1")),
    *(name for number, level in ((3, 1), (4, 2), (5, 2), (6, 1)) for name in tree(f"layer{number}", level)),
    "linear.weight",
    "linear.bias",
]


def test_the_model_has_the_entries_of_the_original(straight):
    net = checkpoint(straight)["net"]
    assert len(NAMES) == 236 and NAMES[0] == "base.0.weight"
    assert list(net) == NAMES, "the same names, in the same order"
    learned = [name for name in NAMES if name.endswith(("weight", "bias"))]
    assert sum(net[name].numel() for name in learned) == PARAMETERS
    shapes = {
        "base.0.weight": (16, 3, 3, 3),
        "layer3.root.conv.weight": (64, 128, 1, 1),
        "layer4.left_tree.left_tree.shortcut.0.weight": (128, 64, 1, 1),
        "layer5.right_tree.root.conv.weight": (256, 512, 1, 1),
        "layer6.left_tree.conv1.weight": (512, 256, 3, 3),
        "linear.weight": (10, 512),
    }
    assert {name: tuple(net[name].shape) for name in shapes} == shapes


def test_it_writes_deepsquares_checkpoint_and_its_figures(straight):
    found = checkpoint(straight)
    metrics = json.loads((straight / "metrics.json").read_text())
    assert found["epoch"] == 1, "of the epochs 0 and 1"
    assert found["acc"] == pytest.approx(100 * metrics["accuracy"])
    assert [row["epoch"] for row in metrics["history"]] == [1, 2]
    last = json.loads((straight / "reports").read_text().splitlines()[-1])
    assert (last["epoch"], last["epochs"], last["step"], last["total_steps"]) == (2, 2, 4, 4)
    made = {path.name for path in straight.glob("[!.]*")} - {"said-0", "announced"}
    assert made == {"ckpt.pth", "ckpt.best.pth", "metrics.json", "reports"}


def test_it_leaves_when_asked_and_goes_on_exactly(train, straight, tmp_path):
    (tmp_path / "please-stop").write_text("term")
    code, told = train(tmp_path / "a", PACKTRAIN_STOP=str(tmp_path / "please-stop"))
    assert code == 85, told
    assert checkpoint(tmp_path / "a")["epoch"] == -1, "no epoch is complete"
    code, told = train(tmp_path / "b", f"--checkpoint_in={tmp_path}/a/ckpt.pth")
    assert code == 0, told
    assert "going on in epoch 1 after 1 of 2 batches" in told
    whole, resumed = checkpoint(straight)["net"], checkpoint(tmp_path / "b")["net"]
    assert all(torch.equal(whole[name], resumed[name]) for name in NAMES)
    assert (straight / "metrics.json").read_text() == (tmp_path / "b/metrics.json").read_text()


def test_a_checkpoint_of_the_original_program(train, straight, tmp_path):
    """As it writes them on GPUs: `module.` in front of each name, nothing but these three keys."""
    net = {f"module.{name}": value for name, value in checkpoint(straight)["net"].items()}
    torch.save({"net": net, "acc": 51.5, "epoch": 3}, tmp_path / "original.pth")
    code, told = train(tmp_path / "out", f"--checkpoint_in={tmp_path}/original.pth", "--epochs", 4)
    assert code == 0, told
    assert "the checkpoint has all of the 4 epochs: nothing is left to train" in told
    found = checkpoint(tmp_path / "out")
    assert all(torch.equal(found["net"][name], net[f"module.{name}"]) for name in NAMES) and found["epoch"] == 3
    metrics = json.loads((tmp_path / "out/metrics.json").read_text())
    assert metrics["accuracy"] == json.loads((straight / "metrics.json").read_text())["accuracy"]


def test_what_does_not_fit_is_told_in_a_sentence(train, straight, tmp_path):
    code, told = train(tmp_path / "a", f"--checkpoint_in={straight}/ckpt.pth", "--seed", 2)
    assert code == 1 and "Traceback" not in told
    assert "the checkpoint was made with seed 1, now 2" in told
    _, told = train(tmp_path / "b", dataset=tmp_path)
    assert "data_batch_1 does not exist; --dataset must name" in told
