"""Tests of log_metrics: the lines for the agent, and the output without packtrain."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest

from packtrain.torch import log_metrics


@pytest.fixture
def metrics(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("PACKTRAIN_METRICS", str(path))
    monkeypatch.delenv("RANK", raising=False)
    return path


@pytest.fixture
def without_packtrain(monkeypatch):
    monkeypatch.delenv("PACKTRAIN_METRICS", raising=False)
    monkeypatch.delenv("RANK", raising=False)


class Scalar:
    """Behaves like a scalar of torch or numpy."""

    def __init__(self, value):
        self.value = value

    def item(self):
        return self.value


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_line_of_json_per_call(metrics, capsys):
    log_metrics(step=1, epoch=1, loss=2.5, accuracy=0.1, total_steps=10, epochs=2, lr=0.05)
    log_metrics(step=2, loss=2.25)
    first = {"epoch": 1, "epochs": 2, "step": 1, "total_steps": 10, "loss": 2.5, "accuracy": 0.1, "lr": 0.05}
    assert read_lines(metrics) == [first, {"step": 2, "loss": 2.25}]
    assert capsys.readouterr().out == ""


def test_scalars_become_numbers(metrics):
    log_metrics(step=Scalar(7), loss=Scalar(0.5))
    assert read_lines(metrics) == [{"step": 7, "loss": 0.5}]


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_numbers_that_are_not_finite(metrics, text):
    log_metrics(loss=float(text))
    assert metrics.read_text() == f'{{"loss": "{text}"}}\n'


def test_value_that_is_not_a_number(metrics):
    with pytest.raises(TypeError, match=r"log_metrics\(phase=…\) takes a number, but got 'warm'"):
        log_metrics(phase="warm")
    assert not metrics.exists()


@pytest.mark.parametrize(("rank", "logs"), [("0", True), ("", True), ("-1", True), ("1", False), ("12", False)])
def test_only_rank_0_logs(metrics, monkeypatch, capsys, rank, logs):
    monkeypatch.setenv("RANK", rank)
    log_metrics(loss=1.0)
    monkeypatch.delenv("PACKTRAIN_METRICS")
    log_metrics(loss=1.0)
    assert (metrics.exists(), capsys.readouterr().out) == (logs, "loss 1.000\n" if logs else "")


def test_lines_of_threads_do_not_mix(metrics):
    def log_many():
        for step in range(200):
            log_metrics(step=step, loss=0.125, name_that_makes_the_line_longer=1)

    threads = [threading.Thread(target=log_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(line["step"] for line in read_lines(metrics)) == sorted(4 * list(range(200)))


def test_failed_write_is_ignored(metrics, monkeypatch):
    monkeypatch.setenv("PACKTRAIN_METRICS", str(metrics / "no" / "such" / "folder"))
    log_metrics(loss=1.0)
    monkeypatch.setenv("PACKTRAIN_METRICS", "/dev/full")
    log_metrics(loss=1.0)


@pytest.mark.parametrize(
    ("metrics", "line"),
    [
        (
            {"step": 120, "epoch": 1, "loss": 1.2341, "accuracy": 0.4561},
            "epoch 1  step 120  loss 1.234  accuracy 45.6%",
        ),
        ({"step": 120, "total_steps": 156, "epoch": 1, "epochs": 2}, "epoch 1/2  step 120/156"),
        ({"loss": float("nan"), "lr": 0.05, "images": 12}, "loss nan  lr 0.05  images 12"),
    ],
)
def test_line_without_packtrain(without_packtrain, capsys, metrics, line):
    log_metrics(**metrics)
    assert capsys.readouterr().out == line + "\n"


def test_import_needs_no_torch():
    code = "import sys, packtrain.torch; sys.exit(any(name in sys.modules for name in ('torch', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
