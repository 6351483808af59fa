"""The recipe cifar10-resnet with the real data on a real pool, with each published method.

The methods are a tarball that the access point sends, unpacked files by HTTP, and the federation; with and without a
container image.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tarfile
from pathlib import Path

import pytest
import torch

from packtrain import recipes
from testbed import data, pytorch_image
from testbed.federation import XRootDFederation
from testbed.http_server import HttpServer
from tests.support.cli_runs import TIMEOUT_S

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-2"), pytest.mark.timeout(600)]

RECIPE = Path(recipes.__file__).parent / "cifar10-resnet"
TOKEN = "t0ken-of-ada-0815"
FOLDER = "cifar-10-batches-py"
FILES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
SHORT = "--epochs 1 --batch-size 64 --limit-train 128 --limit-test 100"
PARAMETERS = 272_474  # of ResNet-20 with 1×1 convolutions as shortcuts
IMAGE_ENVIRONMENT = "#!/bin/sh\nexport PATH=/.venv/bin:$PATH\n"


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    """A folder with the batches as files."""
    folder = tmp_path_factory.mktemp("batches")
    with tarfile.open(data.cached_cifar10()) as archive:
        archive.extractall(folder, [archive.getmember(f"{FOLDER}/{name}") for name in FILES], filter="data")
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """An image as a folder that all sites can read, like the OSPool's images in CVMFS."""
    tree = pytorch_image.build_image(tmp_path_factory.mktemp("image") / "pytorch")
    (tree / ".singularity.d/env/90-environment.sh").write_text(IMAGE_ENVIRONMENT)
    return tree


def short_recipe(source: str, more: str = "", python: str = sys.executable) -> str:
    """Return the recipe's workflow with another data source and fewer images, and check each replacement."""
    text = (RECIPE / "workflow.yaml").read_text(encoding="utf-8")
    before, rest = text.split("  data:\n")
    after = rest[rest.index("\n# Files that a step writes") :]
    text = f"{before}  data: {source}\n{after}{more}"
    for old, new in {
        "cpusPerTask: 2": "cpusPerTask: 1",
        "path: train.py": f"path: {RECIPE / 'train.py'}",
        "['accuracy'] > 0.2": "['accuracy'] > 0",  # there are too few images for a good accuracy
        "--epochs 30": SHORT,
        "python3 $PACKTRAIN": f"{python} $PACKTRAIN",
        'python3 -c "': f'{python} -c "',
    }.items():
        assert old in text, f"the recipe has no {old}"
        text = text.replace(old, new)
    return text


def files_input(origin: HttpServer) -> str:
    files = ", ".join(f'{{url: "{origin.url}/{FOLDER}/{name}", name: {FOLDER}/{name}}}' for name in FILES)
    return f"{{http: {{files: [{files}]}}}}"


def train(workspace, workflow: str) -> str:
    """Run the workflow, check that its first attempt succeeds, and return the output of the command."""
    workspace.write_file(workflow)
    process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, f"exit {process.returncode}\n{out}\n{err}"
    assert [path.name for path in workspace.attempt_folders()] == ["0-1"]
    check_results(workspace.folder / "results")
    check_cleaned_up(workspace)
    check_summary(workspace, out)
    return out


def check_results(results: Path) -> None:
    metrics = json.loads((results / "metrics.json").read_text())
    state = torch.load(results / "cifar10_resnet.pt", weights_only=True)
    assert metrics["parameters"] == PARAMETERS
    assert [row["epoch"] for row in metrics["history"]] == [0]
    assert state["linear.weight"].shape == (10, 64)
    assert all(torch.isfinite(value).all() for value in state.values())


def check_cleaned_up(workspace) -> None:
    """Check that the queue and the sites are empty."""
    assert workspace.pool.queue("true") == []
    workspace.wait_for(lambda: not list(workspace.pool.folder.glob("execute/*/dir_*")))


def check_summary(workspace, out: str) -> None:
    """Check that the summary has the fetched bytes, the times of the stages and the location of the outputs."""
    assert re.search(r"^fetch: 1\d\d MB, \d files in ", out, re.MULTILINE), out
    _, _, times = out.partition("where the time went")
    assert "steps" in {line.split()[0] for line in times.splitlines() if "█" in line}, out
    assert f"outputs: {workspace.folder / 'results'}" in out


def test_tarball_sent_by_access_point(workspace):
    """A server requires the token to download the training program."""
    workspace.environment["DATA_TOKEN"] = TOKEN
    with HttpServer(RECIPE, token=TOKEN) as origin:
        program = f'http: {{url: "{origin.url}/train.py", token: "${{env:DATA_TOKEN}}"}}'
        text = short_recipe(f"{{file: {{path: {data.cached_cifar10()}}}, transfer: condor}}")
        out = train(workspace, text.replace(f"file:\n      path: {RECIPE / 'train.py'}", program))
    (submitted,) = workspace.run_folder().glob("htcondor/*.sub")
    assert "/input-0" in submitted.read_text(), "HTCondor sends it"
    assert [request.path for request in origin.requests if request.method == "GET"] == ["/train.py"]
    assert TOKEN not in out + submitted.read_text()


def test_files_by_http(workspace, batches):
    with HttpServer(batches) as origin:
        train(workspace, short_recipe(files_input(origin)))
    assert origin.sent_bytes == sum((batches / FOLDER / name).stat().st_size for name in FILES), "each file once"


def test_federation(workspace, tmp_path):
    with XRootDFederation(tmp_path / "federation") as federation:
        shutil.copy(data.cached_cifar10(), federation.origin.object_dir)
        workspace.pool.trust_ca(federation.ca)
        workspace.environment["SSL_CERT_FILE"] = str(federation.ca)
        train(workspace, short_recipe(f'{{osdf: {{url: "{federation.url(data.CIFAR10_FILENAME)}"}}}}'))
        paths = [tmp_path / f"federation/cache{n}/store/data" / data.CIFAR10_FILENAME for n in (1, 2)]
        assert any(path.exists() for path in paths), "the data came through a cache"


def test_container_image(workspace, batches, image):
    contained = f"    run:\n      container: {{image: {image}}}\n"
    lines = "htcondor: {transfer_container: 'false'}\n"
    with HttpServer(batches) as origin:
        text = short_recipe(files_input(origin), lines, python="python3").replace("    run:\n", contained)
        train(workspace, text)
    metrics = json.loads((workspace.folder / "results/metrics.json").read_text())
    assert metrics["settings"]["data"].startswith("/srv/"), "the working folder of HTCondor's container jobs"
    assert " packtrain {" in (workspace.run_folder() / "htcondor/event.log").read_text(), (
        "the agent sends events from inside the container"
    )


SINGULARITY = """+SingularityImage = "{image}"
transfer_container = false
executable = run.sh
output = out.txt
request_memory = 64MB
request_disk = 200MB
queue
"""


def test_submit_file_with_image(workspace, image):
    workspace.write_file(
        "#!/bin/sh\npython3 -c 'import torch; print(torch.__name__)' > model.pt\npwd >> model.pt\n", "run.sh"
    )
    workspace.write_file(SINGULARITY.format(image=image), "job.sub")
    workspace.run("run", "job.sub", "--on", "htcondor", "--expect", "model.pt")
    module, folder = (workspace.folder / "model.pt").read_text().split()
    assert module == "torch" and folder.startswith("/srv/"), "the working folder of HTCondor's container jobs"
    (started,) = workspace.read_events("agent.started")
    assert started.data["python"], "the agent runs, not the shell script for images without Python"
