"""Both workflows of DeepSquare's storage tutorial run the recipe cifar10-dla: in a real Apptainer image that has it as
/app/main.py, and with --no-container on a host that has it there. Nothing in them is changed but endpoints and image.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from packtrain import recipes
from testbed import apptainer, competitors, data, pytorch_image
from testbed import s3 as testbed_s3
from testbed.http_server import HttpServer
from tests.support.cli_runs import Workspace
from tests.support.paths import TESTS_DIR

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch"), pytest.mark.timeout(600)]

PUBLISHED = TESTS_DIR / "golden" / "workflows"
RECIPE = Path(recipes.__file__).parent / "cifar10-dla" / "train.py"
# The program as the image has it: the recipe, for so many epochs as a file beside it says (published are 200).
MAIN = """
import pathlib, runpy, sys
few = ["--limit-train=4", "--limit-test=2", "--batch-size=2"]
sys.argv += ["--epochs=" + pathlib.Path("/app/epochs").read_text(), *few]
runpy.run_path("/app/train.py", run_name="__main__")
"""
# Runs a command with /app and /.venv on the machine, as root of a namespace of its own.
HOST_WITH = """
set -e
root=$1 app=$2; shift 2
mount -t tmpfs none "$root"
for path in /*; do
  name=$root$path
  if [ "$path" = /app ]; then continue
  elif [ -L "$path" ]; then cp -P "$path" "$name"
  elif [ -d "$path" ]; then mkdir "$name"; mount --rbind "$path" "$name"
  else touch "$name"; mount --bind "$path" "$name"; fi
done
ln -s "$app" "$root/app"
ln -s "$VENV" "$root/.venv"
exec chroot "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
"""


class HostDesk(Workspace):
    """On a machine that has the program at /app and its Python at /.venv."""

    def __init__(self, folder: Path, app: Path, **environment: str) -> None:
        super().__init__(folder, VENV=sys.prefix, **environment)
        self._root, self._app = folder / "root", app
        self._root.mkdir()

    def start(self, *arguments: object) -> subprocess.Popen:
        inside = [sys.executable, "-m", "packtrain", *map(str, arguments)]
        return subprocess.Popen(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", HOST_WITH, "sh", self._root, self._app, *inside],
            cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """The folder /app of the published image."""
    folder = tmp_path_factory.mktemp("app")
    shutil.copy(RECIPE, folder / "train.py")
    (folder / "main.py").write_text(MAIN)
    return folder


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    data.make_small_cifar10(folder, per_batch=2)
    with HttpServer(folder) as running:
        yield running


@pytest.fixture
def server():
    """Of each test: its bucket is empty at first, and there is room for all checkpoints of one test."""
    with testbed_s3.S3Server() as running:
        yield running


def published(name: str, origin: HttpServer, server: testbed_s3.S3Server, image: Path) -> str:
    """The published text with other endpoints and images; each change is one that is there to be made."""
    text = (PUBLISHED / name).read_text(encoding="utf-8")
    for old, new in {
        "https://www.cs.toronto.edu/~kriz": origin.url.rstrip("/"),
        "https://sos-at-vie-1.exo.io": server.endpoint,
        "at-vie-1": testbed_s3.REGION,
        "s3://cifar10": f"s3://{testbed_s3.BUCKET}",
        "EXO***": testbed_s3.ACCESS_KEY,
        "'***'": testbed_s3.SECRET_KEY,
        "deepsquare-io/cifar-10-example:latest": str(image),
        "curlimages/curl:latest": str(image),
    }.items():
        assert old in text or old.startswith("curlimages"), f"{name} has no {old}"
        text = text.replace(old, new)
    return text


def in_bucket(server, folder: Path):
    """ckpt.pth as it stands at the user's own path."""
    server.client.download_file(testbed_s3.BUCKET, "ckpt.pth", str(folder / "seen.pth"))
    return torch.load(folder / "seen.pth", weights_only=True)


def run_both(
    desk: Workspace, app: Path, image: Path, origin: HttpServer, server: testbed_s3.S3Server, *flags: str
) -> None:
    for number, name in enumerate(["cifar10.yaml", "cifar10-resume.yaml"], 1):
        (app / "epochs").write_text(str(number))
        desk.write_file(published(name, origin, server, image), name)
        packtrain = desk.start("run", name, "--no-gpu", *flags)
        out, err = packtrain.communicate()  # a busy machine may take minutes
        assert packtrain.returncode == 0, out + err
        logs = desk.run("logs")
        found = in_bucket(server, desk.folder)
        assert found["epoch"] == number - 1, "DeepSquare counts from 0"
        assert {"net", "acc", "epoch"} <= found.keys() and len(found["net"]) == 236
    listed = server.client.list_objects_v2(Bucket=testbed_s3.BUCKET)["Contents"]
    assert {one["Key"] for one in listed} == {"ckpt.pth", "ckpt.best.pth", "metrics.json"}, "nothing half-written"
    assert "resuming in epoch 2 after 0 of 2 batches" in logs
    assert "epoch 1:" not in logs, "the first epoch is not trained again"


def test_in_an_image(tmp_path, app, origin, server):
    image = pytorch_image.build_image(tmp_path / "cifar-10-example")
    (image / "app").rmdir()
    shutil.copytree(app, image / "app")
    desk = Workspace(tmp_path, PATH=f"{apptainer.install_dir()}/usr/bin:{os.environ['PATH']}")
    run_both(desk, image / "app", image, origin, server)


def test_on_a_host_that_has_the_program(tmp_path, app, origin, server):
    path = f"{competitors.program_path('curl').parent}:{os.environ['PATH']}"
    desk = HostDesk(tmp_path, app, PATH=path)
    run_both(desk, app, tmp_path / "no-image.sif", origin, server, "--no-container")
