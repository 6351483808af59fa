"""Histories of real Slurm accounting (tests/support/slurm_jobs.py ran the jobs)."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from packtrain.cli.ui.report_summary import print_report_summary
from packtrain.errors import UsageError
from packtrain.report.analysis.resource_use import cpu_efficiency, memory_efficiency
from packtrain.report.build import build_report
from packtrain.report.history import FailureCategory, Outcome, Phase
from packtrain.report.page.tables import build_tables
from packtrain.report.readers.files import read_history
from tests.support.paths import TESTS_DIR
from tests.support.slurm_jobs import STILL_THERE
from tests.support.time_zone import utc  # noqa: F401

DATA = TESTS_DIR / "data" / "slurm-accounting"
GOLDEN = TESTS_DIR / "golden" / "report" / "slurm.txt"
E, C = Outcome, FailureCategory
pytestmark = pytest.mark.usefixtures("utc")


def read_jobs(path):
    history = read_history([str(path)])
    assert (history.kind, history.n_skipped, history.has_timestamps) == ("accounting", 0, True)
    return {job.point["name"] if "_" not in job.id else job.id: job for job in history.jobs}


@pytest.mark.parametrize("name", ["22.05.txt", "22.05.json.gz", "26.05.txt", "26.05.json.gz"])
def test_outcomes(name):
    jobs = read_jobs(DATA / name)
    array = next(job_id.partition("_")[0] for job_id in jobs if "_" in job_id)
    assert {job: [(e.pool_state, e.outcome, e.category) for e in jobs[job].executions] for job in jobs} == {
        "success": [("COMPLETED", E.SUCCEEDED, C.NONE)],
        "failure": [("FAILED", E.FAILED, C.PROGRAM)],
        "gpus": [("COMPLETED", E.SUCCEEDED, C.NONE)],
        "memory": [("FAILED", E.FAILED, C.PROGRAM)],
        "timeout": [("TIMEOUT", E.TIME_LIMIT, C.TIME_LIMIT)],
        "cancelled": [("CANCELLED", E.REMOVED, C.USER)],
        "requeued": [("REQUEUED", E.EVICTED, C.EVICTION), ("FAILED", E.FAILED, C.PROGRAM)],
        "preempted and requeued": [("PREEMPTED", E.EVICTED, C.EVICTION), ("FAILED", E.FAILED, C.PROGRAM)],
        "preempted": [("PREEMPTED", E.EVICTED, C.EVICTION)],
        "lost node": [("NODE_FAIL", E.LOST, C.POOL), ("FAILED", E.FAILED, C.PROGRAM)],
        "high priority": [("COMPLETED", E.SUCCEEDED, C.NONE)],
        **{f"{array}_{task}": [("COMPLETED", E.SUCCEEDED, C.NONE)] for task in (0, 1, 3)},
        f"{array}_2": [("FAILED", E.FAILED, C.PROGRAM)],
        "running": [("RUNNING", E.RUNNING, C.NONE)],
        "waiting": [],
    }
    assert (jobs["running"].outcome, jobs["waiting"].outcome) == (E.RUNNING, E.QUEUED)
    assert jobs["failure"].reason in ("exited with code 7", "the job failed")  # 22.05's JSON has no exit codes
    assert jobs["memory"].reason == "killed by signal 9"
    assert all(wait.phase is Phase.QUEUED for wait in jobs["waiting"].waits)


def test_times_and_places():
    jobs = read_jobs(DATA / "26.05.txt")
    job = jobs["preempted and requeued"]
    first, second = job.executions
    assert (first.site, first.node, second.number) == ("low", "n3", 2)
    assert [span.phase for span in first.spans] == [Phase.EXECUTE]
    assert first.duration_s > 5 and first.retained_compute_s == 0
    assert [wait.phase for wait in job.waits][-1] is Phase.QUEUED
    assert job.waits[-1].start == first.end and job.waits[-1].end == second.start
    assert jobs["gpus"].executions[0].gpus == 2
    assert jobs["success"].executions[0].retained_compute_s == jobs["success"].executions[0].duration_s


def test_efficiency():
    """As `seff` would print: CPU time over CPUs times run time, and the largest step's memory over the requested."""
    (execution,) = read_jobs(DATA / "26.05.txt")["success"].executions
    use = execution.resource_use
    assert cpu_efficiency(execution) == use.cpu_s / (use.cpus * execution.duration_s)
    assert 0.3 <= memory_efficiency(execution) <= 0.5


def test_formats_give_the_same_history():
    for version in ("22.05", "26.05"):
        text, document = read_jobs(DATA / f"{version}.txt"), read_jobs(DATA / f"{version}.json.gz")
        for name, job in text.items():
            if name in STILL_THERE:
                continue  # sacct was called twice
            assert [e.spans for e in job.executions] == [e.spans for e in document[name].executions]
            assert job.waits == document[name].waits


def test_summary_and_page():
    report = build_report(read_history([str(DATA / "26.05.txt")]))
    out = io.StringIO()
    print_report_summary(Console(file=out, width=120), report.stats, report.findings)
    assert out.getvalue() == GOLDEN.read_text(encoding="utf-8")
    tables = {table.element_id: table for table in build_tables(report.history, report.stats)}
    states = {row[0].text: row[1].text for row in tables["states"].rows}
    assert states["PREEMPTED"] == "2" and {"TIMEOUT", "NODE_FAIL", "CANCELLED", "REQUEUED"} <= states.keys()
    columns = [column.name for column in tables["sites"].columns]
    assert {"GPU hours", "CPU efficiency", "Memory efficiency", "Median wait"} <= set(columns)


def test_out_of_memory_and_suspended(tmp_path):
    path = tmp_path / "sacct.txt"
    path.write_text(
        "JobID|State|ExitCode|Submit|Start|End|Suspended|Partition\n"
        "1|OUT_OF_MEMORY|0:125|1795032900|1795033000|1795033100|00:00:00|gpu\n"
        "2|COMPLETED|0:0|1795032900|1795033000|1795033100|00:00:40|gpu\n"
        "3|CANCELLED by 5|0:0|1795032900|None|1795033000|00:00:00|gpu\n"
        "4|REQUEUED|0:0|1795032900|1795033000|1795033050|00:00:00|gpu\n"
    )
    killed, suspended, cancelled, requeued = read_history([str(path)]).jobs
    assert (killed.outcome, killed.reason) == (E.FAILED, "the job used more memory than it requested")
    assert [(span.phase, span.duration_s) for span in suspended.executions[0].spans] == [
        (Phase.EXECUTE, 60), (Phase.SUSPENDED, 40),
    ]  # fmt: skip
    assert (cancelled.outcome, cancelled.executions, cancelled.ended_at) == (E.REMOVED, (), 1795033000)
    assert [wait.duration_s for wait in cancelled.waits] == [100]
    assert (requeued.outcome, requeued.ended_at, requeued.waits[-1].end) == (E.QUEUED, None, 1795033100)


def test_several_files_count_each_record_once(tmp_path):
    text = (DATA / "26.05.txt").read_text()
    (tmp_path / "one.txt").write_text(text)
    (tmp_path / "two.txt").write_text(text)
    history = read_history([str(tmp_path / "*.txt")])
    assert history.name == "2 accounting files"
    assert history.jobs == read_history([str(DATA / "26.05.txt")]).jobs


def test_not_combined_with_logs(tmp_path):
    log = next((TESTS_DIR / "data" / "condor-logs").glob("*.log"))
    with pytest.raises(UsageError, match=r"26\.05\.txt is Slurm accounting, which cannot be combined"):
        read_history([str(DATA / "26.05.txt"), str(log)])
