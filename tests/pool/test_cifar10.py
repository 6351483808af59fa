"""The recipe cifar10-resnet on a real pool, with the real images, by each published method: a tarball that the access
point sends, files in usable form by HTTP, the federation; in an image and without."""

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
ON_ENTERING = "#!/bin/sh\nexport PATH=/.venv/bin:$PATH\n"


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    """A folder with the batches as files."""
    folder = tmp_path_factory.mktemp("batches")
    with tarfile.open(data.cached_cifar10()) as archive:
        archive.extractall(folder, [archive.getmember(f"{FOLDER}/{name}") for name in FILES], filter="data")
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """A folder, as the OSPool has its images in CVMFS: sites see it by themselves."""
    tree = pytorch_image.build_image(tmp_path_factory.mktemp("image") / "pytorch")
    (tree / ".singularity.d/env/90-environment.sh").write_text(ON_ENTERING)
    return tree


def short_recipe(source: str, more: str = "", python: str = sys.executable) -> str:
    """The recipe's own workflow with other data and fewer images; each change is one that is there to be made."""
    text = (RECIPE / "workflow.yaml").read_text(encoding="utf-8")
    before, rest = text.split("  data:\n")
    after = rest[rest.index("\n# What a step writes") :]
    text = f"{before}  data: {source}\n{after}{more}"
    for old, new in {
        "cpusPerTask: 2": "cpusPerTask: 1",
        "path: train.py": f"path: {RECIPE / 'train.py'}",
        "['accuracy'] > 0.2": "['accuracy'] > 0",  # so few images teach little
        "--epochs 30": SHORT,
        "python3 $PACKTRAIN": f"{python} $PACKTRAIN",
        'python3 -c "': f'{python} -c "',
    }.items():
        assert old in text, f"the recipe has no {old}"
        text = text.replace(old, new)
    return text


def as_files(origin: HttpServer) -> str:
    listed = ", ".join(f'{{url: "{origin.url}/{FOLDER}/{name}", name: {FOLDER}/{name}}}' for name in FILES)
    return f"{{http: {{files: [{listed}]}}}}"


def train(desk, workflow: str) -> str:
    """What `packtrain run` says, who must succeed with it at the first attempt."""
    desk.write_file(workflow)
    process = desk.start("run", "workflow.yaml", "--on", "htcondor")
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, f"exit {process.returncode}\n{out}\n{err}"
    assert [path.name for path in desk.attempt_folders()] == ["0-1"]
    assert_home(desk.folder / "results")
    assert_clean(desk)
    assert_told(desk, out)
    return out


def assert_home(results: Path) -> None:
    told = json.loads((results / "metrics.json").read_text())
    state = torch.load(results / "cifar10_resnet.pt", weights_only=True)
    assert told["parameters"] == PARAMETERS
    assert [row["epoch"] for row in told["history"]] == [1]
    assert state["linear.weight"].shape == (10, 64)
    assert all(torch.isfinite(value).all() for value in state.values())


def assert_clean(desk) -> None:
    """Nothing in the queue, nothing left at the sites."""
    assert desk.pool.queue("true") == []
    desk.wait_for(lambda: not list(desk.pool.folder.glob("execute/*/dir_*")))


def assert_told(desk, out: str) -> None:
    """How much came and how long each part took, and where the outputs are."""
    assert re.search(r"^fetch: 1\d\d MB, \d files in ", out, re.MULTILINE), out
    _, _, times = out.partition("where the time went")
    assert "steps" in {line.split()[0] for line in times.splitlines() if "█" in line}, out
    assert f"outputs: {desk.folder / 'results'}" in out


def test_a_tarball_that_the_access_point_sends_and_a_token(desk):
    """The token is for the program, which a server hands out to those who may have it."""
    desk.environment["DATA_TOKEN"] = TOKEN
    with HttpServer(RECIPE, token=TOKEN) as origin:
        program = f'http: {{url: "{origin.url}/train.py", token: "${{env:DATA_TOKEN}}"}}'
        text = short_recipe(f"{{file: {{path: {data.cached_cifar10()}}}, transfer: condor}}")
        out = train(desk, text.replace(f"file:\n      path: {RECIPE / 'train.py'}", program))
    (submitted,) = desk.run_folder().glob("htcondor/*.sub")
    assert "/in-0" in submitted.read_text(), "HTCondor sends it"
    assert [seen.path for seen in origin.requests if seen.method == "GET"] == ["/train.py"]
    assert TOKEN not in out + submitted.read_text()


def test_files_in_usable_form_by_http(desk, batches):
    with HttpServer(batches) as origin:
        train(desk, short_recipe(as_files(origin)))
    assert origin.sent_bytes == sum((batches / FOLDER / name).stat().st_size for name in FILES), "each once"


def test_from_the_federation(desk, tmp_path):
    with XRootDFederation(tmp_path / "federation") as federation:
        shutil.copy(data.cached_cifar10(), federation.origin.object_dir)
        desk.pool.trust(federation.ca)
        desk.environment["SSL_CERT_FILE"] = str(federation.ca)
        train(desk, short_recipe(f'{{osdf: {{url: "{federation.url(data.CIFAR10_FILENAME)}"}}}}'))
        kept = [
            cache
            for cache in (1, 2)
            if (tmp_path / f"federation/cache{cache}/store/data" / data.CIFAR10_FILENAME).exists()
        ]
    assert kept, "it came by a cache"


def test_in_an_image(desk, batches, image):
    contained = f"    run:\n      container: {{image: {image}}}\n"
    lines = "htcondor: {transfer_container: 'false'}\n"
    with HttpServer(batches) as origin:
        text = short_recipe(as_files(origin), lines, python="python3").replace("    run:\n", contained)
        train(desk, text)
    told = json.loads((desk.folder / "results/metrics.json").read_text())
    assert told["settings"]["data"].startswith("/srv/"), "where HTCondor puts a job that is in an image"
    assert " packtrain {" in (desk.run_folder() / "htcondor/event.log").read_text(), "live words from inside"


SINGULARITY = """+SingularityImage = "{image}"
transfer_container = false
executable = run.sh
output = out.txt
request_memory = 64MB
request_disk = 200MB
queue
"""


def test_a_submit_file_with_an_image_has_the_agent_inside(desk, image):
    desk.write_file(
        "#!/bin/sh\npython3 -c 'import torch; print(torch.__name__)' > model.pt\npwd >> model.pt\n", "run.sh"
    )
    desk.write_file(SINGULARITY.format(image=image), "job.sub")
    desk.run("run", "job.sub", "--on", "htcondor", "--expect", "model.pt")
    module, folder = (desk.folder / "model.pt").read_text().split()
    assert module == "torch" and folder.startswith("/srv/"), "where HTCondor puts a job that is in an image"
    (started,) = desk.read_events("agent.started")
    assert started.data["python"], "by the agent, not by the script for images without Python"
