"""Findings: the sentence for each noteworthy fact, and no sentence where there is none."""

from __future__ import annotations

import pytest

from packtrain.report.analysis.findings import collect_findings
from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.history import (
    ExecutionRecord,
    FailureCategory,
    InputTransfer,
    JobHistory,
    JobRecord,
    Outcome,
    Phase,
    PhaseSpan,
)

T0 = 1_790_000_000.0 - 1_790_000_000.0 % 3600
HOUR = 3600.0


def execution(outcome=Outcome.SUCCEEDED, *, start=T0, fetched=600.0, executed=4 * HOUR, **fields):
    fetched_at = start + fetched
    spans = (
        PhaseSpan(Phase.TRANSFER_IN, start, fetched_at),
        PhaseSpan(Phase.EXECUTE, fetched_at, fetched_at + executed),
    )
    return ExecutionRecord(1, tuple(span for span in spans if span.duration_s), outcome, **fields)


def job(number, *executions, checked=True, **fields):
    last = executions[-1]
    fields.setdefault("outcome", last.outcome)
    return JobRecord(
        f"7.{number}", executions, ended_at=last.end, outputs_checked=checked, category=last.category, **fields
    )


def good_job(number, start=T0, **fields):
    return job(number, execution(start=start, **fields))


def stalled_job(number, *, start=T0, hours=6.0, **fields):
    """A job that succeeds after one long failed transfer."""
    transfer = {"fetched": hours * HOUR, "executed": 0, "category": FailureCategory.TRANSFER}
    failed = execution(Outcome.FAILED, start=start, **transfer, **fields)
    return job(number, failed, execution(start=start + hours * HOUR, **fields))


def findings(*jobs, kind="log", skipped=0):
    history = JobHistory("example", kind, jobs, n_skipped=skipped)
    return [finding.text for finding in collect_findings(history, compute_stats(history))]


def only(texts, fragment):
    """The only text with this fragment."""
    (text,) = [text for text in texts if fragment in text]
    return text


def test_no_problems():
    assert findings(*(good_job(n, site="A") for n in range(20))) == [
        "Of 83 h of slot time, 96% was useful compute and 4% was the one transfer that each job needs."
    ]


def test_largest_loss_is_first():
    good = [good_job(n, site="A") for n in range(30)]
    texts = findings(*good, *(stalled_job(30 + n, site="B", hours=20 if n < 4 else 0.1) for n in range(12)))
    assert texts[0] == (
        "32% of the slot time (81 h) was wasted on transfers; 4 of the 12 affected jobs account for 80% of it, "
        "all of them at B."
    )


@pytest.mark.parametrize(
    ("fields", "other_fields", "factor"),
    [
        ({"node": "node7"}, {"node": "node1"}, "both of them on node7"),
        ({"start": T0 + 5 * HOUR}, {}, "both of them started between "),
        (
            {"input_transfers": (InputTransfer(T0, 9.0, source="slow.cache", complete=False),)},
            {},
            "both of them from slow.cache",
        ),
    ],
)
def test_common_factors(fields, other_fields, factor):
    good = [good_job(n, site="A", **other_fields) for n in range(6)]
    texts = findings(*good, *(stalled_job(6 + n, site="A", **fields) for n in range(2)))
    assert factor in only(texts, "wasted on transfers")


def test_common_matrix_parameter():
    slow = [
        job(n, execution(Outcome.FAILED, category=FailureCategory.PROGRAM), point={"lr": "10"}, reason="nan")
        for n in range(3)
    ]
    good = [job(3 + n, execution(), point={"lr": "0.1"}) for n in range(5)]
    text = only(findings(*slow, *good), "did not succeed")
    assert text.startswith("3 of 8 jobs did not succeed: in the program; all of them with lr 10.")
    assert text.endswith("The most frequent reason: “nan” (3 jobs).")


def test_shared_site_is_no_common_factor():
    texts = findings(*(good_job(n, site="A") for n in range(6)), *(stalled_job(6 + n, site="A") for n in range(2)))
    assert only(texts, "wasted on").endswith("was wasted on transfers, by 2 jobs.")


def test_failures_without_retry():
    fast = execution(Outcome.HELD, fetched=1, executed=0, category=FailureCategory.TRANSFER)
    texts = findings(*(job(n, fast, reason="404") for n in range(4)), *(good_job(4 + n) for n in range(4)))
    assert only(texts, "did not succeed").endswith("4 jobs failed in transfer within 1 s and were not retried.")


def test_lost_compute_without_checkpoints():
    limit = job(0, execution(Outcome.TIME_LIMIT, executed=20 * HOUR, category=FailureCategory.TIME_LIMIT))
    text = "was compute lost to the time limit, all of it by job 7.0"
    assert f"{text}; no execution was resumed from a checkpoint." in only(findings(limit, good_job(1)), text)
    assert only(findings(limit, good_job(1), kind="table"), text).endswith(f"{text}."), (
        "a table does not record checkpoints"
    )


