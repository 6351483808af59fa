"""A pool: slots at sites, a queue, stays that end by themselves or are ended. It knows nothing of supervisors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from packtrain.report.history import Category, Job, Outcome, Phase, Span
from packtrain.simulate.event_queue import Kernel
from packtrain.simulate.job_behaviour import Behaviour, Ending
from packtrain.simulate.pool_model import Site, World
from packtrain.simulate.shared_services import Surroundings
from packtrain.simulate.slot_session import JobTruth, Stay, Task

EVICTED = Ending(Outcome.EVICTED, Category.EVICTION, "the pool took the machine back", "evicted")
ASKED = Ending(Outcome.CONTINUES, Category.NONE, "it was asked to leave")  # it saves before it does
REMOVED = Ending(Outcome.REMOVED, Category.PERSON, "it was removed")
_MOST_PICKY = 200  # that are looked at for one free slot
_PRIMES = (1_000_003, 8_191)

Tell = Callable[[Task, str], None]  # placed, stopped, ended, removed, released


class Pool:
    """`tell` hears of everything that happens to a task."""

    def __init__(self, world: World, behaviour: Behaviour, kernel: Kernel, seed: int, tell: Tell) -> None:
        self.world, self.behaviour, self.kernel, self._seed, self._tell = world, behaviour, kernel, seed, tell
        self._around = Surroundings(world, kernel, seed)
        self._free: dict[str, list[str]] = {site.name: [] for site in world.sites}
        self._sites = {site.name: site for site in world.sites}
        self._room = 0
        self._queue: deque[Task] = deque()
        self._picky: deque[Task] = deque()
        self._next_start = 0.0
        self._running = 0
        self._matching = False
        self.truth: dict[str, JobTruth] = {}
        for site in world.sites:
            self._open(site)

    def _open(self, site: Site) -> None:
        """Its slots, when they come; the first is the first to be given away."""
        for number in range(site.slots, 0, -1):
            when, machine = site.opens.at((number - 0.5) / site.slots), f"{site.name}-{number}"
            if when:
                self.kernel.at(when, partial(self._add_slot, site, machine))
            else:
                self._add_slot(site, machine)

    # What is asked of it

    def submit(self, task: Task) -> None:
        self.truth.setdefault(task.job, JobTruth(submitted=self.kernel.now))
        self._enqueue(task)

    def remove(self, task: Task) -> None:
        if task.status == "gone":
            return
        if task.stay is not None:
            computed = task.stay.computed(self.kernel.now)
            self._end(task, ASKED if computed and self.behaviour.checkpoint_s is not None else REMOVED)
        self._over(task, "removed")

    def release(self, task: Task) -> None:
        if task.status == "held":
            self._wait_until_now(task, Phase.HELD)
            self._enqueue(task)
            self._tell(task, "released")

    def hold(self, task: Task) -> None:
        task.status, task.queued = "held", self.kernel.now

    # Matching

    def _enqueue(self, task: Task) -> None:
        task.status, task.queued = "queued", self.kernel.now
        (self._picky if task.picky else self._queue).append(task)
        self._match_soon()

    def _match_soon(self) -> None:
        """Once for all that happens at this moment."""
        if not self._matching:
            self._matching = True
            self.kernel.at(self.kernel.now, self._match)

    def _match(self) -> None:
        self._matching = False
        aside: list[Task] = []
        for _ in range(min(len(self._picky), _MOST_PICKY)):
            task = self._picky.popleft()
            if task.status == "queued" and not self._place(task):
                aside.append(task)
        self._picky.extend(aside)
        while self._queue and self._has_room():
            task = self._queue.popleft()
            if task.status == "queued":
                self._place(task)

    def _has_room(self) -> bool:
        return self._room > 0 and self._running < self.world.most_running

    def _chance(self, task: Task) -> Random:
        """The same for the n-th stay of a job, whatever is compared: luck is not what differs."""
        stays = len(self.truth[task.job].stays)
        name = int(task.job) if task.job.isdigit() else sum(map(ord, task.job))
        return Random((self._seed * _PRIMES[0] + name) * _PRIMES[1] + stays)  # noqa: S311

    def _place(self, task: Task) -> bool:
        if not self._has_room():
            return False
        chance = self._chance(task)
        site = self._choose(task, chance)
        machine = self._machine(task, site) if site else None
        if site is None or machine is None:
            return False
        self._room, self._running = self._room - 1, self._running + 1
        begins = max(self.kernel.now + self.world.match.draw(chance), self._next_start)
        self._next_start = max(self._next_start, self.kernel.now) + 1.0 / self.world.starts_per_s
        task.status, version = "matched", task.version
        self.kernel.at(begins, lambda: self._start(task, version, site, machine, chance))
        return True

    def _choose(self, task: Task, chance: Random) -> Site | None:
        """By how many slots are free."""
        free = [(name, len(slots)) for name, slots in self._free.items() if slots and name not in task.sites]
        place = chance.random() * sum(count for _, count in free)
        for name, count in free:
            place -= count
            if place < 0:
                return self._sites[name]
        return self._sites[free[-1][0]] if free else None

    def _machine(self, task: Task, site: Site) -> str | None:
        slots = self._free[site.name]
        if not task.machines:
            return slots.pop()
        place = next((place for place in reversed(range(len(slots))) if slots[place] not in task.machines), None)
        return None if place is None else slots.pop(place)

    # Stays

    def _start(self, task: Task, version: int, site: Site, machine: str, chance: Random) -> None:
        if task.version != version or task.status != "matched":
            self._free_slot(site, machine)
            return
        truth, now = self.truth[task.job], self.kernel.now
        done, whose, kept = truth.newest_checkpoint(now)
        if whose is not None:
            whose.kept_s = max(whose.kept_s, kept)
        course = self.behaviour.course(site, done, self._is_warm(truth, site), self._around, chance)
        task.stay = Stay(site, machine, now, course, done, self.behaviour.checkpoint_s)
        task.starts, task.status = task.starts + 1, "running"
        self._wait_until_now(task, Phase.QUEUED)
        truth.stays.append(task.stay)
        lasts = course.seconds
        evicted = chance.expovariate(site.evictions) if site.evictions else lasts
        self.kernel.at(now + min(lasts, evicted), lambda: self._leave(task, version, evicted < lasts))
        self._tell(task, "placed")

    def _is_warm(self, truth: JobTruth, site: Site) -> bool:
        if self.world.shares_warmth:
            return self._around.is_warm(site)
        return any(stay.site is site for stay in truth.stays)

    def _wait_until_now(self, task: Task, phase: Phase) -> None:
        if self.kernel.now > task.queued:
            self.truth[task.job].waits.append(Span(phase, task.queued, self.kernel.now))

    def _leave(self, task: Task, version: int, evicted: bool) -> None:
        if task.version != version or task.stay is None:
            return
        self._end(task, EVICTED if evicted else task.stay.course.ending)
        if evicted:
            self._tell(task, "stopped")
            task.stay = None
            self._enqueue(task)
        else:
            self._over(task, "ended")

    def _end(self, task: Task, ending: Ending) -> None:
        stay = task.stay
        assert stay is not None
        stay.ended, stay.ending = self.kernel.now, ending
        task.version += 1
        self._free_slot(stay.site, stay.machine)

    def _free_slot(self, site: Site, machine: str) -> None:
        self._running -= 1
        self._add_slot(site, machine)

    def _add_slot(self, site: Site, machine: str) -> None:
        self._free[site.name].append(machine)
        self._room += 1
        self._match_soon()

    def _over(self, task: Task, how: str) -> None:
        task.status, task.version = "gone", task.version + 1
        self._tell(task, how)
        task.stay = None

    # What happened

    def job(self, name: str, ending: Ending, verified: bool) -> Job:
        """As reports have it."""
        truth = self.truth.get(name, JobTruth())
        ordered = sorted(truth.stays, key=lambda stay: stay.began)
        attempts = tuple(stay.drawn(number, self.kernel.now) for number, stay in enumerate(ordered, 1))
        succeeded = ending.outcome is Outcome.SUCCEEDED
        ended = min((a.end for a in attempts if a.outcome is Outcome.SUCCEEDED), default=None) if succeeded else None
        last = ended if ended is not None else max((a.end for a in attempts), default=self.kernel.now)
        held_in = attempts[-1].spans[-1].phase if attempts and ending.outcome in _HELD else None
        told = (verified if succeeded else None, ending.category, ending.reason, held_in)
        return Job(name, attempts, ending.outcome, truth.submitted, last, tuple(truth.waits), *told)


_HELD = (Outcome.HELD, Outcome.TIME_LIMIT)
