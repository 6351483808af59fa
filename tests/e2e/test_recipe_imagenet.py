"""The recipe imagenet-resnet50 as a person starts with it: init, data, run; a tar of tars in, a checked model out."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from testbed import data
from testbed.demo import apply_edits
from tests.support.cli_runs import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch"), pytest.mark.timeout(600)]

SHORT = {"--epochs 5": "--epochs 1 --image-size 32 --test-every 8", "--batch-size 64": "--batch-size 7"}
# As the workflow's comments say.
STREAMED = {
    "    nested: true # a tar of one tar per class: each becomes a folder": "    mode: stream",
    "        --data $PACKTRAIN_INPUTS/data\n": "        --stream\n",
}


@pytest.mark.parametrize("way", [{}, STREAMED], ids=["staged", "streamed"])
def test_from_init_to_a_model(tmp_path, way):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    desk = Workspace(tmp_path, PATH=path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    desk.run("init", "imagenet-resnet50", "here")
    (tmp_path / "here/data").mkdir()
    os.link(data.cached_cifar10(), tmp_path / "here/data/cifar-10-python.tar.gz")
    made = desk.start("data", "imagenet-like", "-o", "here/data", "--classes", 3, "--per-class", 8, "--size", "60x45")
    assert made.communicate() and made.returncode == 0
    workflow = tmp_path / "here/workflow.yaml"
    workflow.write_text(apply_edits(workflow.read_text(), {**SHORT, **way}))
    packtrain = desk.start("run", workflow, "--no-gpu")
    out, err = packtrain.communicate()
    assert packtrain.returncode == 0, out + err
    weights = torch.load(tmp_path / "here/results/imagenet_resnet50.pt", weights_only=True)
    assert len(weights) == 320 and weights["fc.bias"].shape == (3,)
    assert "3 classes, 21 images to learn from" in desk.run("logs")
