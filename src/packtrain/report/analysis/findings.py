"""Finds the facts that matter most in a report and states each in one sentence, ordered by importance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from packtrain.formatting import format_duration, format_percent, format_slot_hours, pluralize
from packtrain.report.analysis.by_site import SiteSummary
from packtrain.report.analysis.common_factors import find_common_factor
from packtrain.report.analysis.distribution import Distribution
from packtrain.report.analysis.input_transfers import input_transfers_of
from packtrain.report.analysis.statistics import NOT_FAILED_OUTCOMES, FailureSummary, JobSummary, ReportStats
from packtrain.report.analysis.time_accounting import (
    LOST_COMPUTE,
    UNFINISHED_OUTCOMES,
    WASTED,
    JobTimeUse,
    TimeUse,
)
from packtrain.report.history import ExecutionRecord, FailureCategory, InputTransfer, JobHistory, Outcome

_MIN_NOTABLE_S = 60.0
_MIN_FRACTION = {TimeUse.OVERHEAD: 0.05, TimeUse.CHECKPOINT_RESTART: 0.05}  # of the wallclock; 0.01 for other time uses
_MIN_STATE_FRACTION = 0.01  # of the wallclock
_MAJORITY_OF_LOSS = 0.8  # jobs with this fraction of a loss "account for 80%" of it
_MIN_TAIL_RATIO = 2.0  # p95 / median of completion times with a long tail
_MIN_SITE_RATIO = 1.3  # between the medians of sites that differ
_MAX_WARM_RATIO = 0.7  # of the medians of warm and cold transfers
_MAX_CONCENTRATED_FRACTION = 0.6  # of the jobs; if more jobs have most of a loss, it is spread among all
_MAX_JOBS_TO_LIST = 5  # up to this number, all affected jobs are counted
_MIN_VALUES = 3  # needed for a meaningful median
_IMMEDIATE_S = 60.0  # a failure within this time was immediate
_MAX_TIMEOUT_GAP_RATIO = 1.5  # shortest failed / longest complete transfer, if a time limit lies between them
_MAX_NODES_TO_LIST = 3

_TIME_USE_TEXT = {
    TimeUse.WASTED_TRANSFER: "was wasted on transfers",
    TimeUse.LOST_TO_EVICTION: "was compute lost to evictions",
    TimeUse.LOST_TO_TIME_LIMIT: "was compute lost to the time limit",
    TimeUse.LOST_TO_WRONG_OUTPUT: "was compute with wrong output",
    TimeUse.LOST_TO_FAILURE: "was compute lost to failures",
    TimeUse.CHECKPOINT_RESTART: "went to checkpoints and restarts",
    TimeUse.OVERHEAD: "was overhead: slots were claimed, but neither transferred data nor ran the program",
}
_CATEGORY_TEXT = {
    FailureCategory.TRANSFER: "in transfer",
    FailureCategory.WRONG_OUTPUT: "with wrong output",
    FailureCategory.TIME_LIMIT: "at the time limit",
    FailureCategory.EVICTION: "by eviction",
    FailureCategory.PROGRAM: "in the program",
    FailureCategory.NODE: "because of the node",
    FailureCategory.POOL: "because of the pool",
    FailureCategory.USER: "held or removed by a user",
    FailureCategory.POLICY: "by a condition of the submit file",
    FailureCategory.UNKNOWN: "for unknown reasons",
}


@dataclass(frozen=True)
class Finding:
    """One sentence about a report."""

    text: str
    weight: float  # importance from 0 to 1: about the fraction of the time or jobs it concerns


def collect_findings(history: JobHistory, stats: ReportStats) -> tuple[Finding, ...]:
    """Return all findings, the most important first."""
    finders: tuple[Callable[[JobHistory, ReportStats], Iterator[Finding]], ...] = (
        _useful_time, _wasted_time, _wasted_by_state, _low_efficiency, _failures, _lost_nodes, _long_tail,
        _transfer_time_limit, _slow_sites,
        _slow_transfers, _warm_caches, _queue_wait, _unchecked_outputs, _unfinished_jobs, _unreadable_entries,
    )  # fmt: skip
    findings = [finding for find in finders for finding in find(history, stats)]
    return tuple(sorted(findings, key=lambda finding: -finding.weight))


def _useful_time(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    if stats.wallclock_s < 1 or not stats.ended_jobs:
        return
    compute = stats.fraction_of_wallclock(TimeUse.USEFUL_COMPUTE) or 0.0
    transfer = stats.fraction_of_wallclock(TimeUse.USEFUL_TRANSFER) or 0.0
    text = f"Of {format_slot_hours(stats.wallclock_s)} of slot time, {format_percent(compute)} was useful compute"
    if transfer:
        text += f" and {format_percent(transfer)} was the one transfer that each job needs"
    wasted_s = sum(stats.time_use_s.get(use, 0.0) for use in WASTED)
    if wasted_s >= _MIN_NOTABLE_S:
        text += f"; {format_slot_hours(wasted_s)} were wasted"
    yield Finding(f"{text}.", 0.25)  # a large loss comes before it


# Slot time


def _wasted_time(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    for use, predicate in _TIME_USE_TEXT.items():
        seconds, fraction = stats.time_use_s.get(use, 0.0), stats.fraction_of_wallclock(use) or 0.0
        if seconds >= _MIN_NOTABLE_S and fraction >= _MIN_FRACTION.get(use, 0.01):
            text = f"{format_percent(fraction)} of the slot time ({format_slot_hours(seconds)}) {predicate}"
            details = f"{_concentration(use, stats.job_time_use)}{_no_checkpoint_note(use, history)}"
            yield Finding(f"{text}{details}.", fraction)


def _concentration(use: TimeUse, jobs: Sequence[JobTimeUse]) -> str:
    """Return which jobs caused a loss: `; 13 of the 37 affected jobs account for 80% of it, all of them at SITE`."""
    losses = sorted(((job_time.time_use_us.get(use, 0), job_time) for job_time in jobs), key=lambda item: -item[0])
    affected = [job_time for lost_us, job_time in losses if lost_us]
    if len(affected) == 1:
        return f", all of it by job {affected[0].job.id}"
    largest = _largest_losers([loss for loss in losses if loss[0]])
    if len(affected) <= _MAX_JOBS_TO_LIST or len(largest) > _MAX_CONCENTRATED_FRACTION * len(affected):
        largest = affected
    selected = {id(job_time) for job_time in largest}
    factor = find_common_factor(largest, [job_time for job_time in jobs if id(job_time) not in selected], [use])
    shared = f", {factor.message}" if factor else ""
    if len(largest) == len(affected):
        return f", by {_count_jobs(len(affected))}{shared}"
    verb = "accounts" if len(largest) == 1 else "account"
    return f"; {len(largest):,} of the {len(affected):,} affected jobs {verb} for 80% of it{shared}"


def _largest_losers(losses: Sequence[tuple[int, JobTimeUse]]) -> list[JobTimeUse]:
    """Return the smallest number of jobs that account for most of a loss."""
    total_us = sum(lost_us for lost_us, _ in losses)
    largest, sum_us = [], 0
    for lost_us, job_time in losses:
        if sum_us >= _MAJORITY_OF_LOSS * total_us:
            break
        largest.append(job_time)
        sum_us += lost_us
    return largest


def _no_checkpoint_note(use: TimeUse, history: JobHistory) -> str:
    """Return a note if no checkpoint reduced the loss. Tables do not record checkpoints."""
    if use not in (TimeUse.LOST_TO_EVICTION, TimeUse.LOST_TO_TIME_LIMIT) or history.kind == "table":
        return ""
    resumed = any(
        execution.retained_compute_s for execution in history.executions() if execution.outcome is not Outcome.SUCCEEDED
    )
    return "" if resumed else "; no execution was resumed from a checkpoint"


def _wasted_by_state(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    """Report which states of the pool, such as TIMEOUT or PREEMPTED, the wasted time belongs to."""
    wasted = [state for state in stats.states if state.wasted_s >= _MIN_STATE_FRACTION * stats.wallclock_s]
    wasted_s = sum(state.wasted_s for state in wasted)
    if wasted_s < _MIN_NOTABLE_S:
        return
    parts = [
        f"{state.state} {format_slot_hours(state.wasted_s)} ({pluralize(state.executions, 'execution')})"
        for state in wasted
    ]
    text = f"Wasted slot time by the state in which executions ended: {', '.join(parts)}."
    yield Finding(text, 0.9 * wasted_s / stats.wallclock_s)


def _low_efficiency(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    """Report requests that are much larger than what was used: smaller ones start sooner."""
    efficiency = stats.efficiency
    if not efficiency or stats.wallclock_s < _MIN_NOTABLE_S:
        return
    uses = {
        "CPU time": efficiency.cpu, "memory": efficiency.memory, "time limit": efficiency.time_limit,
    }  # fmt: skip
    low = [f"{format_percent(used)} of the {name}" for name, used in uses.items() if used is not None and used < 0.5]
    if low:
        listed = f"{', '.join(low[:-1])} and {low[-1]}" if len(low) > 1 else low[0]
        text = f"The executions used {listed} that they requested; smaller requests start sooner."
        yield Finding(text, 0.13)


# Outcomes


def _failures(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    if not stats.failed_jobs:
        return
    text = f"{stats.failed_jobs:,} of {_count_jobs(stats.ended_jobs)} did not succeed: "
    text += f"{_list_categories(stats.job_failures)}{_common_factor_note(stats)}."
    text += f"{_top_reason(stats.job_failures)}{_not_retried_note(stats)}"
    yield Finding(text, stats.failed_jobs / stats.ended_jobs)


def _list_categories(failures: Sequence[FailureSummary]) -> str:
    """Return the counts by category: 16 in transfer (76%), 3 with wrong output (14%), …"""
    if len(failures) == 1:
        return _CATEGORY_TEXT[failures[0].category]
    return ", ".join(
        f"{failure.count:,} {_CATEGORY_TEXT[failure.category]} ({format_percent(failure.fraction)})"
        for failure in failures
    )


def _common_factor_note(stats: ReportStats) -> str:
    failed = [job_time for job_time in stats.job_time_use if job_time.job.outcome not in NOT_FAILED_OUTCOMES]
    others = [job_time for job_time in stats.job_time_use if job_time.job.outcome in NOT_FAILED_OUTCOMES]
    factor = find_common_factor(failed, others, TimeUse)
    return f"; {factor.message}" if factor else ""


def _top_reason(failures: Sequence[FailureSummary]) -> str:
    top, n_failures = max(failures, key=lambda failure: failure.reason_count), sum(item.count for item in failures)
    if not top.reason or top.reason_count == 1 < n_failures:
        return ""
    reason = " ".join(top.reason.split())
    if n_failures == 1:
        return f" The reason: “{reason}”."
    return f" The most frequent reason: “{reason}” ({_count_jobs(top.reason_count)})."


def _not_retried_note(stats: ReportStats) -> str:
    """Return a note on immediate failures without a retry, which would cost almost nothing."""
    immediate = [row for row in stats.job_summaries if _failed_immediately(row)]
    if len(immediate) < 2:
        return ""
    slowest = format_duration(max(1.0, max(row.slot_s for row in immediate)))
    return f" {len(immediate):,} jobs failed in transfer within {slowest} and were not retried."


def _failed_immediately(row: JobSummary) -> bool:
    return (
        row.category is FailureCategory.TRANSFER
        and row.outcome not in NOT_FAILED_OUTCOMES
        and row.executions == 1
        and row.slot_s < _IMMEDIATE_S
    )


def _lost_nodes(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    """Report executions whose machine the pool lost: it crashed, or its network failed."""
    lost = [e for e in history.executions() if e.outcome is Outcome.LOST and e.category is FailureCategory.POOL]
    if not lost:
        return
    lost_s = sum(span.duration_s for execution in lost for span in execution.spans)
    nodes = Counter(execution.node or "an unknown machine" for execution in lost)
    names = ", ".join(name for name, _ in nodes.most_common(_MAX_NODES_TO_LIST))
    more = f" and {len(nodes) - _MAX_NODES_TO_LIST:,} more" if len(nodes) > _MAX_NODES_TO_LIST else ""
    executions = "1 execution" if len(lost) == 1 else f"{len(lost):,} executions"
    text = f"The pool lost contact with the machine of {executions} ({names}{more}) and gave them up"
    text = text if len(lost) > 1 else text.replace("gave them up", "gave it up")
    share = lost_s / stats.wallclock_s if stats.wallclock_s else 0.0
    yield Finding(f"{text}: {format_slot_hours(lost_s)} of slot time.", max(share, 0.05))


def _unchecked_outputs(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    if not stats.unchecked_jobs:
        return
    count = stats.unchecked_jobs
    if count < stats.succeeded_jobs:
        jobs = f"{count:,} of the {stats.succeeded_jobs:,} succeeded jobs"
    else:
        jobs = "the succeeded job" if count == 1 else f"the {count:,} succeeded jobs"
    text = f"The outputs of {jobs} were not checked: they exited with 0, but may be wrong."
    yield Finding(text, 0.15 * stats.unchecked_jobs / stats.jobs)


def _unfinished_jobs(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    count = stats.jobs - stats.ended_jobs
    if not count:
        return
    running = sum(job.outcome in UNFINISHED_OUTCOMES and _is_on_slot(job.executions) for job in history.jobs)
    seconds = stats.time_use_s.get(TimeUse.IN_PROGRESS, 0.0)
    in_progress = f"; {format_slot_hours(seconds)} of slot time are in progress" if seconds >= _MIN_NOTABLE_S else ""
    verb = "has" if count == 1 else "have"
    text = f"{count:,} of {_count_jobs(stats.jobs)} {verb} not ended ({running:,} on a slot){in_progress}."
    yield Finding(text, count / stats.jobs)


def _is_on_slot(executions: Sequence[ExecutionRecord]) -> bool:
    return any(execution.outcome is Outcome.RUNNING for execution in executions)


def _unreadable_entries(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    if history.n_skipped:
        entries = "1 entry" if history.n_skipped == 1 else f"{history.n_skipped:,} entries"
        yield Finding(f"{entries} could not be read, so this report may be incomplete.", 0.05)


# Durations


def _long_tail(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    completion = stats.completion_s
    if not completion or completion.count < 10 or completion.median < _MIN_NOTABLE_S:
        return
    if (stats.p95_over_median or 0.0) < _MIN_TAIL_RATIO:
        return
    jobs = "jobs" if completion.count == stats.jobs else "succeeded jobs"
    text = (
        f"Half of the {jobs} completed within {format_duration(completion.median)} of their first match, but 5% "
        f"took more than {format_duration(completion.p95)} ({stats.p95_over_median:.1f} times as long), "
        f"the slowest {format_duration(completion.maximum)}"
    )
    yield Finding(f"{text}{_slow_job_cause(stats, completion)}.", 0.2)


def _slow_job_cause(stats: ReportStats, distribution: Distribution) -> str:
    """Return the main delay of most of the slow jobs."""
    completed = [row for row in stats.job_summaries if row.completion_s is not None]
    slow = [row for row in completed if (row.completion_s or 0.0) > 2 * distribution.median]
    compute_times_s = sorted(row.time_use_s.get(TimeUse.USEFUL_COMPUTE, 0.0) for row in completed)
    typical_compute_s = compute_times_s[len(completed) // 2]
    causes = Counter(_main_delay(row, typical_compute_s) for row in slow)
    cause, count = causes.most_common(1)[0] if causes else ("", 0)
    if count < 2 or count < len(slow) / 2:
        return ""
    jobs = f"all {len(slow):,}" if count == len(slow) else f"{count:,} of the {len(slow):,}"
    return f"; {jobs} jobs that took more than twice the median lost most of that time to {cause}"


def _main_delay(row: JobSummary, typical_compute_s: float) -> str:
    time_use_s = row.time_use_s
    delays_s = {
        "wasted transfers": time_use_s.get(TimeUse.WASTED_TRANSFER, 0.0),
        "lost compute": sum(time_use_s.get(use, 0.0) for use in LOST_COMPUTE),
        "slower compute": time_use_s.get(TimeUse.USEFUL_COMPUTE, 0.0) - typical_compute_s,
        "waits between executions": (row.completion_s or 0.0) - row.slot_s,
        "checkpoints and restarts": time_use_s.get(TimeUse.CHECKPOINT_RESTART, 0.0),
        "overhead": time_use_s.get(TimeUse.OVERHEAD, 0.0),
    }
    return max(delays_s, key=lambda cause: delays_s[cause])


def _queue_wait(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    wait = stats.queue_wait_s
    typical_s = stats.completion_s.median if stats.completion_s else 0.0
    if not wait or wait.median < _MIN_NOTABLE_S or wait.median < 0.2 * typical_s:
        return
    text = f"Half of the jobs waited {format_duration(wait.median)} or longer for their first slot"
    sites = [(site.site, site.queue_wait_s) for site in stats.sites if site.site and site.queue_wait_s]
    with_values = [(name, waits.median) for name, waits in sites if waits.count >= _MIN_VALUES]
    if len(with_values) > 1:
        slowest, median_s = max(with_values, key=lambda item: item[1])
        text += f", longest at {slowest} (median {format_duration(median_s)})"
    yield Finding(f"{text}; the longest wait was {format_duration(wait.maximum)}.", 0.12)


# Sites


def _slow_sites(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    for (fast, best), (slow, worst) in _fastest_and_slowest((site, site.compute_time_s) for site in stats.sites):
        text = (
            f"Compute took {_format_ratio(worst.median / best.median)} as long at {slow} (median "
            f"{format_duration(worst.median)}) as at {fast} ({format_duration(best.median)})"
        )
        if worst.maximum >= 2 * worst.minimum > 0:
            lowest, highest = format_duration(worst.minimum), format_duration(worst.maximum)
            text += f"; at {slow} it ranged from {lowest} to {highest}"
        yield Finding(f"{text}{_parameter_caveat(history)}.", 0.14)


def _parameter_caveat(history: JobHistory) -> str:
    """Return the parameters that may also explain a difference in compute time."""
    keys = dict.fromkeys(key for job in history.jobs for key in job.point)
    varying = [key for key in keys if len({job.point.get(key) for job in history.jobs}) > 1]
    return f" (but the jobs differ in {', '.join(varying)})" if varying else ""


def _slow_transfers(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    for (fast, best), (slow, worst) in _fastest_and_slowest((site, site.transfer_time_s) for site in stats.sites):
        if worst.median >= _MIN_NOTABLE_S:
            ratio = _format_ratio(worst.median / best.median)
            text = (
                f"The median transfer to {fast} took {format_duration(best.median)}; to {slow} it took {ratio} "
                f"as long ({format_duration(worst.median)})."
            )
            yield Finding(text, 0.11)


def _fastest_and_slowest(
    sites: Iterable[tuple[SiteSummary, Distribution | None]],
) -> Iterator[tuple[tuple[str, Distribution], tuple[str, Distribution]]]:
    """Yield the sites with the lowest and the highest median, if they differ enough."""
    known = [(site.site, values) for site, values in sites if site.site and values and values.count >= _MIN_VALUES]
    ranked = sorted(known, key=lambda item: item[1].median)
    if ranked and 1 <= ranked[0][1].median <= ranked[-1][1].median / _MIN_SITE_RATIO:
        yield ranked[0], ranked[-1]


def _format_ratio(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:,.0f} times"


def _warm_caches(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    for transfer in stats.transfers:
        cold, warm = transfer.cold_duration_s, transfer.warm_duration_s
        if not cold or not warm or min(cold.count, warm.count) < _MIN_VALUES or cold.median < _MIN_NOTABLE_S:
            continue
        if warm.median <= _MAX_WARM_RATIO * cold.median:
            route = " from ".join(name for name in (transfer.site or "an unknown site", transfer.source) if name)
            which = "later transfers" if history.has_timestamps else "repeated transfers of the same job"
            text = (
                f"The first transfers to {route} took {format_duration(cold.median)} (median), {which} "
                f"{format_duration(warm.median)}: warm caches make a difference."
            )
            yield Finding(text, 0.1)


def _transfer_time_limit(history: JobHistory, stats: ReportStats) -> Iterator[Finding]:
    """Report a likely time limit: all transfers that ran longer than some duration failed."""
    transfers_by_job = [
        [transfer for execution in job.executions for transfer in input_transfers_of(execution)] for job in history.jobs
    ]
    failed_s = sorted(
        transfer.duration_s for transfers in transfers_by_job for transfer in _failed_transfers(history, transfers)
    )
    longest_s = max(
        (transfer.duration_s for transfers in transfers_by_job for transfer in transfers if transfer.complete),
        default=0.0,
    )
    if len(failed_s) < _MIN_VALUES or not longest_s < failed_s[0] <= _MAX_TIMEOUT_GAP_RATIO * longest_s:
        return
    known = " with a known duration" if history.kind == "table" else ""
    text = (
        f"No complete transfer took longer than {format_duration(longest_s)}, and no failed transfer{known} "
        f"(except those that failed within a minute) took less than {format_duration(failed_s[0])}: "
        "a time limit between the two is likely"
    )
    yield Finding(f"{text}.", 0.24)


def _failed_transfers(history: JobHistory, transfers: Sequence[InputTransfer]) -> list[InputTransfer]:
    """Return the failed transfers of one job with a known duration. A table has only the sum of several."""
    failed = [transfer for transfer in transfers if not transfer.complete]
    is_known = history.kind != "table" or len(failed) == 1
    return [transfer for transfer in failed if transfer.duration_s >= _IMMEDIATE_S] if is_known else []


def _count_jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"
