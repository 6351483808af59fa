"""Both workflows of DeepSquare's storage tutorial run the recipe cifar10-dla.

Once in a real Apptainer image that has the recipe as /app/main.py, and once with --no-container on a host that has it
there. Only endpoints and image differ from the published files.
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
# The program in the image: the recipe, with the number of epochs from a file next to it (published: 200).
MAIN = """
import pathlib, runpy, sys
small = ["--limit-train=4", "--limit-test=2", "--batch-size=2"]
sys.argv += ["--epochs=" + pathlib.Path("/app/epochs").read_text(), *small]
runpy.run_path("/app/train.py", run_name="__main__")
"""
# Runs a command with /app and /.venv on the host, as root of its own mount namespace.
HOST_SCRIPT = """
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


class HostWorkspace(Workspace):
    """A workspace on a host that has the program at /app and its Python at /.venv."""

    def __init__(self, folder: Path, app: Path, **environment: str) -> None:
        super().__init__(folder, VENV=sys.prefix, **environment)
        self._root, self._app = folder / "root", app
        self._root.mkdir()

    def start(self, *arguments: object) -> subprocess.Popen:
        inside = [sys.executable, "-m", "packtrain", *map(str, arguments)]
        return subprocess.Popen(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", HOST_SCRIPT, "sh", self._root, self._app, *inside],
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
def http_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    data.make_small_cifar10(folder, per_batch=2)
    with HttpServer(folder) as running:
        yield running


@pytest.fixture
def server():
    """One server per test, so that its bucket is empty at first."""
    with testbed_s3.S3Server() as running:
        yield running


def published_text(name: str, http_server: HttpServer, server: testbed_s3.S3Server, image: Path) -> str:
    """Return the published text with other endpoints and images."""
    text = (PUBLISHED / name).read_text(encoding="utf-8")
    for old, new in {
        "https://www.cs.toronto.edu/~kriz": http_server.url.rstrip("/"),
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


def load_checkpoint(server, folder: Path):
    """Load ckpt.pth from the bucket."""
    server.client.download_file(testbed_s3.BUCKET, "ckpt.pth", str(folder / "downloaded.pth"))
    return torch.load(folder / "downloaded.pth", weights_only=True)


def run_both(
    workspace: Workspace, app: Path, image: Path, http_server: HttpServer, server: testbed_s3.S3Server, *flags: str
) -> None:
    for number, name in enumerate(["cifar10.yaml", "cifar10-resume.yaml"], 1):
        (app / "epochs").write_text(str(number))
        workspace.write_file(published_text(name, http_server, server, image), name)
        process = workspace.start("run", name, "--no-gpu", *flags)
        out, err = process.communicate()  # a busy machine may take minutes
        assert process.returncode == 0, out + err
        logs = workspace.run("logs")
        checkpoint = load_checkpoint(server, workspace.folder)
        assert checkpoint["epoch"] == number - 1, "DeepSquare counts from 0"
        assert {"net", "acc", "epoch"} <= checkpoint.keys() and len(checkpoint["net"]) == 236
    listed = server.client.list_objects_v2(Bucket=testbed_s3.BUCKET)["Contents"]
    assert {entry["Key"] for entry in listed} == {"ckpt.pth", "ckpt.best.pth", "metrics.json"}, (
        "there are no partial uploads"
    )
    assert "resuming in epoch 1 after 0 of 2 batches" in logs
    assert "epoch 0:" not in logs, "the first epoch is not trained again"


def test_in_image(tmp_path, app, http_server, server):
    image = pytorch_image.build_image(tmp_path / "cifar-10-example")
    (image / "app").rmdir()
    shutil.copytree(app, image / "app")
    workspace = Workspace(tmp_path, PATH=f"{apptainer.install_dir()}/usr/bin:{os.environ['PATH']}")
    run_both(workspace, image / "app", image, http_server, server)


def test_on_host(tmp_path, app, http_server, server):
    path = f"{competitors.program_path('curl').parent}:{os.environ['PATH']}"
    workspace = HostWorkspace(tmp_path, app, PATH=path)
    run_both(workspace, app, tmp_path / "no-image.sif", http_server, server, "--no-container")
