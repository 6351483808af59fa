"""The recipe imagenet-resnet50 as a person starts with it: init, data, run; a tar of tars in, a checked model out."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from cli_runs import Desk

from testbed import data
from testbed.demo import edited

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch"), pytest.mark.timeout(600)]

SHORT = {"--epochs 5": "--epochs 1 --image-size 32 --test-every 8", "--batch-size 64": "--batch-size 7"}


def test_from_init_to_a_model(tmp_path):
    desk = Desk(tmp_path, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    desk.call("init", "imagenet-resnet50", "here")
    (tmp_path / "here/data").mkdir()
    os.link(data.cifar10(), tmp_path / "here/data/cifar-10-python.tar.gz")
    made = desk.start("data", "imagenet-like", "-o", "here/data", "--classes", 3, "--per-class", 8, "--size", "60x45")
    assert made.communicate() and made.returncode == 0
    workflow = tmp_path / "here/workflow.yaml"
    workflow.write_text(edited(workflow.read_text(), SHORT))
    packtrain = desk.start("run", workflow, "--no-gpu")
    out, err = packtrain.communicate()
    assert packtrain.returncode == 0, out + err
    weights = torch.load(tmp_path / "here/results/imagenet_resnet50.pt", weights_only=True)
    assert len(weights) == 320 and weights["fc.bias"].shape == (3,)
    assert "3 classes, 21 images to learn from" in desk.call("logs")
