"""What policies go by besides the state: the plan's limits, and what the engine is like. Fixed for a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from packtrain.engines.api import Capabilities
from packtrain.engines.htcondor.submit_description import has_site_requirements
from packtrain.plan import Job, Limits, Plan, Recovery

_NO_LIMITS, _DEFAULT_RECOVERY = Limits(), Recovery()


@dataclass(frozen=True)
class PolicyConfig:
    recovery: Recovery = _DEFAULT_RECOVERY
    jobs: Mapping[str, Job] = field(default_factory=dict)
    many_sites: bool = False
    user_pinned_sites: bool = False  # the user says where it has to run: no other place can be had
    max_memory_mb: int = 1 << 40  # of the largest machine
    outputs_staged: bool = False  # what attempts make comes home apart, and only what is accepted is put in its place

    @classmethod
    def from_plan(cls, plan: Plan, engine: Capabilities) -> PolicyConfig:
        jobs = {job.id: job for job in plan.jobs}
        apart = not engine.has_shared_folder
        return cls(plan.recovery, jobs, engine.has_multiple_sites, _has_pinned_sites(plan), engine.memory_mb, apart)

    def limits(self, job: str) -> Limits:
        return self.jobs[job].limits if job in self.jobs else _NO_LIMITS

    @property
    def sites_to_confirm(self) -> int:
        """At how many sites a mistake must be seen before it is the user's. Where there is only one there is no other
        evidence than different jobs that fail alike on it."""
        return 2 if self.can_move else 1

    @property
    def can_move(self) -> bool:
        return self.many_sites and not self.user_pinned_sites

    @property
    def handles_stragglers(self) -> bool:
        return self.recovery.straggler_budget > 0 and self.can_move and self.outputs_staged

    def can_move_job(self, job: str) -> bool:
        """Whether another attempt, wherever it runs, finds what this one saved."""
        return job in self.jobs and not self._has_local_output(job)

    def can_copy_job(self, job: str) -> bool:
        """Whether two attempts of it may be alive: never where its agents write to the user's own place."""
        return job in self.jobs and self._has_local_output(job)

    def _has_local_output(self, job: str) -> bool:
        output = self.jobs[job].output
        return output is None or output.location.url.startswith("file:")

    def uses_transfer_plugin(self, job: str) -> bool:
        return job in self.jobs and any(source.transfer == "plugin" for source in self.jobs[job].inputs)


def _has_pinned_sites(plan: Plan) -> bool:
    return has_site_requirements((line.key, str(line.value)) for line in plan.htcondor)
