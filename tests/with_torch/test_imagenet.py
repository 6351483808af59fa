"""Tests of the recipe imagenet-resnet50 on a small synthetic archive: model, weights, resuming, distributed training.

tests/e2e/test_recipe_imagenet.py starts it as a user does.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from packtrain.indexing import IndexRequest, build_index
from packtrain.plan import Location
from packtrain.transfer.archive.unpack import unpack
from testbed import data
from testbed.datasets import synthetic_imagenet
from tests.support import folder_loader
from tests.support.training_forkserver import RECIPES_DIR, read_output

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]

RECIPE = "imagenet-resnet50"
N_CLASSES, PER_CLASS = 3, 8  # 21 training images, in two batches, and 3 test images
SMALL = ("--epochs", "2", "--batch-size", "11", "--image-size", "32", "--test-every", "8", "--save-model")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("imagenet")
    shape = synthetic_imagenet.DatasetShape(N_CLASSES, PER_CLASS, 60, 45)
    cifar = data.make_small_cifar10(folder / "cifar", per_batch=20)
    synthetic_imagenet.write_archive(folder / "all.tar", cifar, shape, lambda done, total: None, lambda: None)
    (folder / "classes").mkdir()
    unpack(
        folder / "all.tar",
        folder / "classes",
        nested=True,
        max_bytes=None,
        check_cancelled=lambda: None,
        on_progress=lambda done, total: None,
    )
    return folder / "classes"


@pytest.fixture(scope="module")
def train(forkserver, images):
    """Train, check the exit code, and return the printed text."""

    def run(output: Path, *flags: object, data: Path = images, code: int = 0, **env: str) -> str:
        assert forkserver.run_training(RECIPE, output, arguments(data, *flags), **env) == code, read_output(output)
        return read_output(output)

    return run


def arguments(images: Path, *flags: object) -> list[str]:
    return ["--data", str(images), *SMALL, *map(str, flags)]


def load_weights(folder: Path):
    return torch.load(folder / "imagenet_resnet50.pt", weights_only=True)


@pytest.fixture(scope="module")
def uninterrupted(train, tmp_path_factory):
    """The output of a training without interruption."""
    output = tmp_path_factory.mktemp("uninterrupted")
    train(output)
    return output


def bn_names(prefix: str) -> list[str]:
    return [f"{prefix}.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")]


def bottleneck_names(prefix: str, has_downsample: bool) -> list[str]:
    names = [name for n in (1, 2, 3) for name in (f"{prefix}.conv{n}.weight", *bn_names(f"{prefix}.bn{n}"))]
    return names + ([f"{prefix}.downsample.0.weight", *bn_names(f"{prefix}.downsample.1")] if has_downsample else [])


# The names of torchvision's resnet50
NAMES = [
    "conv1.weight",
    *bn_names("bn1"),
    *(
        name
        for layer, blocks in ((1, 3), (2, 4), (3, 6), (4, 3))
        for number in range(blocks)
        for name in bottleneck_names(f"layer{layer}.{number}", has_downsample=number == 0)
    ),
    "fc.weight",
    "fc.bias",
]


def test_model_has_the_names_of_torchvision(uninterrupted):
    weights = load_weights(uninterrupted)
    assert len(NAMES) == 320
    assert list(weights) == NAMES, "the same names, in the same order"
    n_parameters = sum(weights[name].numel() for name in NAMES if name.endswith(("weight", "bias")))
    n_last_layer = weights["fc.weight"].numel() + weights["fc.bias"].numel()
    assert n_parameters - n_last_layer + 1000 * 2048 + 1000 == 25_557_032
    shapes = {"conv1.weight": (64, 3, 7, 7), "layer2.0.conv2.weight": (128, 128, 3, 3), "fc.weight": (N_CLASSES, 2048)}
    shapes["layer4.0.downsample.0.weight"] = (2048, 1024, 1, 1)
    assert {name: tuple(weights[name].shape) for name in shapes} == shapes


def test_outputs(uninterrupted):
    metrics = json.loads((uninterrupted / "metrics.json").read_text())
    assert (metrics["classes"], metrics["images"]) == (N_CLASSES, 21)
    assert [row["epoch"] for row in metrics["history"]] == [0, 1] and 0 <= metrics["accuracy"] <= 1
    last = json.loads((uninterrupted / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["epoch"], last["epochs"], last["step"], last["total_steps"]) == (1, 2, 4, 4)


def test_resume_is_exact(train, uninterrupted, tmp_path):
    (tmp_path / "stop").write_text("wall_time")
    train(tmp_path / "out", code=85, PACKTRAIN_STOP=str(tmp_path / "stop"))
    assert not (tmp_path / "out/imagenet_resnet50.pt").exists()
    assert "resuming in epoch 0 after 1 of 2 batches" in train(tmp_path / "out")
    expected, resumed = load_weights(uninterrupted), load_weights(tmp_path / "out")
    assert all(torch.equal(expected[name], resumed[name]) for name in NAMES)
    assert (uninterrupted / "metrics.json").read_text() == (tmp_path / "out/metrics.json").read_text()


def test_stop_before_testing(train, tmp_path):
    """Testing with ImageNet's 50,000 images takes longer than any grace period."""
    flags = ("--batch-size", "21", "--epochs", "1")
    (tmp_path / "stop").write_text("wall_time")
    printed = train(tmp_path / "out", *flags, code=85, PACKTRAIN_STOP=str(tmp_path / "stop"))
    assert "test accuracy" not in printed
    printed = train(tmp_path / "out", *flags)
    assert "resuming in epoch 0 after 1 of 1 batches" in printed and "test accuracy" in printed
    train(tmp_path / "uninterrupted", *flags)
    assert (tmp_path / "uninterrupted/metrics.json").read_text() == (tmp_path / "out/metrics.json").read_text()


