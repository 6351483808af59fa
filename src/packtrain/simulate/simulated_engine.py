"""The simulated pool as an Engine: tells what HTCondor's would, in the same words, by a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from packtrain.engines.api import Capabilities, Sighting, Ticket
from packtrain.errors import EXIT_CONTINUE_ELSEWHERE
from packtrain.events import Event, Failure, kinds
from packtrain.report.history import Outcome, Phase
from packtrain.simulate.event_queue import Kernel
from packtrain.simulate.job_behaviour import Behaviour, Ending
from packtrain.simulate.pool_model import World
from packtrain.simulate.simulated_pool import Pool
from packtrain.simulate.slot_session import Stay, Task

_ABLE = Capabilities("simulated", True, 1 << 20, 1 << 40, 1 << 20, shares_folder=False, journals=False, many_sites=True)
STEPS = 10_000  # of a training, so that its progress is a whole number
_CODES = {Outcome.TIME_LIMIT: (47, 0), Outcome.HELD: (13, 0)}
_IDLE_S = 3600.0  # looks at least so often, if time alone changes nothing


class SimulatedEngine:
    """`restless`: whether time alone may change what the supervisor decides; then it looks every `pause_s`."""

    def __init__(
        self,
        run: str,
        world: World,
        behaviour: Behaviour,
        seed: int,
        pause_s: float = 30.0,
        glimpse_s: float = 900.0,
        surveys: float = 40.0,
    ) -> None:
        self.capabilities = replace(_ABLE, pause_s=pause_s, surveys=surveys)
        self.kernel = Kernel()
        self.pool = Pool(world, behaviour, self.kernel, seed, self._hear)
        self.restless: Callable[[], bool] = lambda: True
        self._run, self._glimpse_s = run, glimpse_s
        self._tasks: dict[str, Task] = {}
        self._over: dict[str, str] = {}  # the jobs of decisions whose tasks are gone
        self._sets: dict[tuple[str, ...], frozenset[str]] = {}
        self._news: list[Sighting] = []

    def clock(self) -> float:
        return self.kernel.now

    # The protocol

    def submit(self, tickets: Sequence[Ticket]) -> Mapping[str, str]:
        for ticket in tickets:
            if ticket.decision not in self._tasks and ticket.decision not in self._over:
                asked = ticket.amendment
                avoid = self._set(asked.avoid_sites), self._set(asked.avoid_machines)
                task = self._tasks[ticket.decision] = Task(ticket.decision, ticket.job.id, self.kernel.now, *avoid)
                self.pool.submit(task)
        return {}

    def look(self, tickets: Sequence[Ticket]) -> Sequence[Sighting]:
        known = (self._tasks[ticket.decision] for ticket in tickets if ticket.decision in self._tasks)
        over = (ticket for ticket in tickets if ticket.decision in self._over)
        alive = [Sighting(task.name, task.job, _standing(task)) for task in known]
        return alive + [Sighting(t.decision, t.job.id, "gone", detail="it ended") for t in over]

    def _set(self, names: tuple[str, ...]) -> frozenset[str]:
        """Thousands of attempts avoid the same."""
        return self._sets.setdefault(names, frozenset(names))

    def cancel(self, decisions: Sequence[str]) -> None:
        for decision in decisions:
            if decision in self._tasks:
                self.pool.remove(self._tasks[decision])

    def release(self, decisions: Sequence[str]) -> None:
        for decision in decisions:
            if decision in self._tasks:
                self.pool.release(self._tasks[decision])

    def accept(self, tickets: Sequence[Ticket]) -> None:
        """Nothing was made."""

    def poll(self) -> Sequence[Sighting]:
        news, self._news = self._news, []
        return news

    def wait(self, timeout: float) -> None:
        """Time passes: until something is told, and a pause longer, so that much is told at once."""
        until = self.kernel.now + (timeout if self.restless() else _IDLE_S)
        while not self._news and (due := self.kernel.next_at) is not None and due <= until:
            self.kernel.step()
        self.kernel.run_until(min(until, self.kernel.now + timeout) if self._news else until)

    # What happens

    def _hear(self, task: Task, what: str) -> None:
        _TELLERS[what](self, task)
        if task.status == "gone":
            self._over[task.name] = self._tasks.pop(task.name).job

    def _placed(self, task: Task) -> None:
        assert task.stay is not None
        task.spoken, task.emitter = 0, f"agent-{task.name}-{task.starts}"
        about = {"decision": task.name, "host": task.stay.machine, "site": task.stay.site.name, "pid": 1}
        self._tell(task, "placed", events=(self._word(task, kinds.ATTEMPT_STARTED, about),), start=task.starts)
        stay = task.stay
        if stay.computes_s:
            self.kernel.at(stay.computes_at, lambda: self._computes(task, stay))

    def _computes(self, task: Task, stay: Stay) -> None:
        if task.stay is not stay:
            return
        words = [self._word(task, kinds.STAGE_STARTED, {"stage": "steps"})]
        if stay.done:
            words.insert(0, self._word(task, kinds.CHECKPOINT_RESTORED, _counted(stay.done)))
        self._news.append(Sighting(task.name, task.job, "running", events=tuple(words)))
        self.kernel.at(self.kernel.now + self._glimpse_s, lambda: self._glimpse(task, stay))

    def _stopped(self, task: Task) -> None:
        assert task.stay is not None and task.stay.ending is not None
        ending = task.stay.ending
        emitters = (task.emitter,)
        told = {"detail": ending.reason, "kind": ending.kind, "emitters": emitters, "start": task.starts}
        self._tell(task, "stopped", events=self._saves(task), **told)

    def _ended(self, task: Task) -> None:
        assert task.stay is not None and task.stay.ending is not None
        ending = task.stay.ending
        if ending.outcome in _CODES:
            self.pool.hold(task)
            told = {"detail": ending.reason, "kind": ending.kind, "action": "give_up", "code": _CODES[ending.outcome]}
            self._tell(task, "held", start=task.starts, events=self._saves(task), **told)
            return
        self._farewell(task, task.stay, ending, "it ended")

    def _removed(self, task: Task) -> None:
        if task.stay is not None and task.stay.ending is not None and task.stay.ending.outcome is Outcome.CONTINUES:
            self._farewell(task, task.stay, task.stay.ending, "it was removed")
        else:
            self._tell(task, "gone", detail="it was removed", start=task.starts)

    def _released(self, task: Task) -> None:
        self._tell(task, "released")

    def _saves(self, task: Task) -> tuple[Event, ...]:
        """The newest checkpoint, if there is one."""
        assert task.stay is not None
        done, _ = task.stay.checkpoint(self.kernel.now)
        return (self._word(task, kinds.CHECKPOINT_SAVED, _counted(done)),) if done else ()

    def _farewell(self, task: Task, stay: Stay, ending: Ending, detail: str) -> None:
        last = _last_word(ending, stay)
        computed = stay.computed(stay.ended)
        words = [] if ending.outcome is Outcome.SUCCEEDED else [*self._saves(task)]  # nobody will go on from there
        if computed:
            words.append(self._word(task, kinds.STAGE_ENDED, {"stage": "steps", "seconds": computed}))
        words.append(self._word(task, kinds.ATTEMPT_ENDED, last))
        self._tell(task, "gone", events=tuple(words), exit_code=last["exit_code"], detail=detail, start=task.starts)

    # Words

    def _tell(self, task: Task, status: str, **more: Any) -> None:
        task.serial += 1
        stay = task.stay
        site, host = (stay.site.name, stay.machine) if stay else ("", "")
        serial = int(task.name.rpartition("-")[2] or 1) << 20 | task.serial  # one job's log has all its decisions
        when = self.kernel.now
        self._news.append(Sighting(task.name, task.job, status, site=site, host=host, serial=serial, when=when, **more))

    def _word(self, task: Task, kind: str, data: dict[str, Any]) -> Event:
        task.spoken += 1
        now = self.kernel.now
        return Event(self._run, task.job, task.emitter, task.spoken, kind, now, now, data)

    def _glimpse(self, task: Task, stay: Stay) -> None:
        """As agents tell through the pool how far they are: the newest replaces what was before."""
        if task.stay is not stay:
            return
        now = self.kernel.now
        saved, _ = stay.checkpoint(now)
        seen = {"decision": task.name, "stage": "steps", **_counted(stay.progress(now)), "seen": now}
        seen["checkpoint"] = _counted(saved) if saved else {}
        self._news.append(Sighting(task.name, task.job, "running", glimpse=seen))
        self.kernel.at(now + self._glimpse_s, lambda: self._glimpse(task, stay))


_TELLERS: Mapping[str, Callable[[SimulatedEngine, Task], None]] = {
    "placed": SimulatedEngine._placed,
    "stopped": SimulatedEngine._stopped,
    "ended": SimulatedEngine._ended,
    "removed": SimulatedEngine._removed,
    "released": SimulatedEngine._released,
}


def _standing(task: Task) -> str:
    return "running" if task.status in ("matched", "running") else task.status


def _counted(done: float) -> dict[str, Any]:
    return {"step": int(done * STEPS), "total_steps": STEPS}


def _last_word(ending: Ending, stay: Stay) -> dict[str, Any]:
    seconds = stay.ended - stay.began
    if ending.outcome is Outcome.SUCCEEDED:
        return {"outcome": "succeeded", "exit_code": 0, "seconds": seconds}
    if ending.outcome is Outcome.CONTINUES:
        step, code = _counted(stay.progress(stay.ended))["step"], EXIT_CONTINUE_ELSEWHERE
        return {"outcome": "continue", "exit_code": code, "seconds": seconds, "step": step, "reason": ending.reason}
    moving = not any(piece.phase is Phase.EXECUTE for piece in stay.course.pieces)
    failure = Failure.of(ending.kind, "fetch" if moving else "steps", ending.reason)
    return {"outcome": "failed", "exit_code": failure.exit_code, "seconds": seconds, "failure": failure.to_data()}
