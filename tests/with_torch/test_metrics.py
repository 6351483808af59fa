"""Tests of log_metrics with real torch and numpy, which the tests on Python 3.9 lack."""

import json

import numpy
import pytest
import torch

from packtrain.torch import log_metrics


@pytest.mark.slow
def test_scalars_become_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("PACKTRAIN_METRICS", str(tmp_path / "metrics.jsonl"))
    log_metrics(step=numpy.int64(7), loss=torch.tensor(0.5, requires_grad=True), accuracy=numpy.float32(0.25))
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 7, "loss": 0.5, "accuracy": 0.25}