def test_published_weights(train, uninterrupted, tmp_path):
    """The last layer keeps its initial weights, because the number of classes differs."""
    published = load_weights(uninterrupted)
    published["fc.weight"], published["fc.bias"] = torch.zeros(1000, 2048), torch.zeros(1000)
    torch.save(published, tmp_path / "resnet50.pth")
    train(tmp_path / "out", "--weights", tmp_path / "resnet50.pth", "--lr", 0, "--epochs", 1, "--batch-size", 21)
    weights = load_weights(tmp_path / "out")
    convolutions = [name for name in NAMES if "conv" in name]
    assert all(torch.equal(weights[name], published[name]) for name in convolutions), "the learning rate is 0"
    assert weights["fc.weight"].shape == (N_CLASSES, 2048) and weights["fc.weight"].any()


def test_two_processes_save_once_and_one_goes_on(forkserver, train, images, tmp_path):
    (tmp_path / "stop").write_text("term")
    both = forkserver.run_ranks(
        RECIPE, tmp_path / "out", arguments(images, "--batch-size", 6), [None, None], PACKTRAIN_STOP=f"{tmp_path}/stop"
    )
    assert both == [85, 85], read_output(tmp_path / "out") + read_output(tmp_path / "out", 1)
    assert [path.name for path in (tmp_path / "out").glob("[!.]*.pt")] == ["checkpoint.pt"]
    assert "resuming in epoch 0 after 1 of 2 batches" in train(tmp_path / "out", "--batch-size", 12)
    assert len(json.loads((tmp_path / "out/metrics.json").read_text())["history"]) == 2


