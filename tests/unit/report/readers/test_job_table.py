"""Tables of jobs: the published ones, and those of other people."""

from __future__ import annotations

import io

import pytest

from packtrain.errors import UsageError
from packtrain.report.history import FailureCategory, Outcome, Phase
from packtrain.report.readers.files import read_history
from packtrain.report.readers.job_table import read_job_table
from tests.support.paths import TESTS_DIR

STUDY = TESTS_DIR / "data/study"
HEAD = (STUDY / "ospool-imagenet-100-jobs.csv").read_text().splitlines()[0] + "\n"


def table(text):
    return read_job_table(io.StringIO(text), "jobs.csv")


def one(line):
    (job,) = table(HEAD + line).jobs
    return job


def spans(attempt):
    return [(span.phase, span.start, span.end) for span in attempt.spans]


@pytest.fixture(scope="module")
def study():
    return read_history([str(STUDY / "ospool-imagenet-100-jobs.csv")])


def test_the_published_week(study):
    assert (len(study.jobs), study.kind, study.has_timestamps) == (100, "table", False)
    assert sum(job.outcome is Outcome.SUCCEEDED for job in study.jobs) == 79
    assert round(sum(attempt.seconds for attempt in study.executions()) / 3600, 1) == 761.3
    assert {job.checked for job in study.jobs if job.outcome is Outcome.SUCCEEDED} == {True}


def test_no_second_of_the_table_is_lost(study):
    """Execution, all transfers, what lay between them, overhead."""
    import csv

    rows = list(csv.DictReader((STUDY / "ospool-imagenet-100-jobs.csv").open()))
    for row, job in zip(rows, study.jobs, strict=True):
        number = {name: float(row[name] or 0) for name in row if name.endswith("_s")}
        beyond = number["slot_busy_s"] - number["execute_s"] - number["transfer_last_s"]
        wanted = number["execute_s"] + number["transfer_total_s"] + max(0.0, beyond)
        assert sum(attempt.duration_s for attempt in job.executions) == pytest.approx(wanted), job.id
        moved = sum(move.seconds for attempt in job.attempts for move in attempt.moves)
        assert moved == pytest.approx(number["transfer_busy_s"]), job.id
        assert len(job.attempts) >= 1 + int(row["stalls"]) + int(row["evictions"]), job.id


def test_a_plain_success():
    job = one("1.0,PDX,success,100,130,20,20,20,0,0,0,\n")
    (attempt,) = job.executions
    assert spans(attempt) == [(Phase.TRANSFER_IN, 0, 20), (Phase.EXECUTE, 20, 120), (Phase.SETUP, 120, 130)]
    assert (attempt.site, attempt.retained_compute_s, job.ended_at, job.submitted_at) == ("PDX", 100, 130, None)


def test_stalls_are_attempts_of_their_own():
    job = one("1.0,PDX,success,100,121,80,80,20,3,0,0,\n")
    assert [spans(attempt) for attempt in job.executions[:3]] == [
        [(Phase.TRANSFER_IN, 0, 20)],
        [(Phase.TRANSFER_IN, 20, 40)],
        [(Phase.TRANSFER_IN, 40, 60)],
    ]
    assert {(a.outcome, a.category, a.site) for a in job.executions[:3]} == {
        (Outcome.FAILED, FailureCategory.TRANSFER, "PDX")
    }
    assert [move.complete for attempt in job.executions for move in attempt.input_transfers] == [
        False,
        False,
        False,
        True,
    ]


def test_an_evicted_job():
    job = one("1.0,A;B,success,100,121,80,30,20,0,0,1,gone\n")
    first, last = job.executions
    assert (first.outcome, first.category, first.site, last.site) == (
        Outcome.EVICTED,
        FailureCategory.EVICTION,
        "A",
        "B",
    )
    assert spans(first) == [(Phase.TRANSFER_IN, 0, 10), (Phase.EXECUTE, 10, 60)]


@pytest.mark.parametrize(
    ("outcome", "ended", "category", "held_in"),
    [
        ("wrong_output", Outcome.WRONG_OUTPUT, FailureCategory.WRONG_OUTPUT, None),
        ("held_compute", Outcome.TIME_LIMIT, FailureCategory.TIME_LIMIT, Phase.EXECUTE),
        ("held_transfer", Outcome.HELD, FailureCategory.TRANSFER, Phase.TRANSFER_IN),
        ("removed", Outcome.REMOVED, FailureCategory.USER, None),
    ],
)
def test_what_did_not_succeed(outcome, ended, category, held_in):
    job = one(f"1.0,PDX,{outcome},100,,20,20,20,0,1,0,why\n")
    assert (job.outcome, job.category, job.held_in_phase, job.reason) == (ended, category, held_in, "why")
    assert job.executions[-1].input_transfers[0].complete is (outcome != "held_transfer")


def test_the_trials():
    """They tell less: the last transfer is what the slot was busy beyond executing."""
    history = read_history([str(STUDY / "ospool-imagenet-trials.csv")])
    jobs = {job.id: job for job in history.jobs}
    assert len(jobs) == 10
    assert jobs["791459.001"].executions == ()
    assert jobs["791459.000"].point == {"epochs": "20"}
    assert jobs["791459.000"].executions[-1].seconds_in(Phase.TRANSFER_IN) == pytest.approx(57782 - 56290)
    assert jobs["791459.002"].executions[-1].seconds_in(Phase.TRANSFER_IN) == 3208
    assert {job.outputs_checked for job in history.jobs} == {None}
    assert any("does not tell the last transfer" in sentence for sentence in history.limitations)


def test_a_table_of_other_people():
    history = table('\ufeffoutcome , job,colour\nsuccess,a,red\n\n"FAILED",b,\n')
    assert [(job.id, job.outcome, dict(job.point)) for job in history.jobs] == [
        ("a", Outcome.SUCCEEDED, {"colour": "red"}),
        ("b", Outcome.FAILED, {"colour": ""}),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("job,state\n1,success\n", "jobs.csv: the table has no column `outcome`"),
        (HEAD + "1,PDX,fine,,,,,,,,,\n", "jobs.csv, line 2, column outcome: `fine` is none of success,"),
        (HEAD + "1,PDX,success,soon,,,,,,,,\n", "jobs.csv, line 2, column execute_s: `soon` is no number"),
        (HEAD + "\n1,PDX,success,-3,,,,,,,,\n", "jobs.csv, line 3, column execute_s: `-3` is no number"),
        (HEAD + "1,PDX,success,1,nan,,,,,,,\n", "jobs.csv, line 2, column slot_busy_s: `nan` is no number"),
        (HEAD + "1,PDX,success,1,2,3,4,5,6,7,8,9,10\n", "jobs.csv, line 2: 13 cells, but the first line names 12"),
    ],
)
def test_a_wrong_table_gets_one_sentence(text, said):
    with pytest.raises(UsageError) as error:
        table(text)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)
