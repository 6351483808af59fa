"""What policies go by besides the state: the plan's limits, and what the engine is like. Fixed for a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from packtrain.engines.api import Capabilities
from packtrain.engines.htcondor.submit_description import names_places
from packtrain.plan import Job, Limits, Plan, Recovery

_NO_LIMITS, _USUAL = Limits(), Recovery()


@dataclass(frozen=True)
class Rules:
    recovery: Recovery = _USUAL
    jobs: Mapping[str, Job] = field(default_factory=dict)
    many_sites: bool = False
    pinned: bool = False  # the user says where it has to run: no other place can be had
    memory_mb: int = 1 << 40  # of the largest machine
    apart: bool = False  # what attempts make comes home apart, and only what is accepted is put in its place

    @classmethod
    def of(cls, plan: Plan, engine: Capabilities) -> Rules:
        jobs = {job.id: job for job in plan.jobs}
        apart = not engine.shares_folder
        return cls(plan.recovery, jobs, engine.many_sites, _is_pinned(plan), engine.memory_mb, apart)

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

    @property
    def minds_stragglers(self) -> bool:
        return self.recovery.copies > 0 and self.can_move and self.apart

    def may_move(self, job: str) -> bool:
        """Whether another attempt, wherever it runs, finds what this one saved."""
        return job in self.jobs and not self._comes_home(job)

    def may_copy(self, job: str) -> bool:
        """Whether two attempts of it may be alive: never where its agents write to the user's own place."""
        return job in self.jobs and self._comes_home(job)

    def _comes_home(self, job: str) -> bool:
        output = self.jobs[job].output
        return output is None or output.ref.url.startswith("file:")

    def uses_plugins(self, job: str) -> bool:
        return job in self.jobs and any(source.delivery == "plugin" for source in self.jobs[job].inputs)


def _is_pinned(plan: Plan) -> bool:
    return names_places((line.key, str(line.value)) for line in plan.htcondor)
