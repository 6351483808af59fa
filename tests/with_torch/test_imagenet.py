"""The training program of imagenet-resnet50 on a small archive of ImageNet's shape: model, weights, going on, DDP. As a
person starts with it: tests/e2e/test_recipe_imagenet.py."""

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
CLASSES, PER_CLASS = 3, 8  # 21 images to learn from, in two batches, and 3 to test with
SMALL = ("--epochs", "2", "--batch-size", "11", "--image-size", "32", "--test-every", "8", "--save-model")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("imagenet")
    shape = synthetic_imagenet.DatasetShape(CLASSES, PER_CLASS, 60, 45)
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
def train(nursery, images):
    """What it said."""

    def run(output: Path, *flags: object, data: Path = images, code: int = 0, **more: str) -> str:
        assert nursery.run_training(RECIPE, output, given(data, *flags), **more) == code, read_output(output)
        return read_output(output)

    return run


def given(images: Path, *flags: object) -> list[str]:
    return ["--data", str(images), *SMALL, *map(str, flags)]


def weights(folder: Path):
    return torch.load(folder / "imagenet_resnet50.pt", weights_only=True)


@pytest.fixture(scope="module")
def straight(train, tmp_path_factory):
    """A training that nobody disturbed."""
    output = tmp_path_factory.mktemp("straight")
    train(output)
    return output


def bn(at: str) -> list[str]:
    return [f"{at}.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")]


def bottleneck(at: str, downsample: bool) -> list[str]:
    names = [name for n in (1, 2, 3) for name in (f"{at}.conv{n}.weight", *bn(f"{at}.bn{n}"))]
    return names + ([f"{at}.downsample.0.weight", *bn(f"{at}.downsample.1")] if downsample else [])


# torchvision's resnet50
NAMES = [
    "conv1.weight",
    *bn("bn1"),
    *(
        name
        for layer, blocks in ((1, 3), (2, 4), (3, 6), (4, 3))
        for number in range(blocks)
        for name in bottleneck(f"layer{layer}.{number}", downsample=number == 0)
    ),
    "fc.weight",
    "fc.bias",
]


def test_the_model_has_torchvisions_entries(straight):
    found = weights(straight)
    assert len(NAMES) == 320
    assert list(found) == NAMES, "the same names, in the same order"
    learned = sum(found[name].numel() for name in NAMES if name.endswith(("weight", "bias")))
    last = found["fc.weight"].numel() + found["fc.bias"].numel()
    assert learned - last + 1000 * 2048 + 1000 == 25_557_032
    shapes = {"conv1.weight": (64, 3, 7, 7), "layer2.0.conv2.weight": (128, 128, 3, 3), "fc.weight": (CLASSES, 2048)}
    shapes["layer4.0.downsample.0.weight"] = (2048, 1024, 1, 1)
    assert {name: tuple(found[name].shape) for name in shapes} == shapes


def test_it_reports_and_writes_its_figures(straight):
    metrics = json.loads((straight / "metrics.json").read_text())
    assert (metrics["classes"], metrics["images"]) == (CLASSES, 21)
    assert [row["epoch"] for row in metrics["history"]] == [1, 2] and 0 <= metrics["accuracy"] <= 1
    last = json.loads((straight / "reports").read_text().splitlines()[-1])
    assert (last["epoch"], last["epochs"], last["step"], last["total_steps"]) == (2, 2, 4, 4)


def test_it_leaves_when_asked_and_goes_on_exactly(train, straight, tmp_path):
    (tmp_path / "stop").write_text("wall_time")
    train(tmp_path / "out", code=85, PACKTRAIN_STOP=str(tmp_path / "stop"))
    assert not (tmp_path / "out/imagenet_resnet50.pt").exists()
    assert "going on in epoch 1 after 1 of 2 batches" in train(tmp_path / "out")
    whole, resumed = weights(straight), weights(tmp_path / "out")
    assert all(torch.equal(whole[name], resumed[name]) for name in NAMES)
    assert (straight / "metrics.json").read_text() == (tmp_path / "out/metrics.json").read_text()


def test_asked_at_the_end_of_an_epoch_it_leaves_before_it_tests(train, tmp_path):
    """ImageNet's 50,000 images take longer than any grace period."""
    flags = ("--batch-size", "21", "--epochs", "1")
    (tmp_path / "stop").write_text("wall_time")
    told = train(tmp_path / "out", *flags, code=85, PACKTRAIN_STOP=str(tmp_path / "stop"))
    assert "test accuracy" not in told
    told = train(tmp_path / "out", *flags)
    assert "going on in epoch 1 after 1 of 1 batches" in told and "test accuracy" in told
    train(tmp_path / "straight", *flags)
    assert (tmp_path / "straight/metrics.json").read_text() == (tmp_path / "out/metrics.json").read_text()


