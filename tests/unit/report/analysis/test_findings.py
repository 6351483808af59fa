"""Sentences: what they say of histories in which something stands out, and that they are silent where nothing does."""

from __future__ import annotations

import pytest

from packtrain.report.analysis.findings import find_insights
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


def stay(outcome=Outcome.SUCCEEDED, *, start=T0, fetched=600.0, executed=4 * HOUR, **more):
    middle = start + fetched
    spans = (PhaseSpan(Phase.TRANSFER_IN, start, middle), PhaseSpan(Phase.EXECUTE, middle, middle + executed))
    return ExecutionRecord(1, tuple(span for span in spans if span.duration_s), outcome, **more)


def job(number, *attempts, checked=True, **more):
    last = attempts[-1]
    more.setdefault("outcome", last.outcome)
    return JobRecord(
        f"7.{number}", attempts, ended_at=last.end, outputs_checked=checked, category=last.category, **more
    )


def good(number, start=T0, **more):
    return job(number, stay(start=start, **more))


def stalled(number, *, start=T0, hours=6.0, **more):
    """Succeeds after one long transfer that came to nothing."""
    lost = stay(
        Outcome.FAILED, start=start, fetched=hours * HOUR, executed=0, category=FailureCategory.TRANSFER, **more
    )
    return job(number, lost, stay(start=start + hours * HOUR, **more))


def told(*jobs, kind="log", absolute=True, skipped=0):
    history = JobHistory("made up", kind, jobs, has_timestamps=absolute, n_skipped=skipped)
    return [finding.text for finding in find_insights(history, compute_stats(history))]


def one(texts, words):
    (found,) = [text for text in texts if words in text]
    return found


def test_a_week_without_trouble():
    assert told(*(good(n, site="A") for n in range(20))) == [
        "Of 83.3 h of slots, 96% were useful compute and 4.0% the one transfer each job needs."
    ]


def test_the_largest_loss_comes_first_with_what_those_jobs_share():
    fine = [good(n, site="A") for n in range(30)]
    texts = told(*fine, *(stalled(30 + n, site="B", hours=20 if n < 4 else 0.1) for n in range(12)))
    assert texts[0] == (
        "32% of the wallclock (80.8 h) went to transfers that were thrown away; 4 of the 12 jobs concerned account "
        "for 80% of that, all of them at B."
    )


@pytest.mark.parametrize(
    ("trait", "others", "words"),
    [
        ({"machine": "node7"}, {"machine": "node1"}, "both of them on node7"),
        ({"start": T0 + 5 * HOUR}, {}, "both of them begun between "),
        ({"moves": (InputTransfer(T0, 9.0, source="slow.cache", complete=False),)}, {}, "both of them from slow.cache"),
    ],
)
def test_what_two_jobs_share_and_others_do_not(trait, others, words):
    texts = told(
        *(good(n, site="A", **others) for n in range(6)), *(stalled(6 + n, site="A", **trait) for n in range(2))
    )
    assert words in one(texts, "thrown away")


def test_a_value_of_the_matrix():
    slow = [
        job(n, stay(Outcome.FAILED, category=FailureCategory.PROGRAM), point={"lr": "10"}, reason="nan")
        for n in range(3)
    ]
    fine = [job(3 + n, stay(), point={"lr": "0.1"}) for n in range(5)]
    text = one(told(*slow, *fine), "did not succeed")
    assert text.startswith("3 of 8 jobs did not succeed: in the program; all of them with lr 10.")
    assert text.endswith("The most frequent reason: “nan” (3 jobs).")


def test_a_site_that_all_jobs_were_at_is_no_trait():
    texts = told(*(good(n, site="A") for n in range(6)), *(stalled(6 + n, site="A") for n in range(2)))
    assert one(texts, "thrown away").endswith("went to transfers that were thrown away, by 2 jobs.")


def test_failures_that_nobody_tried_again():
    quick = stay(Outcome.HELD, fetched=1, executed=0, category=FailureCategory.TRANSFER)
    texts = told(*(job(n, quick, reason="404") for n in range(4)), *(good(4 + n) for n in range(4)))
    assert one(texts, "did not succeed").endswith(
        "4 that failed in transfer did so within 1 s and were not tried again."
    )


def test_lost_compute_and_checkpoints():
    limit = job(0, stay(Outcome.TIME_LIMIT, executed=20 * HOUR, category=FailureCategory.TIME_LIMIT))
    text = "was compute lost to the time limit, all of it by job 7.0"
    assert f"{text}; no attempt left a checkpoint that another one went on from." in one(told(limit, good(1)), text)
    assert one(told(limit, good(1), kind="table"), text).endswith(f"{text}."), "a table does not tell"


