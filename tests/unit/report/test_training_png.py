"""Pictures are drawn for one job and for a hundred, and say in words what they show."""

import math
import os
import re

import pytest

from packtrain.errors import UsageError
from packtrain.report.charts.training import save_training_plot
from packtrain.report.readers.training_curves import TrainingCurve, TrainingCurves


def job(number, losses, accuracies=(), **more):
    lines = {"loss": tuple(enumerate(losses, 1)), "accuracy": tuple(enumerate(accuracies, 1))}
    return TrainingCurve(str(number), f"lr {number}", "succeeded", {k: v for k, v in lines.items() if v}, **more)


def words_of(path):
    return [
        re.sub(r"<[^>]*>", "", text).strip() for text in re.findall(r"<text.*?</text>", path.read_text(), re.DOTALL)
    ]


def drawn(tmp_path, *jobs, along="step"):
    save_training_plot(TrainingCurves("run-1", along, jobs), tmp_path / "training.svg", "local")
    assert os.listdir(tmp_path) == ["training.svg"], "nothing temporary stays"
    return words_of(tmp_path / "training.svg")


def test_one_job_is_named_by_its_metrics(tmp_path):
    words = drawn(tmp_path, job(0, [2.0, 1.5, 1.25], [0.1, 0.5, 0.75]))
    assert {"run-1", "local", "loss  1.25", "accuracy  75.0%", "step"} <= set(words)


def test_few_jobs_are_named_each(tmp_path):
    words = drawn(tmp_path, *(job(n, [2.0, 1.0 + n], [0.1, n / 10]) for n in range(8)))
    assert {f"lr {n}  {n * 10:.1f}%" for n in range(8)} <= set(words)


def test_of_many_jobs_the_best_the_median_and_the_worst_are_named(tmp_path):
    words = drawn(tmp_path, *(job(n, [200.0, 1.0 + n], [0.1, n / 100]) for n in range(100)))
    assert {"best  1", "median  51", "worst  100", "best  99.0%", "median  49.0%", "worst  0.0%"} <= set(words)
    assert {"lr 0", "lr 99"} <= set(words)
    assert len(words) < 60, "a hundred names cannot be read"


def test_marks_are_explained(tmp_path):
    losses = [2.0 / n for n in range(1, 100)]
    resumed = job(0, losses, discarded={"loss": (((20, 0.2), (21, 0.2)),)}, resume_steps=(20.0,))
    words = drawn(tmp_path, resumed, job(1, [2.0, math.nan, math.nan]))
    assert {"lost, done again", "went on here", "loss is not finite from 2 on", "lr 1  nan"} <= set(words)


def test_jobs_that_only_ever_reported_nan(tmp_path):
    assert "run-1" in drawn(tmp_path, job(0, [math.nan]))
    assert "run-1" in drawn(tmp_path, *(job(n, [math.nan, math.inf]) for n in range(20)))


def test_a_training_without_a_loss_and_with_a_metric_of_its_own(tmp_path):
    words = drawn(
        tmp_path, TrainingCurve("0", "job 0", "running", {"f1_score": ((1, 0.5),), "images_per_s": ((1, 9.0),)})
    )
    assert "f1 score  0.5" in words
    assert not any("images" in text for text in words)


def test_only_a_rate_or_a_learning_rate_is_drawn_too(tmp_path):
    assert "images per s  9" in drawn(tmp_path, TrainingCurve("0", "job 0", "running", {"images_per_s": ((1, 9.0),)}))


def test_names_are_no_formulas(tmp_path):
    assert "lr $a^b$" in " ".join(drawn(tmp_path, job(0, [1.0]), job("$a^b$", [1.0])))


def test_a_long_training_makes_a_small_picture(tmp_path):
    save_training_plot(
        TrainingCurves("r", "step", (job(0, [1.0 + n % 7 for n in range(200_000)]),)), tmp_path / "a.svg"
    )
    assert (tmp_path / "a.svg").stat().st_size < 300_000


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_formats(tmp_path, suffix, magic):
    save_training_plot(TrainingCurves("r", "step", (job(0, [1.0]),)), tmp_path / f"a{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes().startswith(magic)


def test_another_format_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"a.bmp should end in .png, .svg, .pdf"):
        save_training_plot(TrainingCurves("r", "step", ()), tmp_path / "a.bmp")
