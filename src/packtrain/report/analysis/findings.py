"""What a person should know first, in sentences: only what is true, ranked by how much of it all it concerns. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from packtrain.report.analysis.by_site import SiteSummary
from packtrain.report.analysis.common_factors import find_common_factor
from packtrain.report.analysis.distribution import Distribution
from packtrain.report.analysis.input_transfers import input_transfers_of
from packtrain.report.analysis.statistics import NOT_FAILED_OUTCOMES, FailureSummary, JobSummary, ReportStats
from packtrain.report.analysis.time_accounting import (
    LOST_COMPUTE,
    UNFINISHED_OUTCOMES,
    USEFUL,
    WASTED,
    JobTimeUse,
    TimeUse,
)
from packtrain.report.history import ExecutionRecord, FailureCategory, InputTransfer, JobHistory, Outcome
from packtrain.report.number_format import format_duration_coarse, format_hours, format_percent

_MIN_NOTABLE_S = 60.0
_MIN_FRACTION = {TimeUse.OVERHEAD: 0.05, TimeUse.CHECKPOINT_RESTART: 0.05}  # of the wallclock; others from 1% on
_MAJORITY_OF_LOSS = 0.8  # how much of a loss "account for 80%" is
_MIN_TAIL_RATIO = 2.0  # p95 / median from which on there is one
_MIN_SITE_RATIO = 1.3  # medians of sites from which on they differ
_MAX_WARM_RATIO = 0.7  # later transfers take so much of the time of first ones
_MAX_CONCENTRATED_FRACTION = 0.6  # of the jobs have most of a loss: it is spread among all
_MAX_JOBS_TO_LIST = 5  # jobs of which all are meant
_MIN_VALUES = 3  # values that make a median worth telling
_IMMEDIATE_S = 60.0
_MAX_TIMEOUT_GAP_RATIO = (
    1.5  # the longest transfer that came, and the shortest that did not: a limit may lie between them
)
_MAX_REASON_LENGTH = 120

_TIME_USE_TEXT = {
    TimeUse.WASTED_TRANSFER: "went to transfers that were thrown away",
    TimeUse.LOST_TO_EVICTION: "was compute lost to evictions",
    TimeUse.LOST_TO_TIME_LIMIT: "was compute lost to the time limit",
    TimeUse.LOST_TO_WRONG_OUTPUT: "was compute whose output was wrong",
    TimeUse.LOST_TO_FAILURE: "was compute lost to failures",
    TimeUse.CHECKPOINT_RESTART: "went to checkpoints and restarts",
    TimeUse.OVERHEAD: "was overhead: slots were taken while neither data moved nor the program ran",
}
_CATEGORY_TEXT = {
    FailureCategory.TRANSFER: "in transfer",
    FailureCategory.WRONG_OUTPUT: "by wrong output",
    FailureCategory.TIME_LIMIT: "at the time limit",
    FailureCategory.EVICTION: "by eviction",
    FailureCategory.PROGRAM: "in the program",
    FailureCategory.NODE: "by the machine",
    FailureCategory.POOL: "by the pool",
    FailureCategory.USER: "by a person",
    FailureCategory.UNKNOWN: "for reasons unknown",
}


@dataclass(frozen=True)
class Insight:
    text: str
    weight: float  # 0 to 1: about how much of the whole it concerns


def find_insights(history: JobHistory, stats: ReportStats) -> tuple[Insight, ...]:
    """The most important first."""
    tellers: tuple[Callable[[JobHistory, ReportStats], Iterator[Insight]], ...] = (
        _useful_time, _wasted_time, _failures, _long_tail, _transfer_time_limit, _slow_sites, _slow_transfers, _warm_caches,
        _queue_wait, _unchecked_outputs, _unfinished_jobs, _unreadable_entries,
    )  # fmt: skip
    found = [finding for tell in tellers for finding in tell(history, stats)]
    return tuple(sorted(found, key=lambda finding: -finding.weight))


def _useful_time(history: JobHistory, stats: ReportStats) -> Iterator[Insight]:
    if stats.wallclock_s < 1 or not stats.ended_jobs:
        return
    parts = {share: stats.fraction_of_wallclock(share) or 0.0 for share in USEFUL}
    transfer = f" and {format_percent(parts[TimeUse.USEFUL_TRANSFER])} the one transfer each job needs"
    text = f"Of {format_hours(stats.wallclock_s)} of slots, {format_percent(parts[TimeUse.USEFUL_COMPUTE])} were useful compute"
    lost = sum(stats.time_use_s.get(share, 0.0) for share in WASTED)
    rest = f"; {format_hours(lost)} were of no use" if lost >= _MIN_NOTABLE_S else ""
    yield Insight(
        f"{text}{transfer if parts[TimeUse.USEFUL_TRANSFER] else ''}{rest}.", 0.25
    )  # a large loss comes before it


# Where the time went


def _wasted_time(history: JobHistory, stats: ReportStats) -> Iterator[Insight]:
    for share, subject in _TIME_USE_TEXT.items():
        seconds, part = stats.time_use_s.get(share, 0.0), stats.fraction_of_wallclock(share) or 0.0
        if seconds >= _MIN_NOTABLE_S and part >= _MIN_FRACTION.get(share, 0.01):
            text = f"{format_percent(part)} of the wallclock ({format_hours(seconds)}) {subject}"
            spoilt = f"{_concentration(share, stats.job_time_use)}{_no_checkpoint_note(share, history)}"
            yield Insight(f"{text}{spoilt}.", part)


def _concentration(use: TimeUse, jobs: Sequence[JobTimeUse]) -> str:
    """; 13 of the 37 jobs concerned account for 80% of that, all of them at SITE"""
    lost = sorted(((account.time_use_us.get(use, 0), account) for account in jobs), key=lambda one: -one[0])
    concerned = [account for micros, account in lost if micros]
    if len(concerned) == 1:
        return f", all of it by job {concerned[0].job.id}"
    heavy = _largest_losers([one for one in lost if one[0]])
    if len(concerned) <= _MAX_JOBS_TO_LIST or len(heavy) > _MAX_CONCENTRATED_FRACTION * len(concerned):
        heavy = concerned
    chosen = {id(account) for account in heavy}
    trait = find_common_factor(heavy, [account for account in jobs if id(account) not in chosen], [use])
    shared = f", {trait.message}" if trait else ""
    if len(heavy) == len(concerned):
        return f", by {_count_jobs(len(concerned))}{shared}"
    verb = "accounts" if len(heavy) == 1 else "account"
    return f"; {len(heavy):,} of the {_count_jobs(len(concerned))} concerned {verb} for 80% of that{shared}"


def _largest_losers(losses: Sequence[tuple[int, JobTimeUse]]) -> list[JobTimeUse]:
    """The fewest that account for most of it."""
    whole = sum(micros for micros, _ in losses)
    found, reached = [], 0
    for micros, account in losses:
        if reached >= _MAJORITY_OF_LOSS * whole:
            break
        found.append(account)
        reached += micros
    return found


def _no_checkpoint_note(use: TimeUse, history: JobHistory) -> str:
    """Of tables nobody knows."""
    if use not in (TimeUse.LOST_TO_EVICTION, TimeUse.LOST_TO_TIME_LIMIT) or history.kind == "table":
        return ""
    kept = any(
        attempt.retained_compute_s for attempt in history.executions() if attempt.outcome is not Outcome.SUCCEEDED
    )
    return "" if kept else "; no attempt left a checkpoint that another one went on from"


# How jobs ended


def _failures(history: JobHistory, stats: ReportStats) -> Iterator[Insight]:
    if not stats.failed_jobs:
        return
    text = f"{stats.failed_jobs:,} of {_count_jobs(stats.ended_jobs)} did not succeed: {_list_categories(stats.job_failures)}{_common_factor_note(stats)}."
    more = f"{_top_reason(stats.job_failures)}{_not_retried_note(stats)}"
    yield Insight(f"{text}{more}", stats.failed_jobs / stats.ended_jobs)


def _list_categories(failures: Sequence[FailureSummary]) -> str:
    """16 in transfer (76%), 3 by wrong output (14%), …"""
    if len(failures) == 1:
        return _CATEGORY_TEXT[failures[0].category]
    return ", ".join(
        f"{one.count:,} {_CATEGORY_TEXT[one.category]} ({format_percent(one.fraction)})" for one in failures
    )


def _common_factor_note(stats: ReportStats) -> str:
    failed = [account for account in stats.job_time_use if account.job.outcome not in NOT_FAILED_OUTCOMES]
    others = [account for account in stats.job_time_use if account.job.outcome in NOT_FAILED_OUTCOMES]
    trait = find_common_factor(failed, others, TimeUse)
    return f"; {trait.message}" if trait else ""


def _top_reason(failures: Sequence[FailureSummary]) -> str:
    top = max(failures, key=lambda one: one.reason_count)
    if not top.reason or top.reason_count == 1 < sum(one.count for one in failures):
        return ""
    reason = " ".join(top.reason.split())
    short = reason if len(reason) <= _MAX_REASON_LENGTH else f"{reason[: _MAX_REASON_LENGTH - 1]}…"
    often = f" ({_count_jobs(top.reason_count)})" if sum(one.count for one in failures) > 1 else ""
    return f" {'The most frequent reason' if often else 'The reason'}: “{short}”{often}."


def _not_retried_note(stats: ReportStats) -> str:
    """What ended at once costs nothing to try again."""
    quick = [row for row in stats.job_summaries if _failed_immediately(row)]
    if len(quick) < 2:
        return ""
    longest = format_duration_coarse(max(1.0, max(row.slot_s for row in quick)))
    return f" {len(quick):,} that failed in transfer did so within {longest} and were not tried again."


def _failed_immediately(row: JobSummary) -> bool:
    return (
        row.category is FailureCategory.TRANSFER
        and row.outcome not in NOT_FAILED_OUTCOMES
        and row.executions == 1
        and row.slot_s < _IMMEDIATE_S
    )


def _unchecked_outputs(history: JobHistory, stats: ReportStats) -> Iterator[Insight]:
    if not stats.unchecked_jobs:
        return
    count, whole = stats.unchecked_jobs, stats.unchecked_jobs == stats.succeeded_jobs
    which = (
        f"the {'job' if count == 1 else _count_jobs(count)}"
        if whole
        else f"{count:,} of the {stats.succeeded_jobs:,} jobs"
    )
    text = f"Nobody checked the outputs of {which} that ended with 0: whether they are right cannot be told."
    yield Insight(text, 0.15 * stats.unchecked_jobs / stats.jobs)


def _unfinished_jobs(history: JobHistory, stats: ReportStats) -> Iterator[Insight]:
    count = stats.jobs - stats.ended_jobs
    if not count:
        return
    running = sum(job.outcome in UNFINISHED_OUTCOMES and _is_on_slot(job.executions) for job in history.jobs)
    seconds = stats.time_use_s.get(TimeUse.IN_PROGRESS, 0.0)
    spent = f"; {format_hours(seconds)} of slots are under way" if seconds >= _MIN_NOTABLE_S else ""
    verb = "has" if count == 1 else "have"
    text = f"{count:,} of {_count_jobs(stats.jobs)} {verb} not ended ({running:,} on a slot){spent}."
    yield Insight(text, count / stats.jobs)


def _is_on_slot(executions: Sequence[ExecutionRecord]) -> bool:
    return any(attempt.outcome is Outcome.RUNNING for attempt in executions)


def _unreadable_entries(history: JobHistory, stats: ReportStats) -> Iterator[Insight]:
    if history.n_skipped:
        what = "entry" if history.n_skipped == 1 else "entries"
        yield Insight(f"{history.n_skipped:,} {what} could not be read, so something may be missing here.", 0.05)


# How long it took


def _long_tail(history: JobHistory, stats: ReportStats) -> Iterator[Insight]:
    spread = stats.completion_s
    if (
        not spread
        or spread.count < 10
        or spread.median < _MIN_NOTABLE_S
        or (stats.p95_over_median or 0.0) < _MIN_TAIL_RATIO
    ):
        return
    which = "jobs" if spread.count == stats.jobs else "jobs that succeeded"
    text = (
        f"Half of the {which} were done {format_duration_coarse(spread.median)} after their first match, but one in twenty took "
        f"more than {format_duration_coarse(spread.p95)} ({stats.p95_over_median:.1f} times as long), "
        f"the slowest {format_duration_coarse(spread.maximum)}"
    )
    yield Insight(f"{text}{_slow_job_cause(stats, spread)}.", 0.2)


def _slow_job_cause(stats: ReportStats, distribution: Distribution) -> str:
    """What most of the slow ones lost most of their extra time to."""
    done = [row for row in stats.job_summaries if row.completion_s is not None]
    slow = [row for row in done if (row.completion_s or 0.0) > 2 * distribution.median]
    usual = sorted(row.time_use_s.get(TimeUse.USEFUL_COMPUTE, 0.0) for row in done)[len(done) // 2]
    causes = Counter(_main_delay(row, usual) for row in slow)
    cause, count = causes.most_common(1)[0] if causes else ("", 0)
    if count < 2 or count < len(slow) / 2:
        return ""
    which = f"all {len(slow):,}" if count == len(slow) else f"{count:,} of the {len(slow):,}"
    return f"; {which} that took more than twice the median lost most of it to {cause}"


def _main_delay(row: JobSummary, typical_compute_s: float) -> str:
    shares = row.time_use_s
    extra = {
        "transfers thrown away": shares.get(TimeUse.WASTED_TRANSFER, 0.0),
        "compute that was lost": sum(shares.get(share, 0.0) for share in LOST_COMPUTE),
        "slower computing": shares.get(TimeUse.USEFUL_COMPUTE, 0.0) - typical_compute_s,
        "waiting between attempts": (row.completion_s or 0.0) - row.slot_s,
        "checkpoints and restarts": shares.get(TimeUse.CHECKPOINT_RESTART, 0.0),
        "overhead": shares.get(TimeUse.OVERHEAD, 0.0),
    }
    return max(extra, key=lambda cause: extra[cause])


def _queue_wait(history: JobHistory, stats: ReportStats) -> Iterator[Insight]:
    """For a slot."""
    spread = stats.queue_wait_s
    usual = stats.completion_s.median if stats.completion_s else 0.0
    if not spread or spread.median < _MIN_NOTABLE_S or spread.median < 0.2 * usual:
        return
    text = f"Half of the jobs waited {format_duration_coarse(spread.median)} or longer for their first slot"
    yield Insight(f"{text}; the longest wait was {format_duration_coarse(spread.maximum)}.", 0.12)


# Places


def _slow_sites(history: JobHistory, stats: ReportStats) -> Iterator[Insight]:
    for (fast, best), (slow, worst) in _fastest_and_slowest((site, site.compute_time_s) for site in stats.sites):
        text = (
            f"Computing took {_format_ratio(worst.median / best.median)} as long at {slow} (median "
            f"{format_duration_coarse(worst.median)}) as at {fast} ({format_duration_coarse(best.median)})"
        )
        varied = worst.maximum >= 2 * worst.minimum > 0
        more = (
            f"; at {slow} it varied from {format_duration_coarse(worst.minimum)} to {format_duration_coarse(worst.maximum)}"
            if varied
            else ""
        )
        yield Insight(f"{text}{more}{_parameter_caveat(history)}.", 0.14)


def _parameter_caveat(history: JobHistory) -> str:
    """What may be another reason why some took longer."""
    keys = dict.fromkeys(key for job in history.jobs for key in job.point)
    varied = [key for key in keys if len({job.point.get(key) for job in history.jobs}) > 1]
    return f" (but jobs differ in {', '.join(varied)})" if varied else ""


def _slow_transfers(history: JobHistory, stats: ReportStats) -> Iterator[Insight]:
    for (fast, best), (slow, worst) in _fastest_and_slowest((site, site.transfer_time_s) for site in stats.sites):
        if worst.median >= _MIN_NOTABLE_S:
            text = f"Transfers to {fast} took {format_duration_coarse(best.median)} at the median, those to {slow} "
            yield Insight(
                f"{text}{_format_ratio(worst.median / best.median)} as long ({format_duration_coarse(worst.median)}).",
                0.11,
            )


def _fastest_and_slowest(
    sites: Iterable[tuple[SiteSummary, Distribution | None]],
) -> Iterator[tuple[tuple[str, Distribution], tuple[str, Distribution]]]:
    """The fastest and the slowest by their medians, if there is a difference."""
    known = [(site.site, spread) for site, spread in sites if site.site and spread and spread.count >= _MIN_VALUES]
    ranked = sorted(known, key=lambda one: one[1].median)
    if ranked and 1 <= ranked[0][1].median <= ranked[-1][1].median / _MIN_SITE_RATIO:
        yield ranked[0], ranked[-1]


def _format_ratio(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:,.0f} times"


def _warm_caches(history: JobHistory, stats: ReportStats) -> Iterator[Insight]:
    for place in stats.transfers:
        first, later = place.cold_duration_s, place.warm_duration_s
        if not first or not later or min(first.count, later.count) < _MIN_VALUES or first.median < _MIN_NOTABLE_S:
            continue
        if later.median <= _MAX_WARM_RATIO * first.median:
            where = " from ".join(name for name in (place.site or "an unnamed site", place.source) if name)
            which = "Transfers after the first ones" if history.has_timestamps else "Transfers that a job began again"
            yield Insight(
                f"{which} to {where} took {format_duration_coarse(later.median)} at the median, the first ones "
                f"{format_duration_coarse(first.median)}: caches that hold the data already make a difference.",
                0.1,
            )


def _transfer_time_limit(history: JobHistory, stats: ReportStats) -> Iterator[Insight]:
    """All that ran longer than some time came to nothing: somebody's timer, though nobody says so."""
    moves = [[move for attempt in job.executions for move in input_transfers_of(attempt)] for job in history.jobs]
    broken = sorted(move.duration_s for some in moves for move in _failed_transfers(history, some))
    longest = max((move.duration_s for some in moves for move in some if move.complete), default=0.0)
    if len(broken) < _MIN_VALUES or not longest < broken[0] <= _MAX_TIMEOUT_GAP_RATIO * longest:
        return
    known = " and whose time is told by itself" if history.kind == "table" else ""
    text = (
        f"No transfer that came whole took longer than {format_duration_coarse(longest)}, and no transfer that came to nothing"
        f"{known} (other than within a minute) took less than {format_duration_coarse(broken[0])}: "
        "a time limit between the two is likely"
    )
    yield Insight(f"{text}.", 0.24)


def _failed_transfers(history: JobHistory, transfers: Sequence[InputTransfer]) -> list[InputTransfer]:
    """Those of one job that came to nothing. Of several, a table tells the sum only: each may have been shorter."""
    broken = [move for move in transfers if not move.complete]
    known = history.kind != "table" or len(broken) == 1
    return [move for move in broken if move.duration_s >= _IMMEDIATE_S] if known else []


def _count_jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"
