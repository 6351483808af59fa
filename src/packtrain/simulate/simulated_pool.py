"""A pool: slots at sites, a queue, stays that end by themselves or are ended. It knows nothing of supervisors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from packtrain.report.history import FailureCategory, JobRecord, Outcome, Phase, PhaseSpan
from packtrain.simulate.event_queue import EventQueue
from packtrain.simulate.job_behaviour import JobBehaviour, SessionEnd
from packtrain.simulate.pool_model import PoolModel, SiteModel
from packtrain.simulate.shared_services import SimulatedServices
from packtrain.simulate.slot_session import SimulatedAttempt, SimulatedJobRecord, SimulatedSession

EVICTED = SessionEnd(Outcome.EVICTED, FailureCategory.EVICTION, "the pool took the machine back", "evicted")
CHECKPOINTED = SessionEnd(
    Outcome.CHECKPOINTED, FailureCategory.NONE, "it was asked to leave"
)  # it saves before it does
REMOVED = SessionEnd(Outcome.REMOVED, FailureCategory.USER, "it was removed")
_MAX_CONSTRAINED = 200  # that are looked at for one free slot
_SEED_PRIMES = (1_000_003, 8_191)

OnPoolEvent = Callable[[SimulatedAttempt, str], None]  # placed, stopped, ended, removed, released


class SimulatedPool:
    """`tell` hears of everything that happens to a task."""

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
        """Its slots, when they come; the first is the first to be given away."""
        for number in range(site.n_slots, 0, -1):
            when, machine = site.slots_open_at.quantile((number - 0.5) / site.n_slots), f"{site.name}-{number}"
            if when:
                self.event_queue.schedule(when, partial(self._add_slot, site, machine))
            else:
                self._add_slot(site, machine)

    # What is asked of it

    def submit(self, attempt: SimulatedAttempt) -> None:
        self.job_records.setdefault(attempt.job_id, SimulatedJobRecord(submitted_at=self.event_queue.now))
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
            self._record_wait(attempt, Phase.HELD)
            self._enqueue(attempt)
            self._on_event(attempt, "released")

    def hold(self, attempt: SimulatedAttempt) -> None:
        attempt.status, attempt.queued_at = "held", self.event_queue.now

    # Matching

    def _enqueue(self, attempt: SimulatedAttempt) -> None:
        attempt.status, attempt.queued_at = "queued", self.event_queue.now
        (self._constrained_queue if attempt.is_constrained else self._queue).append(attempt)
        self._schedule_match()

    def _schedule_match(self) -> None:
        """Once for all that happens at this moment."""
        if not self._is_match_scheduled:
            self._is_match_scheduled = True
            self.event_queue.schedule(self.event_queue.now, self._match)

    def _match(self) -> None:
        self._is_match_scheduled = False
        aside: list[SimulatedAttempt] = []
        for _ in range(min(len(self._constrained_queue), _MAX_CONSTRAINED)):
            task = self._constrained_queue.popleft()
            if task.status == "queued" and not self._try_match(task):
                aside.append(task)
        self._constrained_queue.extend(aside)
        while self._queue and self._has_free_slot():
            task = self._queue.popleft()
            if task.status == "queued":
                self._try_match(task)

    def _has_free_slot(self) -> bool:
        return self._n_free_slots > 0 and self._n_running < self.model.max_running

    def _session_rng(self, attempt: SimulatedAttempt) -> Random:
        """The same for the n-th stay of a job, whatever is compared: luck is not what differs."""
        stays = len(self.job_records[attempt.job_id].sessions)
        name = int(attempt.job_id) if attempt.job_id.isdigit() else sum(map(ord, attempt.job_id))
        return Random((self._seed * _SEED_PRIMES[0] + name) * _SEED_PRIMES[1] + stays)  # noqa: S311

    def _try_match(self, attempt: SimulatedAttempt) -> bool:
        if not self._has_free_slot():
            return False
        chance = self._session_rng(attempt)
        site = self._choose_site(attempt, chance)
        machine = self._take_slot(attempt, site) if site else None
        if site is None or machine is None:
            return False
        self._n_free_slots, self._n_running = self._n_free_slots - 1, self._n_running + 1
        begins = max(self.event_queue.now + self.model.match_delay_s.sample(chance), self._next_start_at)
        self._next_start_at = max(self._next_start_at, self.event_queue.now) + 1.0 / self.model.max_starts_per_s
        attempt.status, version = "matched", attempt.version
        self.event_queue.schedule(begins, lambda: self._start_session(attempt, version, site, machine, chance))
        return True

    def _choose_site(self, attempt: SimulatedAttempt, rng: Random) -> SiteModel | None:
        """By how many slots are free."""
        free = [
            (name, len(slots)) for name, slots in self._free_slots.items() if slots and name not in attempt.avoid_sites
        ]
        place = rng.random() * sum(count for _, count in free)
        for name, count in free:
            place -= count
            if place < 0:
                return self._sites[name]
        return self._sites[free[-1][0]] if free else None

    def _take_slot(self, attempt: SimulatedAttempt, site: SiteModel) -> str | None:
        slots = self._free_slots[site.name]
        if not attempt.avoid_nodes:
            return slots.pop()
        place = next((place for place in reversed(range(len(slots))) if slots[place] not in attempt.avoid_nodes), None)
        return None if place is None else slots.pop(place)

    # Stays

    def _start_session(self, attempt: SimulatedAttempt, version: int, site: SiteModel, node: str, rng: Random) -> None:
        if attempt.version != version or attempt.status != "matched":
            self._release_slot(site, node)
            return
        truth, now = self.job_records[attempt.job_id], self.event_queue.now
        done, whose, kept = truth.newest_checkpoint(now)
        if whose is not None:
            whose.reused_compute_s = max(whose.reused_compute_s, kept)
        course = self.behaviour.plan_session(site, done, self._is_cache_warm(truth, site), self._services, rng)
        attempt.session = SimulatedSession(site, node, now, course, done, self.behaviour.checkpoint_interval_s)
        attempt.n_executions, attempt.status = attempt.n_executions + 1, "running"
        self._record_wait(attempt, Phase.QUEUED)
        truth.sessions.append(attempt.session)
        lasts = course.duration_s
        evicted = rng.expovariate(site.evictions_per_s) if site.evictions_per_s else lasts
        self.event_queue.schedule(
            now + min(lasts, evicted), lambda: self._finish_session(attempt, version, evicted < lasts)
        )
        self._on_event(attempt, "placed")

    def _is_cache_warm(self, record: SimulatedJobRecord, site: SiteModel) -> bool:
        if self.model.has_shared_caches:
            return self._services.is_warm(site)
        return any(stay.site is site for stay in record.sessions)

    def _record_wait(self, attempt: SimulatedAttempt, phase: Phase) -> None:
        if self.event_queue.now > attempt.queued_at:
            self.job_records[attempt.job_id].waits.append(PhaseSpan(phase, attempt.queued_at, self.event_queue.now))

    def _finish_session(self, attempt: SimulatedAttempt, version: int, is_evicted: bool) -> None:
        if attempt.version != version or attempt.session is None:
            return
        self._end_session(attempt, EVICTED if is_evicted else attempt.session.timeline.end)
        if is_evicted:
            self._on_event(attempt, "stopped")
            attempt.session = None
            self._enqueue(attempt)
        else:
            self._finish_attempt(attempt, "ended")

    def _end_session(self, attempt: SimulatedAttempt, end: SessionEnd) -> None:
        stay = attempt.session
        assert stay is not None
        stay.ended_at, stay.end = self.event_queue.now, end
        attempt.version += 1
        self._release_slot(stay.site, stay.node)

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
        attempt.session = None

    # What happened

    def job_history(self, job_id: str, end: SessionEnd, is_verified: bool) -> JobRecord:
        """As reports have it."""
        truth = self.job_records.get(job_id, SimulatedJobRecord())
        ordered = sorted(truth.sessions, key=lambda stay: stay.started_at)
        attempts = tuple(stay.to_history(number, self.event_queue.now) for number, stay in enumerate(ordered, 1))
        succeeded = end.outcome is Outcome.SUCCEEDED
        ended = min((a.end for a in attempts if a.outcome is Outcome.SUCCEEDED), default=None) if succeeded else None
        last = ended if ended is not None else max((a.end for a in attempts), default=self.event_queue.now)
        held_in = attempts[-1].spans[-1].phase if attempts and end.outcome in _HELD_OUTCOMES else None
        told = (is_verified if succeeded else None, end.category, end.reason, held_in)
        return JobRecord(job_id, attempts, end.outcome, truth.submitted_at, last, tuple(truth.waits), *told)


_HELD_OUTCOMES = (Outcome.HELD, Outcome.TIME_LIMIT)
