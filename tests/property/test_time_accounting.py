"""Every microsecond of slot time has exactly one time use, for any history."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.report.analysis.compare import compare_stats, comparison_to_json
from packtrain.report.analysis.findings import collect_findings
from packtrain.report.analysis.statistics import NOT_FAILED_OUTCOMES, compute_stats
from packtrain.report.analysis.time_accounting import (
    TimeUse,
    account_history,
    classify_job_time,
    seconds_to_us,
    sum_time_use,
)
from packtrain.report.export import executions_to_csv, jobs_to_csv, report_to_json
from packtrain.report.history import Outcome, Phase
from tests.support.odd_histories import make_odd_history

HISTORIES = st.integers(0, 2**32).map(make_odd_history)
many_examples = settings(max_examples=200, deadline=None)


def slot_us(execution):
    return sum(seconds_to_us(span.end) - seconds_to_us(span.start) for span in execution.spans)


@many_examples
@given(HISTORIES)
def test_time_uses_add_up_exactly(history):
    job_times = account_history(history)
    for job_time in job_times:
        for execution_time in job_time.executions:
            assert all(isinstance(count, int) and count > 0 for count in execution_time.time_use_us.values())
            assert sum(execution_time.time_use_us.values()) == slot_us(execution_time.execution)
            if execution_time.execution.spans:
                assert sum(execution_time.time_use_us.values()) == seconds_to_us(
                    execution_time.execution.end
                ) - seconds_to_us(execution_time.execution.start)
    total = sum(slot_us(execution) for execution in history.executions())
    assert sum(sum_time_use(job_time.time_use_us for job_time in job_times).values()) == total


@many_examples
@given(HISTORIES)
def test_intervals_match_spans(history):
    for job, job_time in zip(history.jobs, account_history(history), strict=True):
        for execution, execution_time, intervals in zip(
            job.executions, job_time.executions, classify_job_time(job), strict=True
        ):
            spans = [(seconds_to_us(span.start), seconds_to_us(span.end), span.phase) for span in execution.spans]
            interval_phases = [(interval.start_us, interval.end_us, interval.phase) for interval in intervals]
            assert merged(interval_phases) == merged([span for span in spans if span[0] < span[1]])
            assert (
                sum_time_use({interval.use: interval.end_us - interval.start_us} for interval in intervals)
                == execution_time.time_use_us
            )


def merged(spans):
    """Join adjacent spans of the same phase."""
    joined = []
    for start, end, phase in spans:
        if joined and joined[-1][1:] == (start, phase):
            start = joined.pop()[0]
        joined.append((start, end, phase))
    return joined


@many_examples
@given(HISTORIES)
def test_only_successful_jobs_have_useful_time(history):
    for job_time in account_history(history):
        time_use_us = Counter(job_time.time_use_us)
        if job_time.job.outcome is not Outcome.SUCCEEDED:
            assert time_use_us[TimeUse.USEFUL_COMPUTE] == time_use_us[TimeUse.USEFUL_TRANSFER] == 0
        if job_time.job.outcome not in NOT_FAILED_OUTCOMES:
            running = [
                execution_time
                for execution_time in job_time.executions
                if execution_time.execution.outcome is Outcome.RUNNING
            ]
            assert time_use_us[TimeUse.IN_PROGRESS] == sum(
                slot_us(execution_time.execution) for execution_time in running
            )
        assert (
            sum(TimeUse.USEFUL_TRANSFER in execution_time.time_use_us for execution_time in job_time.executions) <= 1
        ), "a job needs one transfer"
        spans = [
            span for execution in job_time.job.executions for span in execution.spans if span.phase is Phase.EXECUTE
        ]
        assert time_use_us[TimeUse.USEFUL_COMPUTE] <= sum(
            seconds_to_us(span.end) - seconds_to_us(span.start) for span in spans
        )


@many_examples
@given(HISTORIES)
def test_statistics_are_consistent(history):
    stats = compute_stats(history)
    total = pytest.approx(stats.wallclock_s, abs=1e-4, rel=1e-9)
    assert sum(stats.time_use_s.values()) == total
    assert sum(row.slot_s for row in stats.job_summaries) == total
    assert sum(site.slot_s for site in stats.sites) == total
    assert sum(stats.outcomes.values()) == stats.jobs == len(stats.job_summaries)
    assert stats.succeeded_jobs + stats.failed_jobs == stats.ended_jobs <= stats.jobs
    assert sum(failure.count for failure in stats.job_failures) == stats.failed_jobs
    assert sum(site.executions for site in stats.sites) == stats.executions


@settings(max_examples=60, deadline=None)
@given(HISTORIES, HISTORIES)
def test_any_history_can_be_exported(history, other):
    stats, other_stats = compute_stats(history), compute_stats(other)
    findings = collect_findings(history, stats)
    document = report_to_json(history, stats, findings)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    json.dumps(comparison_to_json(stats, other_stats), allow_nan=False)
    assert [finding.weight for finding in findings] == sorted((finding.weight for finding in findings), reverse=True)
    texts = [finding.text for finding in findings]
    assert not [text for text in texts if re.search(r"\bNone\b|\bnan\b|\binf\b|-\d", _without_names(text, history))]
    assert len(list(csv.reader(io.StringIO(jobs_to_csv(stats), newline="")))) == stats.jobs + 1
    assert len(list(csv.reader(io.StringIO(executions_to_csv(stats.job_time_use), newline="")))) == stats.executions + 1
    assert all(row.change in ("", "same") for row in compare_stats(stats, stats))


def _without_names(text, history):
    """Remove names and reasons, which may contain anything, and dates, which contain hyphens."""
    for record in (*history.jobs, *history.executions()):
        for name in (
            getattr(record, "id", ""),
            getattr(record, "site", ""),
            getattr(record, "node", ""),
            record.reason,
        ):
            text = text.replace(" ".join(name.split()), "") if name.strip() else text
    return re.sub(r"“.*”|from \S+|\d{4}-\d\d-\d\d", "", text, flags=re.DOTALL)