def test_long_tail():
    jobs = [good_job(n) for n in range(16)] + [stalled_job(16 + n, hours=12) for n in range(4)]
    text = only(findings(*jobs), "but 5% took more")
    assert text.startswith("Half of the jobs completed within 4 h 10 min of their first match")
    assert text.endswith("all 4 jobs that took more than twice the median lost most of that time to wasted transfers.")
    failed = job(20, execution(Outcome.FAILED, category=FailureCategory.PROGRAM))
    assert only(findings(*jobs, failed), "but 5% took more").startswith(
        "Half of the succeeded jobs completed within 4 h 10 min"
    )


def test_slow_site():
    fast, slow = ([good_job(n + m, site=site, executed=hours * HOUR) for n in range(3)] for m, site, hours in _SITES)
    assert only(findings(*fast, *slow), "Compute took") == (
        "Compute took 2.5 times as long at SLOW (median 5 h) as at FAST (2 h)."
    )


_SITES = ((0, "FAST", 2), (3, "SLOW", 5))


def test_slow_site_with_other_parameters():
    jobs = [
        job(n + m, execution(site=site, executed=hours * HOUR), point={"epochs": str(hours)})
        for m, site, hours in _SITES
        for n in range(3)
    ]
    assert only(findings(*jobs), "Compute took").endswith("(but the jobs differ in epochs).")


def test_warm_caches():
    first = [good_job(n, site="A", fetched=2000.0) for n in range(3)]
    later = [good_job(3 + n, start=T0 + 3000, site="A", fetched=500.0) for n in range(3)]
    assert only(findings(*first, *later), "caches") == (
        "The first transfers to A took 33 min (median), later transfers 8 min 20 s: warm caches make a difference."
    )


def test_likely_transfer_time_limit():
    jobs = [good_job(n, fetched=3000.0) for n in range(5)] + [stalled_job(5 + n, hours=1.1) for n in range(3)]
    assert "a time limit between the two is likely" in only(findings(*jobs), "No complete transfer")
    assert not [text for text in findings(*jobs, good_job(9, fetched=5000.0)) if "a time limit between" in text]
    assert not [text for text in findings(*jobs[5:]) if "a time limit between" in text], (
        "no complete transfer was nearly as long"
    )


def test_no_time_limit_from_averages():
    """Of two transfers that took 2.2 h in total, one may have failed after 30 minutes."""
    lost = execution(Outcome.FAILED, fetched=1.1 * HOUR, executed=0, category=FailureCategory.TRANSFER)
    twice = [job(5 + n, lost, lost, execution(start=T0 + 3 * HOUR)) for n in range(6)]
    complete = [good_job(n, fetched=3000.0) for n in range(5)]
    assert [text for text in findings(*complete, *twice) if "a time limit between" in text], (
        "a log has the duration of each"
    )
    assert not [text for text in findings(*complete, *twice, kind="table") if "a time limit between" in text]
    once = [stalled_job(20 + n, hours=1.2) for n in range(3)]
    assert only(findings(*complete, *twice, *once, kind="table"), "a time limit between") == (
        "No complete transfer took longer than 50 min, and no failed transfer with a known duration (except those that "
        "failed within a minute) took less than 1 h 12 min: a time limit between the two is likely."
    )


def test_job_held_by_user():
    held = job(0, execution(Outcome.HELD, category=FailureCategory.USER), reason="via condor_hold")
    assert only(findings(held, good_job(1)), "did not succeed").startswith(
        "1 of 2 jobs did not succeed: held or removed by a user."
    )


def test_unchecked_outputs():
    assert findings(good_job(0), job(1, execution(), checked=None), job(2, execution(), checked=False))[-1] == (
        "The outputs of 2 of the 3 succeeded jobs were not checked: they exited with 0, but may be wrong."
    )


def test_unfinished_jobs():
    queued = JobRecord("7.1", (), Outcome.RUNNING)
    texts = findings(job(0, execution(Outcome.RUNNING)), queued, good_job(2))
    assert "2 of 3 jobs have not ended (1 on a slot); 4 h 10 min of slot time are in progress." in texts


def test_unreadable_entries():
    assert "2 entries could not be read, so this report may be incomplete." in findings(good_job(0), skipped=2)


def test_queue_wait():
    waited = [job(n, execution(), submitted_at=T0 - 5 * HOUR) for n in range(4)]
    assert "Half of the jobs waited 5 h or longer for their first slot; the longest wait was 5 h." in findings(*waited)


def test_empty_history():
    assert findings() == []
