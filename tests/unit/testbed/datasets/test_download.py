"""Dataset downloads from mirrors and other archives, with the real fetch engine."""

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


def download(remote_file, target):
    fetch(
        remote_file,
        target,
        str,
        retry_timeout_s=0.1,
        check_cancelled=lambda: None,
        on_progress=lambda done, total: None,
    )


def must_not_download(remote_file, target):
    raise AssertionError(f"{remote_file.name} should not be downloaded")


@pytest.fixture(scope="module")
def digits():
    """The four idx files, uncompressed."""
    return {path.stem: gzip.decompress(path.read_bytes()) for path in data.cached_mnist().glob("*.gz")}


def write_tar(path: Path, members: dict[str, bytes]) -> str:
    with tarfile.open(path, "w") as tar:
        for name, contents in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(contents)
            tar.addfile(info, io.BytesIO(contents))
    return path.as_uri()


def test_mnist_from_archive(tmp_path, digits):
    """The archive has the files in any folder, compressed or not."""
    members = {f"package/data/{name}": value for name, value in digits.items()}
    labels = members.pop("package/data/train-labels-idx1-ubyte")
    members["elsewhere/train-labels-idx1-ubyte.gz"] = gzip.compress(labels)
    out = tmp_path / "out"
    files = DatasetDownloader(download, write_tar(tmp_path / "mnist.tar", members)).download_mnist(out)
    assert [file.name for file in files] == [published.name for published in catalog.MNIST]
    assert {file.stem: gzip.decompress(file.read_bytes()) for file in files} == digits
    assert sorted(path.name for path in out.iterdir()) == sorted(file.name for file in files), "no other files remain"
    assert DatasetDownloader(must_not_download).download_mnist(out) == files, "existing files are not downloaded again"


def test_different_digits(tmp_path, digits):
    name = "t10k-labels-idx1-ubyte"
    changed = {**digits, name: digits[name][:-1] + b"\7"}
    with pytest.raises(FailedError, match=f"differs from MNIST's {name}"):
        DatasetDownloader(download, write_tar(tmp_path / "mnist.tar", changed)).download_mnist(tmp_path / "out")
    assert not (tmp_path / "out" / f"{name}.gz").exists()
    del changed[name]
    with pytest.raises(FailedError, match=f"does not contain MNIST: it has no {name}"):
        DatasetDownloader(download, write_tar(tmp_path / "less.tar", changed)).download_mnist(tmp_path / "out")


def test_damaged_mnist_file(tmp_path):
    folder = data.make_small_mnist(tmp_path / "small")
    with pytest.raises(FailedError, match=r"train-images-idx3-ubyte\.gz differs from"):
        DatasetDownloader(must_not_download).download_mnist(folder)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(b"no gzip")
    with pytest.raises(FailedError, match="cannot be read as gzip"):
        DatasetDownloader(must_not_download).download_mnist(folder)


def test_mirror_must_have_published_bytes(tmp_path):
    """Repacked files have the same digits, but a mirror must have the same bytes."""
    mirror = data.cached_mnist().as_uri() + "/"
    with pytest.raises(FailedError) as caught:
        DatasetDownloader(download, mirror).download_mnist(tmp_path)
    assert caught.value.kind in ("digest_mismatch", "unexpected_content", "truncated")


def test_cifar10_from_archive(tmp_path):
    """The archive need not have the published bytes, only the published images."""
    url = data.cached_cifar10().as_uri()
    assert DatasetDownloader(download, url).download_cifar10(tmp_path) == [tmp_path / "cifar-10-python.tar.gz"]
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-python.tar.gz"]


def test_invalid_cifar10(tmp_path):
    with pytest.raises(FailedError, match="but other images"):
        DatasetDownloader(download, data.make_small_cifar10(tmp_path / "small", 2).as_uri()).download_cifar10(
            tmp_path / "a"
        )
    (tmp_path / "text.tgz").write_bytes(b"some bytes")
    with pytest.raises(FailedError, match=r"received text instead of text\.tgz"):
        DatasetDownloader(download, (tmp_path / "text.tgz").as_uri()).download_cifar10(tmp_path / "b")
    with pytest.raises(FailedError, match="not CIFAR-10 in its published layout"):
        DatasetDownloader(download, write_tar(tmp_path / "other.tar", {"a": b"b"})).download_cifar10(tmp_path / "c")


def test_urls_end_in_file_name():
    for file in (catalog.CIFAR10, *catalog.MNIST):
        assert len(file.urls) >= 2 and all(url.endswith(f"/{file.name}") for url in file.urls)
        (location,) = file.to_remote_file("http://mirror/x/").locations
        assert location.url == f"http://mirror/x/{file.name}"
