"""What policies go by besides the state: the plan's limits, and what the engine is like. Fixed for a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from packtrain.engines.api import Capabilities
from packtrain.plan import Job, Limits, Plan, Recovery

_PLACES = re.compile(r"\bglidein_|\bmachine\b", re.IGNORECASE)
_NO_LIMITS, _USUAL = Limits(), Recovery()


@dataclass(frozen=True)
class Rules:
    recovery: Recovery = _USUAL
    jobs: Mapping[str, Job] = field(default_factory=dict)
    many_sites: bool = False
    pinned: bool = False  # the user says where it has to run: no other place can be had
    memory_mb: int = 1 << 40  # of the largest machine

    @classmethod
    def of(cls, plan: Plan, engine: Capabilities) -> Rules:
        jobs = {job.id: job for job in plan.jobs}
        return cls(plan.recovery, jobs, engine.many_sites, _is_pinned(plan), engine.memory_mb)

    def limits(self, job: str) -> Limits:
        return self.jobs[job].limits if job in self.jobs else _NO_LIMITS

    @property
    def places(self) -> int:
        """At how many sites a mistake must be seen before it is the user's. Where there is only one there is no other
        evidence than different jobs that fail alike on it."""
        return 2 if self.can_move else 1

    @property
    def can_move(self) -> bool:
        return self.many_sites and not self.pinned

    def uses_plugins(self, job: str) -> bool:
        return job in self.jobs and any(source.delivery == "plugin" for source in self.jobs[job].inputs)


def _is_pinned(plan: Plan) -> bool:
    return any(line.key.strip().lower() == "requirements" and _PLACES.search(str(line.value)) for line in plan.htcondor)