def test_error_messages(train, tmp_path):
    assert "is not a folder; --data must name" in train(tmp_path / "a", data=tmp_path / "none", code=1)
    (tmp_path / "text.pth").write_text("no weights")
    printed = train(tmp_path / "b", "--weights", tmp_path / "text.pth", code=1)
    assert "text.pth has no weights of a ResNet-50" in printed and "Traceback" not in printed
    (tmp_path / "broken/n1").mkdir(parents=True)
    (tmp_path / "broken/n1/a.JPEG").write_bytes(b"\xff\xd8 no image")
    printed = train(tmp_path / "c", data=tmp_path / "broken", code=1)
    assert "a.JPEG cannot be read as an image" in printed and "Traceback" not in printed


# Streamed


STREAMED = (*SMALL, "--epochs", "1", "--workers", "2", "--save-every", "0")


@pytest.fixture
def streamed(forkserver, index, tmp_path):
    """The output of a training that was killed mid-epoch and resumed."""
    output, flags = tmp_path / "streamed", ["--stream", str(index), *STREAMED]
    kill_spec = {"steps": 2, "saved": 1}
    assert forkserver.run_training(RECIPE, output, flags, kill_spec) == -signal.SIGKILL, read_output(output)
    assert forkserver.run_training(RECIPE, output, flags) == 0, read_output(output)
    assert "resuming in epoch 0 after 1 of 2 batches" in read_output(output)
    assert "3 classes, 21 training images" in read_output(output)
    return output


@pytest.fixture
def index(images):
    """The index of the archive that the folder was unpacked from."""
    request = IndexRequest([[Location((images.parent / "all.tar").as_uri())]], str)
    return build_index(request, images.parent / "all.tar.packtrain-index").path


@pytest.mark.timeout(600)
def test_streaming_equals_reading_files(streamed, index, images, tmp_path, monkeypatch):
    """The weights are the same, bit by bit, as with extracted files in the same order."""
    monkeypatch.setenv("PACKTRAIN_OUTPUT", str(tmp_path))
    monkeypatch.setenv("CPUS_PER_TASK", "1")
    command = [
        sys.executable,
        folder_loader.__file__,
        images,
        RECIPES_DIR / RECIPE / "train.py",
        "--stream",
        index,
        *STREAMED,
    ]
    hidden = (images.parent / "all.tar").rename(images.parent / "hidden.tar")
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    finally:
        hidden.rename(images.parent / "all.tar")
    assert done.returncode == 0, done.stdout + done.stderr
    expected = load_weights(tmp_path)
    assert all(torch.equal(value, expected[name]) for name, value in load_weights(streamed).items())
    metrics = [json.loads((folder / "metrics.json").read_text()) for folder in (streamed, tmp_path)]
    assert metrics[0] == metrics[1] and metrics[0]["images"] == 21


def test_rest_of_an_epoch_for_more_processes(forkserver, index, tmp_path):
    """One process saw 18 of 21 images, and two resume: they share the last three, one of which comes twice."""
    output, flags = tmp_path / "out", ["--stream", str(index), *STREAMED, "--batch-size", "18"]
    (tmp_path / "stop").write_text("term")
    assert forkserver.run_training(RECIPE, output, flags, PACKTRAIN_STOP=f"{tmp_path}/stop") == 85, read_output(output)
    codes = forkserver.run_ranks(RECIPE, output, flags, [None, None])
    assert codes == [0, 0], read_output(output) + read_output(output, 1)
    assert len(json.loads((output / "metrics.json").read_text())["history"]) == 1
    saved = torch.load(output / "checkpoint.pt", weights_only=True)
    assert saved["packtrain"]["stateful"]["sampler"]["epoch"] == 1, "the loader is at the start of the next epoch"


def test_data_or_stream_is_required(train, forkserver, images, tmp_path):
    assert forkserver.run_training(RECIPE, tmp_path, list(SMALL)) == 2
    assert "one of the arguments --data --stream is required" in read_output(tmp_path)
    assert forkserver.run_training(RECIPE, tmp_path, ["--stream", *SMALL]) == 1
    assert "train.py: there is nothing to stream: pass the path of an index" in read_output(tmp_path)
