"""The progress of a training, rendered and as plain lines."""

from packtrain.events import Event, kinds
from packtrain.views.event_lines import EventLineFormatter
from packtrain.views.run_table import render_run
from packtrain.views.terminal import make_console
from tests.support.event_builder import RunBuilder


def make_metric(seq, mono, **data):
    return Event("r", "0", "agent-1", seq, kinds.METRIC, 0.0, mono, data)


def test_plain_lines_show_remaining_time():
    formatter = EventLineFormatter(n_jobs=1)
    assert (
        formatter.format_event(make_metric(1, 10.0, step=10, total_steps=110, loss=2.0))
        == "step 10/110 · loss 2 · 9.1%"
    )
    assert formatter.format_event(make_metric(2, 12.0, step=30, total_steps=110, loss=1.5)) is None, (
        "too soon for another line"
    )
    assert formatter.format_event(make_metric(3, 20.0, step=60, loss=1.0)) == "step 60/110 · loss 1 · 55% · 10 s left"
    assert formatter.format_event(make_metric(4, 20.1, accuracy=0.5)) == "accuracy 50.0% · 55% · 10 s left"


def test_first_nan_has_a_line():
    formatter = EventLineFormatter(n_jobs=2)
    assert formatter.format_event(make_metric(1, 1.0, step=1, loss=1.0))
    assert formatter.format_event(make_metric(2, 1.1, step=2, loss="nan")) == "[0] step 2 · loss nan"
    assert formatter.format_event(make_metric(3, 1.2, step=3, loss="nan")) is None


def build_training(*reports):
    run = RunBuilder()
    run.submit()
    run.start_agent()
    run.add_stage("steps", duration_s=None)
    run.add_event("agent-1", kinds.STEP_STARTED, step="train")
    for now, report in reports:
        run.now = now
        run.add_event("agent-1", kinds.METRIC, **report)
    return run


def render(run, width=160, color=False):
    console = make_console(width=width, force_terminal=color, color_system="truecolor" if color else None)
    with console.capture() as captured:
        console.print(render_run(run.state, True, width))
    return captured.get()


def test_bar_with_remaining_time_and_metrics():
    run = build_training(
        (1.0, {"step": 100, "total_steps": 400, "epoch": 1, "epochs": 4, "loss": 2.0}),
        (11.0, {"step": 200, "total_steps": 400, "epoch": 2, "epochs": 4, "loss": 1.5, "images_per_s": 800.0}),
        (11.5, {"accuracy": 0.5}),
    )
    text = render(run)
    assert "━" in text
    assert "50% · 20 s left · train · epoch 2/4 · step 200/400 · loss 1.5 · accuracy 50.0% · 800 images/s" in text


def test_epochs_without_steps():
    text = render(build_training((0.0, {"epoch": 1, "epochs": 4}), (60.0, {"epoch": 2, "epochs": 4})))
    assert "50% · 2 min left · train · epoch 2/4" in text


def test_remaining_time_in_narrow_terminal():
    run = build_training((0.0, {"step": 1, "total_steps": 9}), (8.0, {"step": 5, "total_steps": 9, "loss": 1.0}))
    assert "56% · 8 s left" in render(run, width=80)


def test_nonfinite_loss_is_red():
    run = build_training((0.0, {"step": 1, "loss": "nan"}))
    assert "\x1b[1;31mloss nan" in render(run, color=True)
    run.end_agent()
    run.end_job("succeeded", emitter="agent-1")
    assert "\x1b[1;31mloss nan" in render(run, color=True)
