"""Synthetic ImageNet archives: a reproducible tar of class tars of JPEGs."""

from __future__ import annotations

import pytest
from PIL import Image

from packtrain.errors import FailedError
from packtrain.transfer.archive.unpack import unpack
from testbed import data
from testbed.datasets import synthetic_imagenet
from testbed.datasets.synthetic_imagenet import DatasetShape

pytestmark = pytest.mark.slow

SHAPE = DatasetShape(n_classes=12, images_per_class=3, width=60, height=45)


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    return data.make_small_cifar10(tmp_path_factory.mktemp("cifar"), per_batch=20)


def write_archive(path, cifar, shape, on_progress=lambda done, total: None, check_cancelled=lambda: None):
    synthetic_imagenet.write_archive(path, cifar, shape, on_progress, check_cancelled)
    return path


def test_classes_become_folders(tmp_path, cifar):
    progress = []
    archive = write_archive(tmp_path / "a.tar", cifar, SHAPE, lambda done, total: progress.append((done, total)))
    folder = tmp_path / "unpacked"
    folder.mkdir()
    unpack(
        archive, folder, nested=True, max_bytes=None, check_cancelled=lambda: None, on_progress=lambda done, total: None
    )
    names = sorted(path.name for path in folder.iterdir())
    assert names[0] == "n01440764" and len(names) == 12
    assert names == [synthetic_imagenet.class_name(number) for number in range(12)], "names sort like class numbers"
    assert [path.name for path in sorted((folder / names[0]).iterdir())] == [f"n01440764_{n}.JPEG" for n in range(3)]
    for path in folder.rglob("*.JPEG"):
        with Image.open(path) as image:
            image.load()
            assert (image.format, image.size) == ("JPEG", (60, 45))
    assert len(progress) == 36 and progress[-1][0] == progress[-1][1] == sum(
        p.stat().st_size for p in folder.rglob("*.JPEG")
    )
    same_label = [(folder / names[k] / f"{names[k]}_0.JPEG").read_bytes() for k in (0, 10)]
    assert same_label[0] != same_label[1]


def test_bytes_depend_on_seed(tmp_path, cifar):
    small = DatasetShape(n_classes=2, images_per_class=2, width=40, height=30)
    first, again = (write_archive(tmp_path / name, cifar, small).read_bytes() for name in ("a", "b"))
    other = write_archive(tmp_path / "c", cifar, DatasetShape(2, 2, 40, 30, seed=2)).read_bytes()
    assert first == again != other


def test_cancelled_build_leaves_nothing(tmp_path, cifar):
    calls = iter(range(5))

    def check_cancelled():
        if next(calls, None) is None:
            raise FailedError("cancelled", "stopped by the user")

    with pytest.raises(FailedError, match="stopped by the user"):
        write_archive(tmp_path / "a.tar", cifar, SHAPE, check_cancelled=check_cancelled)
    assert list(tmp_path.iterdir()) == []
