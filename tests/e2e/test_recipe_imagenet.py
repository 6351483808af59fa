"""The recipe imagenet-resnet50 as a user starts it: `init`, then `run` on a tar of tars."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from testbed import data
from testbed.datasets import synthetic_imagenet
from testbed.demo import apply_edits
from tests.support.cli_runs import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch"), pytest.mark.timeout(600)]

SHORT = {
    "path: ILSVRC2012_img_train.tar": "path: imagenet-like.tar",
    "disk: 300GB": "disk: 4GB",
    "--epochs 5": "--epochs 1 --image-size 32 --test-every 8",
    "--batch-size 64": "--batch-size 7",
}
# The edits that the comments of the workflow describe.
STREAMED = {
    "    nested: true # a tar of one tar per class: each becomes a folder": "    mode: stream",
    "        --data $PACKTRAIN_INPUTS/data\n": "        --stream\n",
}


@pytest.mark.parametrize("edits", [{}, STREAMED], ids=["staged", "streamed"])
def test_from_init_to_a_model(tmp_path, edits):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    workspace = Workspace(tmp_path, PATH=path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    workspace.run("init", "imagenet-resnet50", "here")
    shape = synthetic_imagenet.DatasetShape(3, 8, 60, 45)
    synthetic_imagenet.write_archive(
        tmp_path / "here/imagenet-like.tar", data.cached_cifar10(), shape, lambda done, total: None, lambda: None
    )
    workflow = tmp_path / "here/workflow.yaml"
    workflow.write_text(apply_edits(workflow.read_text(), {**SHORT, **edits}))
    process = workspace.start("run", workflow, "--no-gpu")
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    weights = torch.load(tmp_path / "here/results/imagenet_resnet50.pt", weights_only=True)
    assert len(weights) == 320 and weights["fc.bias"].shape == (3,)
    assert "3 classes, 21 training images" in workspace.run("logs")
