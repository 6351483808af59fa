"""Training curves: resumed executions continue a curve, repeated steps are discarded, NaN is reported."""

import math

import pytest

from packtrain.events import kinds
from packtrain.report.readers.training_curves import build_training_curves, format_subtitle
from tests.support.event_builder import RunBuilder


def report(run, agent, job="0", /, **data):
    run.add_event(agent, kinds.METRIC, job, **data)


def add_attempt(run, number, steps, job="0", **metrics):
    attempt_id = f"{job}-{number}"
    run.submit(attempt_id, job)
    run.start_agent(f"agent-{attempt_id}", attempt_id, job)
    for step in steps:
        report(run, f"agent-{attempt_id}", job, step=step, loss=10.0 / step + number / 100, **metrics)
    return f"agent-{attempt_id}"


def build_curves(run):
    return build_training_curves(run.state, run.events)


def test_single_attempt():
    run = RunBuilder()
    add_attempt(run, 1, [1, 2], images_per_s=5.0, epoch=1, total_steps=2)
    (curve,) = build_curves(run).jobs
    assert build_curves(run).x_axis == "step"
    assert curve.series == {"loss": ((1, 10.01), (2, 5.01)), "images_per_s": ((1, 5.0), (2, 5.0))}
    assert (curve.label, curve.resume_steps, curve.discarded) == ("job 0", (), {})
    assert (curve.last_finite("loss"), curve.last_finite("accuracy")) == (5.01, None)


def test_resumed_attempt():
    run = RunBuilder()
    add_attempt(run, 1, [1, 2, 3, 4])
    add_attempt(run, 2, [3, 4, 5])
    (curve,) = build_curves(run).jobs
    assert [step for step, _ in curve.series["loss"]] == [1, 2, 3, 4, 5]
    assert curve.series["loss"][2] == (3, 10 / 3 + 0.02), "of the later attempt"
    assert [[step for step, _ in line] for line in curve.discarded["loss"]] == [[3, 4]]
    assert curve.resume_steps == (3,)


def test_restarted_attempt():
    run = RunBuilder()
    add_attempt(run, 1, [1, 2, 3])
    add_attempt(run, 2, [])
    add_attempt(run, 3, [1, 2])
    (curve,) = build_curves(run).jobs
    assert [step for step, _ in curve.series["loss"]] == [1, 2]
    assert curve.resume_steps == ()
    assert len(curve.discarded["loss"][0]) == 3


def test_accepted_copy_wins():
    run = RunBuilder()
    first = add_attempt(run, 1, [1, 2, 3])
    add_attempt(run, 2, [1, 2])
    run.end_job("succeeded", emitter=first)
    (curve,) = build_curves(run).jobs
    assert [value for _, value in curve.series["loss"]] == [10.01, 5.01, 10 / 3 + 0.01]


def test_event_order_does_not_matter():
    run = RunBuilder()
    add_attempt(run, 1, [1, 2, 3])
    assert build_training_curves(run.state, [*reversed(run.events), *run.events]) == build_curves(run)


def test_report_without_step():
    run = RunBuilder()
    agent = add_attempt(run, 1, [1, 2])
    report(run, agent, accuracy=0.5)
    (curve,) = build_curves(run).jobs
    assert curve.series["accuracy"] == ((2, 0.5),)


@pytest.mark.parametrize(("key", "x_axis"), [("epoch", "epoch"), ("round", "report")])
def test_other_x_axes(key, x_axis):
    run = RunBuilder()
    agent = add_attempt(run, 1, [])
    for count in (1, 2, 3):
        report(run, agent, **{key: count, "loss": 1.0})
    curves = build_curves(run)
    assert curves.x_axis == x_axis
    assert [step for step, _ in curves.jobs[0].series["loss"]] == [1, 2, 3]


def test_nonfinite_loss():
    run = RunBuilder()
    agent = add_attempt(run, 1, [1])
    for step, loss in ((2, "nan"), (3, 2.0), (4, "inf"), (5, "nan")):
        report(run, agent, step=step, loss=loss)
    (curve,) = build_curves(run).jobs
    assert math.isnan(curve.series["loss"][1][1])
    assert curve.nonfinite_from("loss") == 4
    assert curve.last_finite("loss") == 2.0
    assert curve.nonfinite_from("accuracy") is None


def test_other_values_are_ignored():
    run = RunBuilder()
    report(run, add_attempt(run, 1, []), step=1, note="text", good=True, huge=10**400)
    assert build_curves(run).jobs == ()


def test_subtitle():
    run = RunBuilder("0", "1")
    run.end_job("succeeded", "0")
    run.end_job("failed", "1")
    assert format_subtitle(run.state) == "2 jobs: 1 succeeded, 1 failed · local"
    assert format_subtitle(RunBuilder().state) == "waiting · local"


@pytest.mark.parametrize(
    ("points", "labels"),
    [
        ([{"lr": "1", "wd": "0"}, {"lr": "2", "wd": "0"}], ["lr 1", "lr 2"]),
        ([{"lr": "1"}, {"lr": "1"}, {"lr": "2"}], ["job 0", "job 1", "job 2"]),
        ([{"lr": "1"}], ["job 0"]),
        ([{}, {}], ["job 0", "job 1"]),
    ],
)
def test_labels(points, labels):
    run = RunBuilder(*(str(number) for number in range(len(points))))
    run.events[0].data["points"].update({str(number): point for number, point in enumerate(points)})
    for number in range(len(points)):
        add_attempt(run, 1, [1], str(number))
    assert [curve.label for curve in build_curves(run).jobs] == labels
