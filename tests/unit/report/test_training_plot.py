"""Plots of the training of one job and of a hundred jobs."""

import math
import os
import re

import pytest

from packtrain.errors import UsageError
from packtrain.report.charts.training import save_training_plot
from packtrain.report.readers.training_curves import TrainingCurve, TrainingCurves


def job(number, losses, accuracies=(), **fields):
    lines = {"loss": tuple(enumerate(losses, 1)), "accuracy": tuple(enumerate(accuracies, 1))}
    return TrainingCurve(str(number), f"lr {number}", "succeeded", {k: v for k, v in lines.items() if v}, **fields)


def svg_texts(path):
    return [
        re.sub(r"<[^>]*>", "", text).strip() for text in re.findall(r"<text.*?</text>", path.read_text(), re.DOTALL)
    ]


def plot_texts(tmp_path, *jobs):
    save_training_plot(TrainingCurves("run-1", "step", jobs), tmp_path / "training.svg", "local")
    assert os.listdir(tmp_path) == ["training.svg"], "no temporary files remain"
    return svg_texts(tmp_path / "training.svg")


def test_single_job(tmp_path):
    texts = plot_texts(tmp_path, job(0, [2.0, 1.5, 1.25], [0.1, 0.5, 0.75]))
    assert {"run-1", "local", "loss  1.25", "accuracy  75.0%", "step"} <= set(texts)


def test_few_jobs_are_labeled(tmp_path):
    texts = plot_texts(tmp_path, *(job(n, [2.0, 1.0 + n], [0.1, n / 10]) for n in range(8)))
    assert {f"lr {n}  {n * 10:.1f}%" for n in range(8)} <= set(texts)


def test_many_jobs_are_ranked(tmp_path):
    texts = plot_texts(tmp_path, *(job(n, [200.0, 1.0 + n], [0.1, n / 100]) for n in range(100)))
    assert {"best  1", "median  51", "worst  100", "best  99.0%", "median  49.0%", "worst  0.0%"} <= set(texts)
    assert {"lr 0", "lr 99"} <= set(texts)
    assert len(texts) < 60, "not all jobs are labeled"


def test_legend(tmp_path):
    losses = [2.0 / n for n in range(1, 100)]
    resumed = job(0, losses, discarded={"loss": (((20, 0.2), (21, 0.2)),)}, resume_steps=(20.0,))
    texts = plot_texts(tmp_path, resumed, job(1, [2.0, math.nan, math.nan]))
    assert {"discarded, repeated", "resumed", "loss is not finite from 2 on", "lr 1  nan"} <= set(texts)


def test_only_nan(tmp_path):
    assert "run-1" in plot_texts(tmp_path, job(0, [math.nan]))
    assert "run-1" in plot_texts(tmp_path, *(job(n, [math.nan, math.inf]) for n in range(20)))


def test_custom_metric(tmp_path):
    texts = plot_texts(
        tmp_path, TrainingCurve("0", "job 0", "running", {"f1_score": ((1, 0.5),), "images_per_s": ((1, 9.0),)})
    )
    assert "f1 score  0.5" in texts
    assert not any("images" in text for text in texts)


def test_only_a_rate(tmp_path):
    assert "images per s  9" in plot_texts(
        tmp_path, TrainingCurve("0", "job 0", "running", {"images_per_s": ((1, 9.0),)})
    )


def test_dollar_signs(tmp_path):
    assert "lr $a^b$" in " ".join(plot_texts(tmp_path, job(0, [1.0]), job("$a^b$", [1.0])))


def test_long_training(tmp_path):
    save_training_plot(
        TrainingCurves("r", "step", (job(0, [1.0 + n % 7 for n in range(200_000)]),)), tmp_path / "a.svg"
    )
    assert (tmp_path / "a.svg").stat().st_size < 300_000


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_formats(tmp_path, suffix, magic):
    save_training_plot(TrainingCurves("r", "step", (job(0, [1.0]),)), tmp_path / f"a{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes().startswith(magic)


def test_unknown_format(tmp_path):
    with pytest.raises(UsageError, match=r"a.bmp has an unknown image format; use one of .png, .svg, .pdf"):
        save_training_plot(TrainingCurves("r", "step", ()), tmp_path / "a.bmp")
