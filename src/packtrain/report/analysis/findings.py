"""What a person should know first, in sentences: only what is true, ranked by how much of it all it concerns. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from packtrain.report.analysis.by_site import SiteFigures
from packtrain.report.analysis.common_factors import common_trait
from packtrain.report.analysis.distribution import Spread
from packtrain.report.analysis.input_transfers import moves_of
from packtrain.report.analysis.statistics import FINE, FailureFigures, Figures, JobFigures
from packtrain.report.analysis.time_accounting import LOST_COMPUTE, OPEN, USEFUL, WASTE, JobAccount, Share
from packtrain.report.history import Attempt, Category, History, Move, Outcome
from packtrain.report.number_format import hours_words, percent_words, time_words

_WORTH_TELLING_S = 60.0
_LEAST_PART = {Share.OVERHEAD: 0.05, Share.RESTART: 0.05}  # of the wallclock; others from 1% on
_MOST_OF = 0.8  # how much of a loss "account for 80%" is
_TAIL = 2.0  # p95 / median from which on there is one
_APART = 1.3  # medians of sites from which on they differ
_WARMER = 0.7  # later transfers take so much of the time of first ones
_EVENLY = 0.6  # of the jobs have most of a loss: it is spread among all
_FEW = 5  # jobs of which all are meant
_ENOUGH = 3  # values that make a median worth telling
_AT_ONCE_S = 60.0
_NEAR = 1.5  # the longest transfer that came, and the shortest that did not: a limit may lie between them
_LONGEST_REASON = 120

_SUBJECTS = {
    Share.THROWN_AWAY: "went to transfers that were thrown away",
    Share.EVICTION: "was compute lost to evictions",
    Share.TIME_LIMIT: "was compute lost to the time limit",
    Share.OUTPUT: "was compute whose output was wrong",
    Share.FAILURE: "was compute lost to failures",
    Share.RESTART: "went to checkpoints and restarts",
    Share.OVERHEAD: "was overhead: slots were taken while neither data moved nor the program ran",
}
_BLAMES = {
    Category.TRANSFER: "in transfer",
    Category.OUTPUT: "by wrong output",
    Category.TIME_LIMIT: "at the time limit",
    Category.EVICTION: "by eviction",
    Category.PROGRAM: "in the program",
    Category.MACHINE: "by the machine",
    Category.POOL: "by the pool",
    Category.PERSON: "by a person",
    Category.UNKNOWN: "for reasons unknown",
}


@dataclass(frozen=True)
class Finding:
    text: str
    weight: float  # 0 to 1: about how much of the whole it concerns


def findings_of(history: History, figures: Figures) -> tuple[Finding, ...]:
    """The most important first."""
    tellers: tuple[Callable[[History, Figures], Iterator[Finding]], ...] = (
        _usefulness, _wastes, _failures, _tail, _time_limit_of_transfers, _slow_sites, _slow_transfers, _warm_caches,
        _waiting, _unchecked, _under_way, _unread,
    )  # fmt: skip
    found = [finding for tell in tellers for finding in tell(history, figures)]
    return tuple(sorted(found, key=lambda finding: -finding.weight))


def _usefulness(history: History, figures: Figures) -> Iterator[Finding]:
    if figures.wallclock_s < 1 or not figures.ended:
        return
    parts = {share: figures.part(share) or 0.0 for share in USEFUL}
    transfer = f" and {percent_words(parts[Share.TRANSFER])} the one transfer each job needs"
    text = f"Of {hours_words(figures.wallclock_s)} of slots, {percent_words(parts[Share.COMPUTE])} were useful compute"
    lost = sum(figures.shares.get(share, 0.0) for share in WASTE)
    rest = f"; {hours_words(lost)} were of no use" if lost >= _WORTH_TELLING_S else ""
    yield Finding(f"{text}{transfer if parts[Share.TRANSFER] else ''}{rest}.", 0.25)  # a large loss comes before it


# Where the time went


def _wastes(history: History, figures: Figures) -> Iterator[Finding]:
    for share, subject in _SUBJECTS.items():
        seconds, part = figures.shares.get(share, 0.0), figures.part(share) or 0.0
        if seconds >= _WORTH_TELLING_S and part >= _LEAST_PART.get(share, 0.01):
            text = f"{percent_words(part)} of the wallclock ({hours_words(seconds)}) {subject}"
            spoilt = f"{_concentration(share, figures.accounts)}{_nothing_kept(share, history)}"
            yield Finding(f"{text}{spoilt}.", part)


def _concentration(share: Share, accounts: Sequence[JobAccount]) -> str:
    """; 13 of the 37 jobs concerned account for 80% of that, all of them at SITE"""
    lost = sorted(((account.micros.get(share, 0), account) for account in accounts), key=lambda one: -one[0])
    concerned = [account for micros, account in lost if micros]
    if len(concerned) == 1:
        return f", all of it by job {concerned[0].job.id}"
    heavy = _heaviest([one for one in lost if one[0]])
    if len(concerned) <= _FEW or len(heavy) > _EVENLY * len(concerned):
        heavy = concerned
    chosen = {id(account) for account in heavy}
    trait = common_trait(heavy, [account for account in accounts if id(account) not in chosen], [share])
    shared = f", {trait.sentence}" if trait else ""
    if len(heavy) == len(concerned):
        return f", by {_jobs(len(concerned))}{shared}"
    verb = "accounts" if len(heavy) == 1 else "account"
    return f"; {len(heavy):,} of the {_jobs(len(concerned))} concerned {verb} for 80% of that{shared}"


def _heaviest(lost: Sequence[tuple[int, JobAccount]]) -> list[JobAccount]:
    """The fewest that account for most of it."""
    whole = sum(micros for micros, _ in lost)
    found, reached = [], 0
    for micros, account in lost:
        if reached >= _MOST_OF * whole:
            break
        found.append(account)
        reached += micros
    return found


def _nothing_kept(share: Share, history: History) -> str:
    """Of tables nobody knows."""
    if share not in (Share.EVICTION, Share.TIME_LIMIT) or history.kind == "table":
        return ""
    kept = any(attempt.kept_s for attempt in history.attempts() if attempt.outcome is not Outcome.SUCCEEDED)
    return "" if kept else "; no attempt left a checkpoint that another one went on from"


# How jobs ended


def _failures(history: History, figures: Figures) -> Iterator[Finding]:
    if not figures.failed:
        return
    text = (
        f"{figures.failed:,} of {_jobs(figures.ended)} did not succeed: {_kinds(figures.failures)}{_shared(figures)}."
    )
    more = f"{_reason(figures.failures)}{_not_tried_again(figures)}"
    yield Finding(f"{text}{more}", figures.failed / figures.ended)


def _kinds(failures: Sequence[FailureFigures]) -> str:
    """16 in transfer (76%), 3 by wrong output (14%), …"""
    if len(failures) == 1:
        return _BLAMES[failures[0].category]
    return ", ".join(f"{one.count:,} {_BLAMES[one.category]} ({percent_words(one.fraction)})" for one in failures)


def _shared(figures: Figures) -> str:
    failed = [account for account in figures.accounts if account.job.outcome not in FINE]
    others = [account for account in figures.accounts if account.job.outcome in FINE]
    trait = common_trait(failed, others, Share)
    return f"; {trait.sentence}" if trait else ""


def _reason(failures: Sequence[FailureFigures]) -> str:
    top = max(failures, key=lambda one: one.reason_count)
    if not top.reason or top.reason_count == 1 < sum(one.count for one in failures):
        return ""
    reason = " ".join(top.reason.split())
    short = reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 1]}…"
    often = f" ({_jobs(top.reason_count)})" if sum(one.count for one in failures) > 1 else ""
    return f" {'The most frequent reason' if often else 'The reason'}: “{short}”{often}."


def _not_tried_again(figures: Figures) -> str:
    """What ended at once costs nothing to try again."""
    quick = [row for row in figures.rows if _ended_at_once(row)]
    if len(quick) < 2:
        return ""
    longest = time_words(max(1.0, max(row.seconds for row in quick)))
    return f" {len(quick):,} that failed in transfer did so within {longest} and were not tried again."


def _ended_at_once(row: JobFigures) -> bool:
    return (
        row.category is Category.TRANSFER and row.outcome not in FINE and row.attempts == 1 and row.seconds < _AT_ONCE_S
    )


def _unchecked(history: History, figures: Figures) -> Iterator[Finding]:
    if not figures.unchecked:
        return
    count, whole = figures.unchecked, figures.unchecked == figures.succeeded
    which = f"the {'job' if count == 1 else _jobs(count)}" if whole else f"{count:,} of the {figures.succeeded:,} jobs"
    text = f"Nobody checked the outputs of {which} that ended with 0: whether they are right cannot be told."
    yield Finding(text, 0.15 * figures.unchecked / figures.jobs)


def _under_way(history: History, figures: Figures) -> Iterator[Finding]:
    count = figures.jobs - figures.ended
    if not count:
        return
    running = sum(job.outcome in OPEN and _on_slot(job.attempts) for job in history.jobs)
    seconds = figures.shares.get(Share.UNDER_WAY, 0.0)
    spent = f"; {hours_words(seconds)} of slots are under way" if seconds >= _WORTH_TELLING_S else ""
    verb = "has" if count == 1 else "have"
    text = f"{count:,} of {_jobs(figures.jobs)} {verb} not ended ({running:,} on a slot){spent}."
    yield Finding(text, count / figures.jobs)


def _on_slot(attempts: Sequence[Attempt]) -> bool:
    return any(attempt.outcome is Outcome.RUNNING for attempt in attempts)


def _unread(history: History, figures: Figures) -> Iterator[Finding]:
    if history.skipped:
        what = "entry" if history.skipped == 1 else "entries"
        yield Finding(f"{history.skipped:,} {what} could not be read, so something may be missing here.", 0.05)


# How long it took


def _tail(history: History, figures: Figures) -> Iterator[Finding]:
    spread = figures.completion
    if not spread or spread.count < 10 or spread.median < _WORTH_TELLING_S or (figures.tail_p95 or 0.0) < _TAIL:
        return
    which = "jobs" if spread.count == figures.jobs else "jobs that succeeded"
    text = (
        f"Half of the {which} were done {time_words(spread.median)} after their first match, but one in twenty took "
        f"more than {time_words(spread.p95)} ({figures.tail_p95:.1f} times as long), "
        f"the slowest {time_words(spread.high)}"
    )
    yield Finding(f"{text}{_why_slow(figures, spread)}.", 0.2)


def _why_slow(figures: Figures, spread: Spread) -> str:
    """What most of the slow ones lost most of their extra time to."""
    done = [row for row in figures.rows if row.completion_s is not None]
    slow = [row for row in done if (row.completion_s or 0.0) > 2 * spread.median]
    usual = sorted(row.shares.get(Share.COMPUTE, 0.0) for row in done)[len(done) // 2]
    causes = Counter(_delay(row, usual) for row in slow)
    cause, count = causes.most_common(1)[0] if causes else ("", 0)
    if count < 2 or count < len(slow) / 2:
        return ""
    which = f"all {len(slow):,}" if count == len(slow) else f"{count:,} of the {len(slow):,}"
    return f"; {which} that took more than twice the median lost most of it to {cause}"


def _delay(row: JobFigures, usual: float) -> str:
    shares = row.shares
    extra = {
        "transfers thrown away": shares.get(Share.THROWN_AWAY, 0.0),
        "compute that was lost": sum(shares.get(share, 0.0) for share in LOST_COMPUTE),
        "slower computing": shares.get(Share.COMPUTE, 0.0) - usual,
        "waiting between attempts": (row.completion_s or 0.0) - row.seconds,
        "checkpoints and restarts": shares.get(Share.RESTART, 0.0),
        "overhead": shares.get(Share.OVERHEAD, 0.0),
    }
    return max(extra, key=lambda cause: extra[cause])


def _waiting(history: History, figures: Figures) -> Iterator[Finding]:
    """For a slot."""
    spread = figures.waiting
    usual = figures.completion.median if figures.completion else 0.0
    if not spread or spread.median < _WORTH_TELLING_S or spread.median < 0.2 * usual:
        return
    text = f"Half of the jobs waited {time_words(spread.median)} or longer for their first slot"
    yield Finding(f"{text}; the longest wait was {time_words(spread.high)}.", 0.12)


# Places


def _slow_sites(history: History, figures: Figures) -> Iterator[Finding]:
    for (fast, best), (slow, worst) in _extremes((site, site.compute) for site in figures.sites):
        text = (
            f"Computing took {_times(worst.median / best.median)} as long at {slow} (median "
            f"{time_words(worst.median)}) as at {fast} ({time_words(best.median)})"
        )
        varied = worst.high >= 2 * worst.low > 0
        more = f"; at {slow} it varied from {time_words(worst.low)} to {time_words(worst.high)}" if varied else ""
        yield Finding(f"{text}{more}{_unlike(history)}.", 0.14)


def _unlike(history: History) -> str:
    """What may be another reason why some took longer."""
    keys = dict.fromkeys(key for job in history.jobs for key in job.point)
    varied = [key for key in keys if len({job.point.get(key) for job in history.jobs}) > 1]
    return f" (but jobs differ in {', '.join(varied)})" if varied else ""


def _slow_transfers(history: History, figures: Figures) -> Iterator[Finding]:
    for (fast, best), (slow, worst) in _extremes((site, site.transfer) for site in figures.sites):
        if worst.median >= _WORTH_TELLING_S:
            text = f"Transfers to {fast} took {time_words(best.median)} at the median, those to {slow} "
            yield Finding(f"{text}{_times(worst.median / best.median)} as long ({time_words(worst.median)}).", 0.11)


def _extremes(
    sites: Iterable[tuple[SiteFigures, Spread | None]],
) -> Iterator[tuple[tuple[str, Spread], tuple[str, Spread]]]:
    """The fastest and the slowest by their medians, if there is a difference."""
    known = [(site.site, spread) for site, spread in sites if site.site and spread and spread.count >= _ENOUGH]
    ranked = sorted(known, key=lambda one: one[1].median)
    if ranked and 1 <= ranked[0][1].median <= ranked[-1][1].median / _APART:
        yield ranked[0], ranked[-1]


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:,.0f} times"


def _warm_caches(history: History, figures: Figures) -> Iterator[Finding]:
    for place in figures.speeds:
        first, later = place.first, place.later
        if not first or not later or min(first.count, later.count) < _ENOUGH or first.median < _WORTH_TELLING_S:
            continue
        if later.median <= _WARMER * first.median:
            where = " from ".join(name for name in (place.site or "an unnamed site", place.source) if name)
            which = "Transfers after the first ones" if history.absolute else "Transfers that a job began again"
            yield Finding(
                f"{which} to {where} took {time_words(later.median)} at the median, the first ones "
                f"{time_words(first.median)}: caches that hold the data already make a difference.",
                0.1,
            )


def _time_limit_of_transfers(history: History, figures: Figures) -> Iterator[Finding]:
    """All that ran longer than some time came to nothing: somebody's timer, though nobody says so."""
    moves = [[move for attempt in job.attempts for move in moves_of(attempt)] for job in history.jobs]
    broken = sorted(move.seconds for some in moves for move in _broken_of(history, some))
    longest = max((move.seconds for some in moves for move in some if move.whole), default=0.0)
    if len(broken) < _ENOUGH or not longest < broken[0] <= _NEAR * longest:
        return
    known = " and whose time is told by itself" if history.kind == "table" else ""
    text = (
        f"No transfer that came whole took longer than {time_words(longest)}, and no transfer that came to nothing"
        f"{known} (other than within a minute) took less than {time_words(broken[0])}: "
        "a time limit between the two is likely"
    )
    yield Finding(f"{text}.", 0.24)


def _broken_of(history: History, moves: Sequence[Move]) -> list[Move]:
    """Those of one job that came to nothing. Of several, a table tells the sum only: each may have been shorter."""
    broken = [move for move in moves if not move.whole]
    known = history.kind != "table" or len(broken) == 1
    return [move for move in broken if move.seconds >= _AT_ONCE_S] if known else []


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"
