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

from packtrain.report.analysis.compare import compare, comparison_data
from packtrain.report.analysis.findings import findings_of
from packtrain.report.analysis.statistics import FINE, figures_of
from packtrain.report.analysis.time_accounting import Share, accounts_of, judged, micros, summed
from packtrain.report.export import attempts_csv, document_of, jobs_csv
from packtrain.report.history import Outcome, Phase
from tests.support.odd_histories import odd_history

ODD = st.integers(0, 2**32).map(odd_history)
quickly = settings(max_examples=200, deadline=None)


def slot_micros(attempt):
    return sum(micros(span.end) - micros(span.start) for span in attempt.spans)


@quickly
@given(ODD)
def test_shares_add_up_to_the_wallclock_exactly(history):
    accounts = accounts_of(history)
    for account in accounts:
        for stay in account.attempts:
            assert all(isinstance(count, int) and count > 0 for count in stay.micros.values())
            assert sum(stay.micros.values()) == slot_micros(stay.attempt)
            if stay.attempt.spans:
                assert sum(stay.micros.values()) == micros(stay.attempt.end) - micros(stay.attempt.start)
    whole = sum(slot_micros(attempt) for attempt in history.attempts())
    assert sum(summed(account.micros for account in accounts).values()) == whole


@quickly
@given(ODD)
def test_the_judged_time_line_is_the_same_time_in_order(history):
    for job, account in zip(history.jobs, accounts_of(history), strict=True):
        for attempt, stay, charges in zip(job.attempts, account.attempts, judged(job), strict=True):
            spans = [(micros(span.start), micros(span.end), span.phase) for span in attempt.spans]
            pieces = [(charge.low, charge.high, charge.phase) for charge in charges]
            assert merged(pieces) == merged([span for span in spans if span[0] < span[1]])
            assert summed({charge.share: charge.high - charge.low} for charge in charges) == stay.micros


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
    for account in accounts_of(history):
        shares = Counter(account.micros)
        if account.job.outcome is not Outcome.SUCCEEDED:
            assert shares[Share.COMPUTE] == shares[Share.TRANSFER] == 0
        if account.job.outcome not in FINE:
            open_ = [stay for stay in account.attempts if stay.attempt.outcome is Outcome.RUNNING]
            assert shares[Share.UNDER_WAY] == sum(slot_micros(stay.attempt) for stay in open_)
        assert sum(Share.TRANSFER in stay.micros for stay in account.attempts) <= 1, "one transfer a job"
        spans = [span for attempt in account.job.attempts for span in attempt.spans if span.phase is Phase.EXECUTE]
        assert shares[Share.COMPUTE] <= sum(micros(span.end) - micros(span.start) for span in spans)


@quickly
@given(ODD)
def test_figures_agree_with_one_another(history):
    figures = figures_of(history)
    whole = pytest.approx(figures.wallclock_s, abs=1e-4, rel=1e-9)
    assert sum(figures.shares.values()) == whole
    assert sum(row.seconds for row in figures.rows) == whole
    assert sum(site.seconds for site in figures.sites) == whole
    assert sum(figures.outcomes.values()) == figures.jobs == len(figures.rows)
    assert figures.succeeded + figures.failed == figures.ended <= figures.jobs
    assert sum(failure.count for failure in figures.failures) == figures.failed
    assert sum(site.attempts for site in figures.sites) == figures.attempts


@settings(max_examples=60, deadline=None)
@given(ODD, ODD)
def test_whatever_happened_can_be_told(history, other):
    figures, theirs = figures_of(history), figures_of(other)
    findings = findings_of(history, figures)
    document = document_of(history, figures, findings)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    json.dumps(comparison_data(figures, theirs), allow_nan=False)
    assert [one.weight for one in findings] == sorted((one.weight for one in findings), reverse=True)
    told = [finding.text for finding in findings]
    assert not [text for text in told if re.search(r"\bNone\b|\bnan\b|\binf\b|-\d", _without_names(text, history))]
    assert len(list(csv.reader(io.StringIO(jobs_csv(figures), newline="")))) == figures.jobs + 1
    assert len(list(csv.reader(io.StringIO(attempts_csv(figures.accounts), newline="")))) == figures.attempts + 1
    assert all(one.verdict in ("", "alike") for one in compare(figures, figures))


def _without_names(text, history):
    """What people wrote may say anything; dates have hyphens."""
    for one in (*history.jobs, *history.attempts()):
        for name in (getattr(one, "id", ""), getattr(one, "site", ""), getattr(one, "machine", ""), one.reason):
            text = text.replace(" ".join(name.split()), "") if name.strip() else text
    return re.sub(r"“.*”|from \S+|\d{4}-\d\d-\d\d", "", text, flags=re.DOTALL)
