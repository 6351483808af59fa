"""The configuration of the policies: limits of the plan and capabilities of the engine. Fixed for a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from packtrain.engines.api import Capabilities
from packtrain.plan import Job, Limits, Plan, Recovery

_NO_LIMITS, _DEFAULT_RECOVERY = Limits(), Recovery()


@dataclass(frozen=True)
class PolicyConfig:
    """What policies need to know besides the state."""

    recovery: Recovery = _DEFAULT_RECOVERY
    jobs: Mapping[str, Job] = field(default_factory=dict)
    has_multiple_sites: bool = False  # attempts may run at different sites
    has_pinned_sites: bool = False  # the user chose the sites, so packtrain cannot choose others
    max_memory_mb: int = 1 << 40  # of the largest node
    outputs_staged: bool = False  # outputs arrive in a folder per attempt, and only accepted ones are committed

    @classmethod
    def from_plan(cls, plan: Plan, engine: Capabilities) -> PolicyConfig:
        """Return the configuration for a plan and the capabilities of its engine."""
        return cls(
            plan.recovery,
            {job.id: job for job in plan.jobs},
            has_multiple_sites=engine.has_multiple_sites,
            has_pinned_sites=engine.has_pinned_sites,
            max_memory_mb=engine.memory_mb,
            outputs_staged=not engine.has_shared_folder,
        )

    def limits(self, job: str) -> Limits:
        """Return the limits of a job."""
        return self.jobs[job].limits if job in self.jobs else _NO_LIMITS

    @property
    def sites_to_confirm(self) -> int:
        """At how many sites a failure must occur before the user is to blame.

        On a single site, the only evidence is that different jobs fail in the same way.
        """
        return 2 if self.can_move else 1

    @property
    def can_move(self) -> bool:
        """Whether packtrain can choose another site."""
        return self.has_multiple_sites and not self.has_pinned_sites

    @property
    def handles_stragglers(self) -> bool:
        """Whether slow executions are moved or copied."""
        return self.recovery.straggler_budget > 0 and self.can_move

    def can_move_job(self, job: str) -> bool:
        """Return whether an attempt at another site can reach the job's checkpoints."""
        return job in self.jobs and not self._has_local_output(job)

    def can_copy_job(self, job: str) -> bool:
        """Return whether two attempts of a job may run at once: not if agents write to the user's own storage."""
        return job in self.jobs and self.outputs_staged and self._has_local_output(job)

    def _has_local_output(self, job: str) -> bool:
        output = self.jobs[job].output
        return output is None or output.location.url.startswith("file:")

    def uses_transfer_plugin(self, job: str) -> bool:
        """Return whether the pool's transfer plugins fetch an input of a job."""
        return job in self.jobs and any(source.transfer == "plugin" for source in self.jobs[job].inputs)
