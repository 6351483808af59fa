"""How a training is told: how far, how fast, how good, and that something is wrong with it."""

import pytest
from rich.console import Console

from packtrain import formatting
from packtrain.events import Event, kinds
from packtrain.views.plain import PlainFormatter
from packtrain.views.run_table import render_run
from tests.support.event_builder import RunBuilder


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            {"images_per_s": 1834.4, "loss": 1.23456, "epoch": 2, "epochs": 5, "step": 30, "total_steps": 100},
            "epoch 2/5 · step 30/100 · loss 1.235 · 1,834 images/s",
        ),
        ({"accuracy": 0.456, "samples_per_second": 12, "lr": 0.1}, "accuracy 45.6% · lr 0.1 · 12 samples/s"),
        ({"loss": "nan", "images_per_s": "inf"}, "loss nan · images/s inf"),
        ({}, ""),
    ],
)
def test_metrics_in_words(data, told):
    assert formatting.format_metrics(data) == told


@pytest.mark.parametrize(
    ("fraction", "left", "told"),
    [(None, None, ""), (0.4, None, "40%"), (0.4, 200.0, "40% · 3 min 20 s left"), (1.0, 0.0, "100%")],
)
def test_what_is_ahead(fraction, left, told):
    assert formatting.format_progress(fraction, left) == told


def metric(seq, mono, **data):
    return Event("r", "0", "agent-1", seq, kinds.METRIC, 0.0, mono, data)


def test_lines_say_when_it_will_be_done():
    lines = PlainFormatter(n_jobs=1)
    assert lines.format_event(metric(1, 10.0, step=10, total_steps=110, loss=2.0)) == "step 10/110 · loss 2 · 9%"
    assert lines.format_event(metric(2, 12.0, step=30, total_steps=110, loss=1.5)) is None, "too soon for another line"
    assert lines.format_event(metric(3, 20.0, step=60, loss=1.0)) == "step 60/110 · loss 1 · 55% · 10 s left"
    assert lines.format_event(metric(4, 20.1, accuracy=0.5)) == "accuracy 50.0% · 55% · 10 s left"


def test_the_first_nan_has_a_line_of_its_own():
    lines = PlainFormatter(n_jobs=2)
    assert lines.format_event(metric(1, 1.0, step=1, loss=1.0))
    assert lines.format_event(metric(2, 1.1, step=2, loss="nan")) == "[0] step 2 · loss nan"
    assert lines.format_event(metric(3, 1.2, step=3, loss="nan")) is None


def training(*reports):
    story = RunBuilder()
    story.submit()
    story.start_agent()
    story.add_stage("steps", duration_s=None)
    story.add_event("agent-1", kinds.STEP_STARTED, step="train")
    for now, report in reports:
        story.now = now
        story.add_event("agent-1", kinds.METRIC, **report)
    return story


def shown(story, width=160, colour=False):
    console = Console(width=width, force_terminal=colour, color_system="truecolor" if colour else None)
    with console.capture() as captured:
        console.print(render_run(story.state, True, width))
    return captured.get()


def test_a_bar_with_what_is_left_and_the_newest_of_every_metric():
    story = training(
        (1.0, {"step": 100, "total_steps": 400, "epoch": 1, "epochs": 4, "loss": 2.0}),
        (11.0, {"step": 200, "total_steps": 400, "epoch": 2, "epochs": 4, "loss": 1.5, "images_per_s": 800.0}),
        (11.5, {"accuracy": 0.5}),
    )
    text = shown(story)
    assert "━" in text
    assert "50% · 20 s left · train · epoch 2/4 · step 200/400 · loss 1.5 · accuracy 50.0% · 800 images/s" in text


def test_epochs_count_where_there_are_no_steps():
    text = shown(training((0.0, {"epoch": 1, "epochs": 4}), (60.0, {"epoch": 2, "epochs": 4})))
    assert "50% · 2 min 00 s left · train · epoch 2/4" in text


def test_in_a_narrow_terminal_the_time_that_is_left_is_not_cut_off():
    story = training((0.0, {"step": 1, "total_steps": 9}), (8.0, {"step": 5, "total_steps": 9, "loss": 1.0}))
    assert "56% · 8.0 s left" in shown(story, width=80)


def test_a_loss_that_is_not_finite_is_red():
    story = training((0.0, {"step": 1, "loss": "nan"}))
    assert "\x1b[1;31mloss nan" in shown(story, colour=True)
    story.end_agent()
    story.end_job("succeeded", emitter="agent-1")
    assert "\x1b[1;31mloss nan" in shown(story, colour=True)
