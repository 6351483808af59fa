"""What a run's attempts tell about places and mistakes, kept as an index: which sites and machines failed, which
failures are alike, what all of it cost. Drawn anew for the jobs that changed only; the attempts before a job was opened
again do not count."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from packtrain.events import Failure
from packtrain.state.execution import Attempt
from packtrain.state.job import JobState
from packtrain.state.timing import Pace, on_machine, progress_of, site_of
from packtrain.state.transitions import AttemptStatus

_DIFFERENT = re.compile(r"0x[0-9a-f]+|\d+")  # what may differ between failures that are alike
_LONGEST = 300

Signature = tuple[str, str, str]


def signature(failure: Failure) -> Signature:
    """The same for failures that are alike."""
    return failure.kind, failure.stage, _DIFFERENT.sub("#", failure.detail)[:_LONGEST]


class Finding(NamedTuple):
    """What one attempt tells."""

    job: str
    number: int
    site: str
    machine: str
    at: float
    failure: Failure | None  # None: it succeeded, or left
    succeeded: bool = False

    @property
    def is_fault_of_place(self) -> bool:
        return self.failure is not None and self.failure.is_of_place


def _by_age(finding: Finding) -> tuple[float, str, int]:
    return finding.at, finding.job, finding.number


@dataclass
class Place:
    """A site or a machine: when attempts ended well there, and which ones it spoiled."""

    good: list[float] = field(default_factory=list)  # in order
    faults: list[Finding] = field(default_factory=list)  # the oldest first

    @property
    def newest(self) -> float:
        """Of the faults."""
        return self.faults[-1].at if self.faults else -math.inf

    def spoil(self, finding: Finding) -> None:
        insort(self.faults, finding, key=_by_age)

    def forgive(self, finding: Finding) -> None:
        del self.faults[bisect_left(self.faults, _by_age(finding), key=_by_age)]

    def faults_since(self, when: float) -> list[Finding]:
        return self.faults[bisect_left(self.faults, (when, "", 0), key=_by_age) :]

    def good_since(self, when: float) -> int:
        return len(self.good) - bisect_left(self.good, when)


@dataclass
class Record:
    sites: defaultdict[str, Place] = field(default_factory=lambda: defaultdict(Place))
    machines: defaultdict[str, Place] = field(default_factory=lambda: defaultdict(Place))
    mistakes: dict[Signature, set[Finding]] = field(default_factory=dict)  # blamed on the user
    faults: dict[Signature, set[Finding]] = field(default_factory=dict)  # of places
    successes: int = 0
    failures: int = 0  # attempts that cost their job one
    wasted_s: float = 0.0  # what these took
    progress: dict[str, int] = field(default_factory=dict)  # the furthest training step, by job
    spoiled: set[str] = field(default_factory=set)  # names of sites and machines that have, or had, faults
    pace: Pace = field(default_factory=Pace)
    _of_job: dict[str, tuple[tuple[Finding, ...], int, float]] = field(default_factory=dict)

    def draw(self, job: JobState) -> None:
        """Replace what is known of one job."""
        if job.is_fresh and job.id not in self._of_job:
            self.pace.waiting.add(job.id)
            return
        self.pace.draw(job)
        over = len(job.live) < len(job.attempts) or bool(job.moves)
        found, spent = (tuple(findings(job)), job.spent) if over else ((), ())
        wasted = sum(on_machine(job, attempt) for attempt in spent)
        self._replace(job.id, found, len(spent), wasted)
        self.progress[job.id] = max((progress_of(attempt) for attempt in job.recent), default=-1)

    def further(self, job: JobState) -> None:
        """The same, of one that only got further: where it runs and what it cost so far is known."""
        if self.pace.further(job):
            under = self.pace.running[job.id]
            self.progress[job.id] = max(self.progress[job.id], under.step if under else -1)
        else:
            self.draw(job)

    def _replace(self, job: str, found: tuple[Finding, ...], failures: int, wasted: float) -> None:
        known, failures_before, wasted_before = self._of_job.get(job, ((), 0, 0.0))
        self._of_job[job] = (found, failures, wasted)
        self.failures += failures - failures_before
        self.wasted_s += wasted - wasted_before
        if found != known:
            for finding in known:
                self._remove(finding)
            for finding in found:
                self._add(finding)

    def _places(self, finding: Finding) -> Iterator[Place]:
        if finding.site:
            yield self.sites[finding.site]
        if finding.machine:
            yield self.machines[finding.machine]

    def _alike(self, finding: Finding) -> Iterator[set[Finding]]:
        """Those that are alike, where that matters."""
        if finding.failure and finding.failure.blame == "user":
            yield self.mistakes.setdefault(signature(finding.failure), set())
        if finding.failure and finding.failure.is_of_place:
            yield self.faults.setdefault(signature(finding.failure), set())

    def _add(self, finding: Finding) -> None:
        self.successes += finding.succeeded
        for place in self._places(finding):
            if finding.failure is None:
                insort(place.good, finding.at)
            elif finding.is_fault_of_place:
                place.spoil(finding)
                self.spoiled.update((finding.site, finding.machine))
        for alike in self._alike(finding):
            alike.add(finding)

    def _remove(self, finding: Finding) -> None:
        self.successes -= finding.succeeded
        for place in self._places(finding):
            if finding.failure is None:
                del place.good[bisect_left(place.good, finding.at)]
            elif finding.is_fault_of_place:
                place.forgive(finding)
        for alike in self._alike(finding):
            alike.discard(finding)

    def wasted_of(self, job: str) -> float:
        return self._of_job[job][2] if job in self._of_job else 0.0


def findings(job: JobState) -> Iterator[Finding]:
    """Of the attempts that are over and that no supervisor ended, except for being late; and of those that it is about
    to end for that: the next one must not come to the same machine."""
    moves = job.moves
    for attempt in job.recent:
        moved = moves.get(attempt.decision)
        if moved is not None and attempt.status is not AttemptStatus.SUCCEEDED:
            yield _slowness(job, attempt, moved)
        elif moved is not None or not (attempt.live or job.cancel_decided(attempt.decision)):
            yield from _ending(job, attempt)


def _slowness(job: JobState, attempt: Attempt, moved: Mapping[str, Any]) -> Finding:
    """Of a slow machine nothing is learned about its site."""
    site = site_of(attempt) if moved.get("avoid_sites") else ""
    slow = Failure.of("too_slow", attempt.stage, str(moved.get("reason", "")))
    return Finding(job.id, attempt.number, site, attempt.machine, attempt.over_at or job.changed_at, slow)


def _ending(job: JobState, attempt: Attempt) -> Iterator[Finding]:
    succeeded = attempt.status is AttemptStatus.SUCCEEDED
    ended_well = succeeded or attempt.status is AttemptStatus.LEFT
    if ended_well or attempt.failure:
        failure, place = None if ended_well else attempt.failure, (site_of(attempt), attempt.machine)
        yield Finding(job.id, attempt.number, *place, attempt.over_at, failure, succeeded)