def test_a_long_tail_and_its_reason():
    jobs = [good(n) for n in range(16)] + [stalled(16 + n, hours=12) for n in range(4)]
    text = one(told(*jobs), "one in twenty")
    assert text.startswith("Half of the jobs were done 4 h 10 min after their first match")
    assert text.endswith("all 4 that took more than twice the median lost most of it to transfers thrown away.")
    failed = job(20, stay(Outcome.FAILED, category=FailureCategory.PROGRAM))
    assert one(told(*jobs, failed), "one in twenty").startswith("Half of the jobs that succeeded were done 4 h 10 min")


def test_sites_that_differ():
    quick, slow = ([good(n + m, site=site, executed=hours * HOUR) for n in range(3)] for m, site, hours in _SITES)
    assert one(told(*quick, *slow), "Computing took") == (
        "Computing took 2.5 times as long at SLOW (median 5 h) as at QUICK (2 h)."
    )


_SITES = ((0, "QUICK", 2), (3, "SLOW", 5))


def test_sites_whose_jobs_differ_in_other_ways():
    jobs = [
        job(n + m, stay(site=site, executed=hours * HOUR), point={"epochs": str(hours)})
        for m, site, hours in _SITES
        for n in range(3)
    ]
    assert one(told(*jobs), "Computing took").endswith("(but jobs differ in epochs).")


def test_warm_caches():
    first = [good(n, site="A", fetched=2000.0) for n in range(3)]
    later = [good(3 + n, start=T0 + 3000, site="A", fetched=500.0) for n in range(3)]
    assert one(told(*first, *later), "caches") == (
        "Transfers after the first ones to A took 8 min 20 s at the median, the first ones 33 min: "
        "caches that hold the data already make a difference."
    )


def test_a_timer_that_nobody_tells_of():
    jobs = [good(n, fetched=3000.0) for n in range(5)] + [stalled(5 + n, hours=1.1) for n in range(3)]
    assert "a time limit between the two is likely" in one(told(*jobs), "No transfer that came whole")
    assert not [text for text in told(*jobs, good(9, fetched=5000.0)) if "a time limit between" in text]
    assert not [text for text in told(*jobs[5:]) if "a time limit between" in text], "nothing near it came"


def test_a_table_tells_no_timer_by_averages():
    """Of two transfers in 2.2 h one may have been cut after 30 minutes."""
    lost = stay(Outcome.FAILED, fetched=1.1 * HOUR, executed=0, category=FailureCategory.TRANSFER)
    twice = [job(5 + n, lost, lost, stay(start=T0 + 3 * HOUR)) for n in range(6)]
    came = [good(n, fetched=3000.0) for n in range(5)]
    assert [text for text in told(*came, *twice) if "a time limit between" in text], "a log tells each"
    assert not [text for text in told(*came, *twice, kind="table") if "a time limit between" in text]
    once = [stalled(20 + n, hours=1.2) for n in range(3)]
    assert one(told(*came, *twice, *once, kind="table"), "a time limit between") == (
        "No transfer that came whole took longer than 50 min, and no transfer that came to nothing and whose time is "
        "told by itself (other than within a minute) took less than 1 h 12 min: a time limit between the two is likely."
    )


def test_what_a_person_held_was_not_removed():
    held = job(0, stay(Outcome.HELD, category=FailureCategory.USER), reason="via condor_hold")
    assert one(told(held, good(1)), "did not succeed").startswith("1 of 2 jobs did not succeed: by a person.")


def test_outputs_that_nobody_checked():
    assert told(good(0), job(1, stay(), checked=None), job(2, stay(), checked=False))[-1] == (
        "Nobody checked the outputs of 2 of the 3 jobs that ended with 0: whether they are right cannot be told."
    )


def test_jobs_that_have_not_ended():
    queued = JobRecord("7.1", (), Outcome.RUNNING)
    texts = told(job(0, stay(Outcome.RUNNING)), queued, good(2))
    assert "2 of 3 jobs have not ended (1 on a slot); 4.2 h of slots are under way." in texts


def test_what_could_not_be_read_is_said():
    assert "2 entries could not be read, so something may be missing here." in told(good(0), skipped=2)


def test_waiting_for_slots():
    waited = [job(n, stay(), submitted_at=T0 - 5 * HOUR) for n in range(4)]
    assert "Half of the jobs waited 5 h or longer for their first slot; the longest wait was 5 h." in told(*waited)


def test_nothing_at_all():
    assert told() == []
