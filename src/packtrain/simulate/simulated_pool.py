"""A simulated pool: slots at sites, a queue, and sessions that end or are interrupted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from packtrain.report.history import FailureCategory, JobRecord, Outcome
from packtrain.simulate.event_queue import EventQueue
from packtrain.simulate.job_behaviour import JobBehaviour, SessionEnd
from packtrain.simulate.pool_model import PoolModel, SiteModel
from packtrain.simulate.shared_services import SimulatedServices
from packtrain.simulate.slot_session import SimulatedAttempt, SimulatedJobRecord, SimulatedSession
from packtrain.state.slot_time import PoolEvent, PoolEventKind

EVICTED = SessionEnd(Outcome.EVICTED, FailureCategory.EVICTION, "the pool preempted the job", "evicted")
CHECKPOINTED = SessionEnd(Outcome.CHECKPOINTED, FailureCategory.NONE, "the agent was asked to checkpoint and exit")
REMOVED = SessionEnd(Outcome.REMOVED, FailureCategory.USER, "it was removed")
_MAX_CONSTRAINED = 200  # attempts with site restrictions that one matching pass considers
_SEED_PRIMES = (1_000_003, 8_191)

OnPoolEvent = Callable[[SimulatedAttempt, str], None]  # started, interrupted, ended, removed, released


class SimulatedPool:
    """A pool of slots. `on_event` is called for every change of an attempt."""

    def __init__(
        self, model: PoolModel, behaviour: JobBehaviour, event_queue: EventQueue, seed: int, on_event: OnPoolEvent
    ) -> None:
        self.model, self.behaviour, self.event_queue, self._seed, self._on_event = (
            model,
            behaviour,
            event_queue,
            seed,
            on_event,
        )
        self._services = SimulatedServices(model, event_queue, seed)
        self._free_slots: dict[str, list[str]] = {site.name: [] for site in model.sites}
        self._sites = {site.name: site for site in model.sites}
        self._n_free_slots = 0
        self._queue: deque[SimulatedAttempt] = deque()
        self._constrained_queue: deque[SimulatedAttempt] = deque()
        self._next_start_at = 0.0
        self._n_running = 0
        self._is_match_scheduled = False
        self.job_records: dict[str, SimulatedJobRecord] = {}
        for site in model.sites:
            self._schedule_slots(site)

    def _schedule_slots(self, site: SiteModel) -> None:
        """Add the site's slots when they become available; the first one is used first."""
        for number in range(site.n_slots, 0, -1):
            open_at, node = site.slots_open_at.quantile((number - 0.5) / site.n_slots), f"{site.name}-{number}"
            if open_at:
                self.event_queue.schedule(open_at, partial(self._add_slot, site, node))
            else:
                self._add_slot(site, node)

    # Requests

    def submit(self, attempt: SimulatedAttempt) -> None:
        record = self.job_records.setdefault(attempt.job_id, SimulatedJobRecord(submitted_at=self.event_queue.now))
        record.timelines.append(attempt.timeline)
        self._add_pool_event(attempt, PoolEventKind.SUBMITTED)
        self._enqueue(attempt)

    def remove(self, attempt: SimulatedAttempt) -> None:
        if attempt.status == "gone":
            return
        if attempt.session is not None:
            computed = attempt.session.computed_s(self.event_queue.now)
            self._end_session(
                attempt, CHECKPOINTED if computed and self.behaviour.checkpoint_interval_s is not None else REMOVED
            )
        self._finish_attempt(attempt, "removed")

    def release(self, attempt: SimulatedAttempt) -> None:
        if attempt.status == "held":
            self._add_pool_event(attempt, PoolEventKind.RELEASED)
            self._enqueue(attempt)
            self._on_event(attempt, "released")

    def hold(self, attempt: SimulatedAttempt) -> None:
        attempt.status = "held"
        self._add_pool_event(attempt, PoolEventKind.HELD)

    def _add_pool_event(self, attempt: SimulatedAttempt, kind: PoolEventKind) -> None:
        attempt.timeline.add(PoolEvent(kind, self.event_queue.now, attempt.n_executions))

    # Matching

    def _enqueue(self, attempt: SimulatedAttempt) -> None:
        attempt.status = "queued"
        (self._constrained_queue if attempt.is_constrained else self._queue).append(attempt)
        self._schedule_match()

    def _schedule_match(self) -> None:
        """Schedule one matching pass for all changes at this moment."""
        if not self._is_match_scheduled:
            self._is_match_scheduled = True
            self.event_queue.schedule(self.event_queue.now, self._match)

    def _match(self) -> None:
        self._is_match_scheduled = False
        unmatched: list[SimulatedAttempt] = []
        for _ in range(min(len(self._constrained_queue), _MAX_CONSTRAINED)):
            attempt = self._constrained_queue.popleft()
            if attempt.status == "queued" and not self._try_match(attempt):
                unmatched.append(attempt)
        self._constrained_queue.extend(unmatched)
        while self._queue and self._has_free_slot():
            attempt = self._queue.popleft()
            if attempt.status == "queued":
                self._try_match(attempt)

    def _has_free_slot(self) -> bool:
        return self._n_free_slots > 0 and self._n_running < self.model.max_running

    def _session_rng(self, attempt: SimulatedAttempt) -> Random:
        """Return the same generator for the n-th session of a job in every scenario, so that only policies differ."""
        n_sessions = len(self.job_records[attempt.job_id].sessions)
        name = int(attempt.job_id) if attempt.job_id.isdigit() else sum(map(ord, attempt.job_id))
        return Random((self._seed * _SEED_PRIMES[0] + name) * _SEED_PRIMES[1] + n_sessions)  # noqa: S311

    def _try_match(self, attempt: SimulatedAttempt) -> bool:
        if not self._has_free_slot():
            return False
        rng = self._session_rng(attempt)
        site = self._choose_site(attempt, rng)
        node = self._take_slot(attempt, site) if site else None
        if site is None or node is None:
            return False
        self._n_free_slots, self._n_running = self._n_free_slots - 1, self._n_running + 1
        start_at = max(self.event_queue.now + self.model.match_delay_s.sample(rng), self._next_start_at)
        self._next_start_at = max(self._next_start_at, self.event_queue.now) + 1.0 / self.model.max_starts_per_s
        attempt.status, version = "matched", attempt.version
        self.event_queue.schedule(start_at, lambda: self._start_session(attempt, version, site, node, rng))
        return True

    def _choose_site(self, attempt: SimulatedAttempt, rng: Random) -> SiteModel | None:
        """Choose a site at random, weighted by its number of free slots."""
        free = [
            (name, len(slots)) for name, slots in self._free_slots.items() if slots and name not in attempt.avoid_sites
        ]
        position = rng.random() * sum(count for _, count in free)
        for name, count in free:
            position -= count
            if position < 0:
                return self._sites[name]
        return self._sites[free[-1][0]] if free else None

    def _take_slot(self, attempt: SimulatedAttempt, site: SiteModel) -> str | None:
        slots = self._free_slots[site.name]
        if not attempt.avoid_nodes:
            return slots.pop()
        index = next((i for i in reversed(range(len(slots))) if slots[i] not in attempt.avoid_nodes), None)
        return None if index is None else slots.pop(index)

    # Sessions

    def _start_session(self, attempt: SimulatedAttempt, version: int, site: SiteModel, node: str, rng: Random) -> None:
        if attempt.version != version or attempt.status != "matched":
            self._release_slot(site, node)
            return
        record, now = self.job_records[attempt.job_id], self.event_queue.now
        done_fraction, saved_by, saved_s = record.newest_checkpoint(now)
        if saved_by is not None:
            saved_by.reused_compute_s = max(saved_by.reused_compute_s, saved_s)
        is_warm = self._is_cache_warm(record, site)
        timeline = self.behaviour.plan_session(site, done_fraction, is_warm, self._services, rng)
        interval_s = self.behaviour.checkpoint_interval_s
        attempt.session = SimulatedSession(site, node, now, timeline, done_fraction, interval_s)
        attempt.n_executions, attempt.status = attempt.n_executions + 1, "running"
        self._add_pool_event(attempt, PoolEventKind.STARTED)
        record.sessions.append(attempt.session)
        duration_s = timeline.duration_s
        evicted_s = rng.expovariate(site.evictions_per_s) if site.evictions_per_s else duration_s
        self.event_queue.schedule(
            now + min(duration_s, evicted_s),
            lambda: self._finish_session(attempt, version, evicted_s < duration_s),
        )
        self._on_event(attempt, "started")

    def _is_cache_warm(self, record: SimulatedJobRecord, site: SiteModel) -> bool:
        if self.model.has_shared_caches:
            return self._services.is_warm(site)
        return any(session.site is site for session in record.sessions)

    def _finish_session(self, attempt: SimulatedAttempt, version: int, is_evicted: bool) -> None:
        if attempt.version != version or attempt.session is None:
            return
        self._end_session(attempt, EVICTED if is_evicted else attempt.session.timeline.end)
        if is_evicted:
            self._add_pool_event(attempt, PoolEventKind.INTERRUPTED)
            self._on_event(attempt, "interrupted")
            attempt.session = None
            self._enqueue(attempt)
        else:
            self._finish_attempt(attempt, "ended")

    def _end_session(self, attempt: SimulatedAttempt, end: SessionEnd) -> None:
        session = attempt.session
        assert session is not None
        session.ended_at, session.end = self.event_queue.now, end
        attempt.version += 1
        self._release_slot(session.site, session.node)

    def _release_slot(self, site: SiteModel, node: str) -> None:
        self._n_running -= 1
        self._add_slot(site, node)

    def _add_slot(self, site: SiteModel, node: str) -> None:
        self._free_slots[site.name].append(node)
        self._n_free_slots += 1
        self._schedule_match()

    def _finish_attempt(self, attempt: SimulatedAttempt, event: str) -> None:
        attempt.status, attempt.version = "gone", attempt.version + 1
        self._on_event(attempt, event)
        if attempt.status == "gone":  # the engine may have put it on hold
            self._add_pool_event(attempt, PoolEventKind.GONE)
        attempt.session = None

    # History

    def job_history(self, job_id: str, end: SessionEnd, is_verified: bool) -> JobRecord:
        """Return the job as reports represent it."""
        record, now = self.job_records.get(job_id, SimulatedJobRecord()), self.event_queue.now
        sessions = sorted(record.sessions, key=lambda session: session.started_at)
        executions = tuple(session.to_history(number, now) for number, session in enumerate(sessions, 1))
        succeeded_at = [one.end for one in executions if one.outcome is Outcome.SUCCEEDED]
        succeeded = end.outcome is Outcome.SUCCEEDED
        if succeeded and succeeded_at:
            ended_at = min(succeeded_at)
        else:
            ended_at = max((one.end for one in executions), default=now)
        waits = (wait for timeline in record.timelines for wait in timeline.waits(now))
        held_in = executions[-1].spans[-1].phase if executions and end.outcome in _HELD_OUTCOMES else None
        return JobRecord(
            job_id,
            executions,
            end.outcome,
            record.submitted_at,
            ended_at,
            tuple(sorted(waits, key=lambda wait: wait.start)),
            is_verified if succeeded else None,
            end.category,
            end.reason,
            held_in,
        )


_HELD_OUTCOMES = (Outcome.HELD, Outcome.TIME_LIMIT)
