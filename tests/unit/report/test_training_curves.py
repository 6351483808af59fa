"""Lines of training: attempts that go on continue them, what was lost is kept apart, NaN is told."""

import math

import pytest

from packtrain.events import kinds
from packtrain.report.readers.training_curves import build_training_curves, format_subtitle
from tests.support.event_builder import RunBuilder


def tell(story, agent, job="0", /, **data):
    story.say(agent, kinds.METRIC, job, **data)


def attempt(story, number, steps, job="0", **more):
    decision = f"{job}-{number}"
    story.submit(decision, job)
    story.start_agent(f"agent-{decision}", decision, job)
    for step in steps:
        tell(story, f"agent-{decision}", job, step=step, loss=10.0 / step + number / 100, **more)
    return f"agent-{decision}"


def curves(story):
    return build_training_curves(story.state, story.events)


def test_one_attempt():
    story = RunBuilder()
    attempt(story, 1, [1, 2], images_per_s=5.0, epoch=1, total_steps=2)
    (curve,) = curves(story).jobs
    assert curves(story).x_axis == "step"
    assert curve.series == {"loss": ((1, 10.01), (2, 5.01)), "images_per_s": ((1, 5.0), (2, 5.0))}
    assert (curve.label, curve.resume_steps, curve.discarded) == ("job 0", (), {})
    assert (curve.last_finite("loss"), curve.last_finite("accuracy")) == (5.01, None)


def test_a_resumed_attempt_continues_the_line_and_what_it_did_again_was_lost():
    story = RunBuilder()
    attempt(story, 1, [1, 2, 3, 4])
    attempt(story, 2, [3, 4, 5])
    (curve,) = curves(story).jobs
    assert [step for step, _ in curve.series["loss"]] == [1, 2, 3, 4, 5]
    assert curve.series["loss"][2] == (3, 10 / 3 + 0.02), "of the attempt that counts"
    assert [[step for step, _ in piece] for piece in curve.discarded["loss"]] == [[3, 4]]
    assert curve.resume_steps == (3,)


def test_an_attempt_from_the_beginning_begins_the_line_anew():
    story = RunBuilder()
    attempt(story, 1, [1, 2, 3])
    attempt(story, 2, [])
    attempt(story, 3, [1, 2])
    (curve,) = curves(story).jobs
    assert [step for step, _ in curve.series["loss"]] == [1, 2]
    assert curve.resume_steps == ()
    assert len(curve.discarded["loss"][0]) == 3


def test_of_two_attempts_at_once_the_accepted_one_is_drawn():
    story = RunBuilder()
    first = attempt(story, 1, [1, 2, 3])
    attempt(story, 2, [1, 2])
    story.end_job("succeeded", emitter=first)
    (curve,) = curves(story).jobs
    assert [value for _, value in curve.series["loss"]] == [10.01, 5.01, 10 / 3 + 0.01]


def test_events_read_twice_or_in_another_order_draw_the_same():
    story = RunBuilder()
    attempt(story, 1, [1, 2, 3])
    assert build_training_curves(story.state, [*reversed(story.events), *story.events]) == curves(story)


def test_a_report_without_a_step_is_where_the_one_before_was():
    story = RunBuilder()
    agent = attempt(story, 1, [1, 2])
    tell(story, agent, accuracy=0.5)
    (curve,) = curves(story).jobs
    assert curve.series["accuracy"] == ((2, 0.5),)


@pytest.mark.parametrize(("named", "along"), [("epoch", "epoch"), ("round", "report")])
def test_without_steps_lines_go_along_epochs_or_reports(named, along):
    story = RunBuilder()
    agent = attempt(story, 1, [])
    for count in (1, 2, 3):
        tell(story, agent, **{named: count, "loss": 1.0})
    found = curves(story)
    assert found.x_axis == along
    assert [step for step, _ in found.jobs[0].series["loss"]] == [1, 2, 3]


def test_a_loss_that_is_not_finite():
    story = RunBuilder()
    agent = attempt(story, 1, [1])
    for step, loss in ((2, "nan"), (3, 2.0), (4, "inf"), (5, "nan")):
        tell(story, agent, step=step, loss=loss)
    (curve,) = curves(story).jobs
    assert math.isnan(curve.series["loss"][1][1])
    assert curve.nonfinite_from("loss") == 4
    assert curve.last_finite("loss") == 2.0
    assert curve.nonfinite_from("accuracy") is None


def test_texts_and_truths_are_no_metrics():
    story = RunBuilder()
    tell(story, attempt(story, 1, []), step=1, note="words", good=True, huge=10**400)
    assert curves(story).jobs == ()


def test_the_subtitle():
    story = RunBuilder("0", "1")
    story.end_job("succeeded", "0")
    story.end_job("failed", "1")
    assert format_subtitle(story.state) == "2 jobs: 1 succeeded, 1 failed · local"
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
def test_jobs_are_named_by_what_tells_them_apart(points, labels):
    story = RunBuilder(*(str(number) for number in range(len(points))))
    story.events[0].data["points"].update({str(number): point for number, point in enumerate(points)})
    for number in range(len(points)):
        attempt(story, 1, [1], str(number))
    assert [curve.label for curve in curves(story).jobs] == labels