def test_published_weights_are_the_beginning_and_the_last_layer_is_new(train, straight, tmp_path):
    known = weights(straight)
    known["fc.weight"], known["fc.bias"] = torch.zeros(1000, 2048), torch.zeros(1000)
    torch.save(known, tmp_path / "resnet50.pth")
    train(tmp_path / "out", "--weights", tmp_path / "resnet50.pth", "--lr", 0, "--epochs", 1, "--batch-size", 21)
    found = weights(tmp_path / "out")
    convolutions = [name for name in NAMES if "conv" in name]
    assert all(torch.equal(found[name], known[name]) for name in convolutions), "a learning rate of 0 changes nothing"
    assert found["fc.weight"].shape == (CLASSES, 2048) and found["fc.weight"].any()


def test_two_processes_save_once_and_one_goes_on(nursery, train, images, tmp_path):
    (tmp_path / "stop").write_text("term")
    both = nursery.run_ranks(RECIPE, tmp_path / "out", given(images), [None, None], PACKTRAIN_STOP=f"{tmp_path}/stop")
    assert both == [85, 85], read_output(tmp_path / "out") + read_output(tmp_path / "out", 1)
    assert [path.name for path in (tmp_path / "out").glob("[!.]*.pt")] == ["checkpoint.pt"]
    assert "going on in epoch 1 after 1 of 2 batches" in train(tmp_path / "out")
    assert len(json.loads((tmp_path / "out/metrics.json").read_text())["history"]) == 2


def test_what_does_not_fit_is_told_in_a_sentence(train, tmp_path):
    assert "is no folder; --data must name" in train(tmp_path / "a", data=tmp_path / "none", code=1)
    (tmp_path / "text.pth").write_text("no weights")
    told = train(tmp_path / "b", "--weights", tmp_path / "text.pth", code=1)
    assert "text.pth has no weights of a ResNet-50" in told and "Traceback" not in told
    (tmp_path / "broken/n1").mkdir(parents=True)
    (tmp_path / "broken/n1/a.JPEG").write_bytes(b"\xff\xd8 no image")
    told = train(tmp_path / "c", data=tmp_path / "broken", code=1)
    assert "a.JPEG cannot be read as an image" in told and "Traceback" not in told


# Streamed


STREAMED = (*SMALL, "--epochs", "1", "--workers", "2", "--save-every", "0")


@pytest.fixture
def streamed(nursery, index, tmp_path):
    """A training that was killed in the middle of its epoch, and went on."""
    output, given = tmp_path / "streamed", ["--stream", str(index), *STREAMED]
    assert nursery.run_training(RECIPE, output, given, {"steps": 2, "saved": 1}) == -signal.SIGKILL, read_output(output)
    assert nursery.run_training(RECIPE, output, given) == 0, read_output(output)
    assert "going on in epoch 1 after 1 of 2 batches" in read_output(output)
    assert "3 classes, 21 images to learn from" in read_output(output)
    return output


@pytest.fixture
def index(images):
    """Of the archive that the folder was unpacked from."""
    archive = images.parent / "all.tar"
    return build_index(
        IndexRequest([[Location(archive.as_uri())]], str), images.parent / "all.tar.packtrain-index"
    ).path


@pytest.mark.timeout(600)
def test_streamed_it_is_what_the_same_order_of_files_gives(streamed, index, images, tmp_path, monkeypatch):
    """Bit by bit; and by the program that a person has, which the files are only slipped under."""
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
    expected = weights(tmp_path)
    assert all(torch.equal(value, expected[name]) for name, value in weights(streamed).items())
    told = [json.loads((folder / "metrics.json").read_text()) for folder in (streamed, tmp_path)]
    assert told[0] == told[1] and told[0]["images"] == 21


def test_what_is_left_of_an_epoch_is_too_little_for_more_processes(nursery, index, tmp_path):
    """One process saw 20 of 21 images; two cannot share the last. The epoch is over, and none is added."""
    output, given = tmp_path / "out", ["--stream", str(index), *STREAMED, "--batch-size", "20"]
    (tmp_path / "stop").write_text("term")
    assert nursery.run_training(RECIPE, output, given, PACKTRAIN_STOP=f"{tmp_path}/stop") == 85, read_output(output)
    assert nursery.run_ranks(RECIPE, output, given, [None, None]) == [0, 0], read_output(output) + read_output(
        output, 1
    )
    assert len(json.loads((output / "metrics.json").read_text())["history"]) == 1
    saved = torch.load(output / "checkpoint.pt", weights_only=True)
    assert epochs_in(saved) == [2], "the position is at the beginning of the next one"


def epochs_in(saved):
    """Of the stream's position, wherever it is in the checkpoint."""
    if isinstance(saved, dict) and "phases" in saved:
        return [saved["epoch"]]
    return [epoch for value in saved.values() for epoch in epochs_in(value)] if isinstance(saved, dict) else []


def test_one_of_both_is_needed(train, nursery, images, tmp_path):
    assert nursery.run_training(RECIPE, tmp_path, list(SMALL)) == 2
    assert "one of the arguments --data --stream is required" in read_output(tmp_path)
    assert nursery.run_training(RECIPE, tmp_path, ["--stream", *SMALL]) == 1
    assert "train.py: there is nothing to stream: name an index" in read_output(tmp_path)
