"""What happens during one stay on a slot, as far as it can be told when it begins: drawn, not acted out.

`Wrapper` is a program under HTCondor alone, as in the published week; `Agent` is packtrain's. Both meet the same
faults by the same chances; what they make of them differs. What ends a stay early (the pool takes the slot back,
somebody removes the job) is for `pool`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, Protocol

from packtrain.report.history import Category, Outcome, Phase
from packtrain.simulate.pool_model import DATA, MACHINE, PROGRAM, Fault, Site, World


class Piece(NamedTuple):
    phase: Phase
    seconds: float
    whole: bool = True  # of a transfer: False if it came to nothing


class Ending(NamedTuple):
    outcome: Outcome
    category: Category = Category.NONE
    reason: str = ""
    kind: str = ""  # of failure, as packtrain knows it


DONE = Ending(Outcome.SUCCEEDED)
NOT_FOUND = Ending(Outcome.HELD, Category.TRANSFER, "404 page not found", "object_missing")
LIMIT = Ending(Outcome.TIME_LIMIT, Category.TIME_LIMIT, "the job exceeded its allowed execute duration", "time_limit")
LEFT = Ending(Outcome.CONTINUES, Category.NONE, "the time limit was near")
_SPOILT = {
    MACHINE: Ending(Outcome.FAILED, Category.MACHINE, "", "network_unreachable"),
    PROGRAM: Ending(Outcome.FAILED, Category.PROGRAM, "", "step_failed"),
}


@dataclass(slots=True)
class Course:
    """Pieces in their order. `computing` says how many seconds a whole job takes on this machine."""

    pieces: list[Piece] = field(default_factory=list)
    ending: Ending = DONE
    computing: float = 1.0

    def add(self, phase: Phase, seconds: float, whole: bool = True) -> None:
        if seconds > 0:
            self.pieces.append(Piece(phase, seconds, whole))

    @property
    def seconds(self) -> float:
        return sum(piece.seconds for piece in self.pieces)

    @property
    def before_computing(self) -> float:
        """Seconds until the program runs; all of them if it never does."""
        spent = 0.0
        for piece in self.pieces:
            if piece.phase is Phase.EXECUTE:
                break
            spent += piece.seconds
        return spent


class Around(Protocol):
    """What a stay meets of the world outside of its slot."""

    @property
    def world(self) -> World: ...

    def struck(self, after: float) -> float:
        """How long a service that a transfer asks then still says 404; 0 if it does not."""
        ...

    def blocked(self, site: Site, after: float) -> float:
        """How long all streams of its cache are taken."""
        ...

    def detour(self, after: float) -> float:
        """The same of the least busy of all caches."""
        ...

    def serves(self, site: Site, after: float, seconds: float, detour: bool = False) -> None:
        """A transfer takes a stream for so long."""
        ...


class Behaviour(Protocol):
    @property
    def checkpoint_s(self) -> float | None:
        """Between two checkpoints; None: there are none."""
        ...

    def course(self, site: Site, done: float, warm: bool, around: Around, chance: Random) -> Course:
        """`done`: how much of the job a checkpoint has, 0 to 1."""
        ...


def _fault(site: Site, chance: Random) -> Fault | None:
    draw = chance.random()
    for fault in site.faults:
        draw -= fault.chance
        if draw < 0:
            return fault
    return None


@dataclass(frozen=True)
class Wrapper:
    """A transfer that takes longer than the pool's timer is ended and begun again, as often as it takes; a 404 holds
    the job for good; whatever the program made is believed."""

    checkpoint_s: float | None = None

    def course(self, site: Site, done: float, warm: bool, around: Around, chance: Random) -> Course:
        stalled = site.episode.draw(chance) if chance.random() < site.stalls else 0.0
        fault, computing = _fault(site, chance), site.compute.draw(chance)
        transfer, cold = site.warm.draw(chance), site.cold.draw(chance)
        made = Course(computing=computing)
        if around.struck(0.0):
            made.add(Phase.TRANSFER_IN, 1.0, whole=False)
            made.ending = NOT_FOUND
            return made
        tries = self._tries(max(stalled, around.blocked(site, 0.0)), around.world.timer_s)
        for _ in range(tries):
            made.add(Phase.TRANSFER_IN, around.world.timer_s, whole=False)
        transfer = transfer if warm or tries else cold
        around.serves(site, made.seconds, transfer)
        made.add(Phase.TRANSFER_IN, transfer)
        self._compute(made, fault, computing, around.world.limit_s, chance)
        made.add(Phase.START, site.overhead.draw(chance))
        return made

    @staticmethod
    def _tries(blocked: float, timer_s: float) -> int:
        """As many as were seen to fit into that time: the one after the last of them comes."""
        return max(1, round(blocked / timer_s)) if blocked > 0 else 0

    @staticmethod
    def _compute(made: Course, fault: Fault | None, computing: float, limit_s: float | None, chance: Random) -> None:
        if fault:
            made.add(Phase.EXECUTE, fault.seconds.draw(chance))
            made.ending = _believed(fault)
        elif limit_s is not None and computing > limit_s:
            made.add(Phase.EXECUTE, limit_s)
            made.ending = LIMIT
        else:
            made.add(Phase.EXECUTE, computing)


def _believed(fault: Fault) -> Ending:
    """A wrapper ends with the code of its last command: only the missing output tells."""
    if fault.kind == PROGRAM:
        return _SPOILT[PROGRAM]._replace(reason=fault.reason)
    return Ending(Outcome.WRONG_OUTPUT, Category.OUTPUT, fault.reason, "output_missing")


@dataclass(frozen=True)
class Agent:
    """It probes before it moves anything, leaves a cache that sends nothing within seconds, waits while a service
    restarts, refetches what is damaged, and with checkpoints leaves before the time limit."""

    checkpoint_s: float | None = 1800.0
    probe_s: float = 2.0
    stall_s: float = 5.0  # to leave a cache that sends nothing
    patience_s: float = 300.0  # with services that say 404
    refetched: float = 0.02  # of a transfer, when some of it came damaged
    spare_s: float = 60.0  # before the time limit

    def course(self, site: Site, done: float, warm: bool, around: Around, chance: Random) -> Course:
        stalled = site.episode.draw(chance) if chance.random() < site.stalls else 0.0
        fault, computing = _fault(site, chance), site.compute.draw(chance)
        quick, cold = site.warm.draw(chance), site.cold.draw(chance)
        made = Course(computing=computing)
        made.add(Phase.START, site.overhead.draw(chance) + self.probe_s)
        if fault and fault.kind == MACHINE:
            made.ending = _SPOILT[MACHINE]._replace(reason=fault.reason)
            return made
        struck = around.struck(self.probe_s)
        made.add(Phase.TRANSFER_IN, min(struck, self.patience_s))
        if struck > self.patience_s:
            made.ending = NOT_FOUND._replace(outcome=Outcome.FAILED)
            return made
        self._fetch(made, site, stalled, quick if warm else cold, cold, around)
        if fault and fault.kind == DATA:
            made.add(Phase.TRANSFER_IN, quick * self.refetched)
        self._compute(made, fault, (1.0 - done) * computing, around.world.limit_s, chance)
        return made

    def _fetch(self, made: Course, site: Site, stalled: float, near: float, far: float, around: Around) -> None:
        """From the site's own cache, or, if that is blocked for longer than another, from the least busy one."""
        begins = made.seconds
        blocked = max(stalled, around.blocked(site, begins))
        detour = around.detour(begins) + self.stall_s
        if blocked <= detour:
            made.add(Phase.TRANSFER_IN, blocked + near)
            around.serves(site, begins + blocked, near)
        else:
            made.add(Phase.TRANSFER_IN, detour + far)
            around.serves(site, begins + detour, far, detour=True)

    def _compute(
        self, made: Course, fault: Fault | None, seconds: float, limit_s: float | None, chance: Random
    ) -> None:
        if fault and fault.kind == PROGRAM:
            made.add(Phase.EXECUTE, fault.seconds.draw(chance))
            made.ending = _SPOILT[PROGRAM]._replace(reason=fault.reason)
        elif limit_s is None or seconds <= limit_s - self.spare_s:
            made.add(Phase.EXECUTE, seconds)
        elif self.checkpoint_s is not None:
            made.add(Phase.EXECUTE, limit_s - self.spare_s)
            made.ending = LEFT
        else:
            made.add(Phase.EXECUTE, min(seconds, limit_s))
            made.ending = LIMIT if seconds > limit_s else DONE


def saved(computed: float, every: float | None) -> float:
    """Seconds of computing that the newest checkpoint has."""
    return 0.0 if every is None else math.floor(computed / every) * every
