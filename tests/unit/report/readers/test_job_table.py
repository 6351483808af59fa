"""Job tables: the published ones and others."""

from __future__ import annotations

import csv
import io

import pytest

from packtrain.errors import UsageError
from packtrain.report.history import FailureCategory, Outcome, Phase
from packtrain.report.readers.files import read_history
from packtrain.report.readers.job_table import read_job_table
from tests.support.paths import TESTS_DIR

STUDY = TESTS_DIR / "data/study"
HEADER = (STUDY / "ospool-imagenet-100-jobs.csv").read_text().splitlines()[0] + "\n"


def read_table(text):
    return read_job_table(io.StringIO(text), "jobs.csv")


def read_job(line):
    (job,) = read_table(HEADER + line).jobs
    return job


def spans(execution):
    return [(span.phase, span.start, span.end) for span in execution.spans]


@pytest.fixture(scope="module")
def study():
    return read_history([str(STUDY / "ospool-imagenet-100-jobs.csv")])


def test_published_week(study):
    assert (len(study.jobs), study.kind, study.has_timestamps) == (100, "table", False)
    assert sum(job.outcome is Outcome.SUCCEEDED for job in study.jobs) == 79
    assert round(sum(execution.duration_s for execution in study.executions()) / 3600, 1) == 761.3
    assert {job.outputs_checked for job in study.jobs if job.outcome is Outcome.SUCCEEDED} == {True}


def test_all_time_is_accounted_for(study):
    """Execution, all transfers, the time between them, and overhead."""
    rows = list(csv.DictReader((STUDY / "ospool-imagenet-100-jobs.csv").open()))
    for row, job in zip(rows, study.jobs, strict=True):
        seconds = {name: float(row[name] or 0) for name in row if name.endswith("_s")}
        overhead = seconds["slot_busy_s"] - seconds["execute_s"] - seconds["transfer_last_s"]
        expected = seconds["execute_s"] + seconds["transfer_total_s"] + max(0.0, overhead)
        assert sum(execution.duration_s for execution in job.executions) == pytest.approx(expected), job.id
        transferred = sum(transfer.duration_s for execution in job.executions for transfer in execution.input_transfers)
        assert transferred == pytest.approx(seconds["transfer_busy_s"]), job.id
        assert len(job.executions) >= 1 + int(row["stalls"]) + int(row["evictions"]), job.id


def test_success():
    job = read_job("1.0,PDX,success,100,130,20,20,20,0,0,0,\n")
    (execution,) = job.executions
    assert spans(execution) == [(Phase.TRANSFER_IN, 0, 20), (Phase.EXECUTE, 20, 120), (Phase.SETUP, 120, 130)]
    assert (execution.site, execution.retained_compute_s, job.ended_at, job.submitted_at) == ("PDX", 100, 130, None)


def test_stalls_are_executions():
    job = read_job("1.0,PDX,success,100,121,80,80,20,3,0,0,\n")
    assert [spans(execution) for execution in job.executions[:3]] == [
        [(Phase.TRANSFER_IN, 0, 20)],
        [(Phase.TRANSFER_IN, 20, 40)],
        [(Phase.TRANSFER_IN, 40, 60)],
    ]
    assert {(a.outcome, a.category, a.site) for a in job.executions[:3]} == {
        (Outcome.FAILED, FailureCategory.TRANSFER, "PDX")
    }
    assert [transfer.complete for execution in job.executions for transfer in execution.input_transfers] == [
        False,
        False,
        False,
        True,
    ]


def test_evicted_job():
    job = read_job("1.0,A;B,success,100,121,80,30,20,0,0,1,gone\n")
    first, last = job.executions
    assert (first.outcome, first.category, first.site, last.site) == (
        Outcome.EVICTED,
        FailureCategory.EVICTION,
        "A",
        "B",
    )
    assert spans(first) == [(Phase.TRANSFER_IN, 0, 10), (Phase.EXECUTE, 10, 60)]


@pytest.mark.parametrize(
    ("outcome", "job_outcome", "category", "held_in_phase"),
    [
        ("wrong_output", Outcome.WRONG_OUTPUT, FailureCategory.WRONG_OUTPUT, None),
        ("held_compute", Outcome.TIME_LIMIT, FailureCategory.TIME_LIMIT, Phase.EXECUTE),
        ("held_transfer", Outcome.HELD, FailureCategory.TRANSFER, Phase.TRANSFER_IN),
        ("removed", Outcome.REMOVED, FailureCategory.USER, None),
    ],
)
def test_failures(outcome, job_outcome, category, held_in_phase):
    job = read_job(f"1.0,PDX,{outcome},100,,20,20,20,0,1,0,why\n")
    assert (job.outcome, job.category, job.held_in_phase, job.reason) == (job_outcome, category, held_in_phase, "why")
    assert job.executions[-1].input_transfers[0].complete is (outcome != "held_transfer")


def test_trials():
    """They lack the last transfer, which is estimated as slot time minus execution time."""
    history = read_history([str(STUDY / "ospool-imagenet-trials.csv")])
    jobs = {job.id: job for job in history.jobs}
    assert len(jobs) == 10
    assert jobs["791459.001"].executions == ()
    assert jobs["791459.000"].point == {"epochs": "20"}
    assert jobs["791459.000"].executions[-1].seconds_in(Phase.TRANSFER_IN) == pytest.approx(57782 - 56290)
    assert jobs["791459.002"].executions[-1].seconds_in(Phase.TRANSFER_IN) == 3208
    assert {job.outputs_checked for job in history.jobs} == {None}
    assert any("does not record the duration of a job's last transfer" in text for text in history.limitations)


def test_other_columns():
    history = read_table('\ufeffoutcome , job,color\nsuccess,a,red\n\n"FAILED",b,\n')
    assert [(job.id, job.outcome, dict(job.point)) for job in history.jobs] == [
        ("a", Outcome.SUCCEEDED, {"color": "red"}),
        ("b", Outcome.FAILED, {"color": ""}),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job,state\n1,success\n", "jobs.csv: the table has no column `outcome`"),
        (HEADER + "1,PDX,fine,,,,,,,,,\n", "jobs.csv, line 2, column outcome: `fine` is not one of success,"),
        (HEADER + "1,PDX,success,soon,,,,,,,,\n", "jobs.csv, line 2, column execute_s: `soon` is not a number"),
        (HEADER + "\n1,PDX,success,-3,,,,,,,,\n", "jobs.csv, line 3, column execute_s: `-3` is not a number"),
        (HEADER + "1,PDX,success,1,nan,,,,,,,\n", "jobs.csv, line 2, column slot_busy_s: `nan` is not a number"),
        (
            HEADER + "1,PDX,success,1,2,3,4,5,6,7,8,9,10\n",
            "jobs.csv, line 2: the row has 13 cells, but the header has 12",
        ),
    ],
)
def test_errors(text, message):
    with pytest.raises(UsageError) as error:
        read_table(text)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
