"""Every microsecond of every attempt's slot belongs to exactly one share, whatever history a reader made."""

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
from packtrain.report.analysis.findings import find_insights
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

ODD = st.integers(0, 2**32).map(make_odd_history)
quickly = settings(max_examples=200, deadline=None)


def slot_micros(attempt):
    return sum(seconds_to_us(span.end) - seconds_to_us(span.start) for span in attempt.spans)


@quickly
@given(ODD)
def test_shares_add_up_to_the_wallclock_exactly(history):
    accounts = account_history(history)
    for account in accounts:
        for stay in account.executions:
            assert all(isinstance(count, int) and count > 0 for count in stay.time_use_us.values())
            assert sum(stay.time_use_us.values()) == slot_micros(stay.execution)
            if stay.execution.spans:
                assert sum(stay.time_use_us.values()) == seconds_to_us(stay.execution.end) - seconds_to_us(
                    stay.execution.start
                )
    whole = sum(slot_micros(attempt) for attempt in history.executions())
    assert sum(sum_time_use(account.time_use_us for account in accounts).values()) == whole


@quickly
@given(ODD)
def test_the_judged_time_line_is_the_same_time_in_order(history):
    for job, account in zip(history.jobs, account_history(history), strict=True):
        for attempt, stay, charges in zip(job.executions, account.executions, classify_job_time(job), strict=True):
            spans = [(seconds_to_us(span.start), seconds_to_us(span.end), span.phase) for span in attempt.spans]
            pieces = [(charge.start_us, charge.end_us, charge.phase) for charge in charges]
            assert merged(pieces) == merged([span for span in spans if span[0] < span[1]])
            assert sum_time_use({charge.use: charge.end_us - charge.start_us} for charge in charges) == stay.time_use_us


def merged(pieces):
    """Neighbours of one phase as one."""
    found = []
    for low, high, phase in pieces:
        if found and found[-1][1:] == (low, phase):
            low = found.pop()[0]
        found.append((low, high, phase))
    return found


@quickly
@given(ODD)
def test_only_jobs_that_succeeded_made_good_use_of_anything(history):
    for account in account_history(history):
        shares = Counter(account.time_use_us)
        if account.job.outcome is not Outcome.SUCCEEDED:
            assert shares[TimeUse.USEFUL_COMPUTE] == shares[TimeUse.USEFUL_TRANSFER] == 0
        if account.job.outcome not in NOT_FAILED_OUTCOMES:
            open_ = [stay for stay in account.executions if stay.execution.outcome is Outcome.RUNNING]
            assert shares[TimeUse.IN_PROGRESS] == sum(slot_micros(stay.execution) for stay in open_)
        assert sum(TimeUse.USEFUL_TRANSFER in stay.time_use_us for stay in account.executions) <= 1, (
            "one transfer a job"
        )
        spans = [span for attempt in account.job.executions for span in attempt.spans if span.phase is Phase.EXECUTE]
        assert shares[TimeUse.USEFUL_COMPUTE] <= sum(
            seconds_to_us(span.end) - seconds_to_us(span.start) for span in spans
        )


@quickly
@given(ODD)
def test_figures_agree_with_one_another(history):
    figures = compute_stats(history)
    whole = pytest.approx(figures.wallclock_s, abs=1e-4, rel=1e-9)
    assert sum(figures.time_use_s.values()) == whole
    assert sum(row.slot_s for row in figures.job_summaries) == whole
    assert sum(site.slot_s for site in figures.sites) == whole
    assert sum(figures.outcomes.values()) == figures.jobs == len(figures.job_summaries)
    assert figures.succeeded_jobs + figures.failed_jobs == figures.ended_jobs <= figures.jobs
    assert sum(failure.count for failure in figures.job_failures) == figures.failed_jobs
    assert sum(site.executions for site in figures.sites) == figures.executions


@settings(max_examples=60, deadline=None)
@given(ODD, ODD)
def test_whatever_happened_can_be_told(history, other):
    figures, theirs = compute_stats(history), compute_stats(other)
    findings = find_insights(history, figures)
    document = report_to_json(history, figures, findings)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    json.dumps(comparison_to_json(figures, theirs), allow_nan=False)
    assert [one.weight for one in findings] == sorted((one.weight for one in findings), reverse=True)
    told = [finding.text for finding in findings]
    assert not [text for text in told if re.search(r"\bNone\b|\bnan\b|\binf\b|-\d", _without_names(text, history))]
    assert len(list(csv.reader(io.StringIO(jobs_to_csv(figures), newline="")))) == figures.jobs + 1
    assert (
        len(list(csv.reader(io.StringIO(executions_to_csv(figures.job_time_use), newline=""))))
        == figures.executions + 1
    )
    assert all(one.change in ("", "alike") for one in compare_stats(figures, figures))


def _without_names(text, history):
    """What people wrote may say anything; dates have hyphens."""
    for one in (*history.jobs, *history.executions()):
        for name in (getattr(one, "id", ""), getattr(one, "site", ""), getattr(one, "machine", ""), one.reason):
            text = text.replace(" ".join(name.split()), "") if name.strip() else text
    return re.sub(r"“.*”|from \S+|\d{4}-\d\d-\d\d", "", text, flags=re.DOTALL)
