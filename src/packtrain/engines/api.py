"""The protocol between the supervisor and an engine.

All calls are batched, because a pool has thousands of attempts. An attempt is identified by its attempt id, which the
supervisor stores before it calls the engine. Submitting the same attempt id again must not start it a second time:
after a crash, a new supervisor repeats the call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from packtrain.engines.updates import AttemptUpdate
from packtrain.plan import Job

_MAX_UPDATES_PER_S = 20  # live updates of all jobs of a run together
_MIN_LIVE_INTERVAL_S = 2


def min_live_interval_s(n_jobs: int) -> int:
    """Return the minimum time in seconds between two live updates of one job.

    All jobs of a run together send at most 20 updates per second, so that they do not overload the access point.

    Args:
        n_jobs: Number of jobs of the run.
    """
    return max(_MIN_LIVE_INTERVAL_S, math.ceil(n_jobs / _MAX_UPDATES_PER_S))


@dataclass(frozen=True)
class Overrides:
    """Settings of an attempt that differ from the plan because of earlier failures."""

    memory_factor: float = 1.0  # multiplies the planned memory
    disk_factor: float = 1.0  # multiplies the planned disk space
    avoid_sites: tuple[str, ...] = ()
    avoid_nodes: tuple[str, ...] = ()
    fetch_with_agent: bool = False  # the agent fetches the inputs that HTCondor's plugins failed to fetch

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Overrides:
        """Create overrides from the event data that `to_data` returned.

        Args:
            data: Keys that are not fields of this class are ignored.
        """
        names = {field.name for field in fields(cls)} & data.keys()
        values: dict[str, Any] = {n: tuple(data[n]) if isinstance(data[n], list) else data[n] for n in names}
        return cls(**values)

    def to_data(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as JSON values."""
        changed = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.default != getattr(self, field.name)
        }
        return {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()}

    def apply_to(self, job: Job) -> Job:
        """Return the job with its memory and the transfer methods of its inputs overridden.

        Disk space, sites and nodes are not part of a job; the engine applies them.

        Args:
            job: The job as planned.
        """
        memory = math.ceil(job.resources.mem_per_cpu_mb * self.memory_factor)
        inputs = tuple(
            replace(s, transfer="agent")
            if self.fetch_with_agent and s.transfer == "plugin" and not s.plugin_schemes
            else s
            for s in job.inputs
        )
        return replace(job, resources=replace(job.resources, mem_per_cpu_mb=memory), inputs=inputs)


NO_OVERRIDES = Overrides()


@dataclass(frozen=True)
class SubmitRequest:
    """One attempt to submit. The overrides are already applied to the job."""

    attempt_id: str
    job: Job
    overrides: Overrides = NO_OVERRIDES


@dataclass(frozen=True)
class Capabilities:
    """The resources that an engine can give to one job, and how the supervisor should use the engine."""

    name: str
    supports_containers: bool
    cpus: int
    memory_mb: int
    gpus: int
    has_shared_folder: bool = True  # agents write into the run folder; if not, journals arrive when an attempt ends
    poll_interval_s: float = 0.2
    writes_journals: bool = True  # agents write journals; if not, all their events arrive through the engine
    max_straggler_checks: float = 100.0  # maximum number of straggler checks during the time that one job takes
    has_multiple_sites: bool = False  # attempts may run at different sites, and sites can be avoided
    has_pinned_sites: bool = False  # the user chose the sites of the run, so packtrain cannot choose others


class Engine(Protocol):
    """Submits attempts, reports their status and cancels them.

    Order of calls: a supervisor that starts or resumes a run first calls `recover` with all attempts that its store
    has and that are not finished, then `submit` with those that `recover` did not report. After that it repeats
    `poll`, acts on the updates with `submit`, `cancel`, `release` and `commit_outputs`, and calls `wait`.

    A program that only shows a run may call `recover`, but never `poll`: `poll` acts on the pool.

    An engine object is used by one thread. Several engine objects for the same run may exist at the same time, in
    different processes. Attempts outlive the engine object.

    Every method is repeatable: calling it again with the same arguments, also from another object after a crash, has
    the effect of one call. Empty arguments are allowed and do nothing.

    Temporary failures, such as a schedd that does not answer, do not raise, except in `recover`: the engine repeats the
    action during later calls of `poll`, and reports with `Queued` why an attempt waits. No other exceptions are part of
    the protocol; the supervisor does not survive them.
    """

    @property
    def capabilities(self) -> Capabilities:
        """The resources and the properties of this engine. They do not change."""
        ...

    def submit(self, requests: Sequence[SubmitRequest]) -> Mapping[str, str]:
        """Submit attempts. They start when there is room, in the order of submission.

        An attempt that is queued, running or finished is not started again, even if another engine object submitted
        it. An attempt that the pool rejects for good is reported by `poll` as `Gone` with a failure kind.

        Args:
            requests: The attempts. The same attempt id may occur more than once.

        Returns:
            Native ids by attempt id. Attempts without a native id yet are missing.
        """
        ...

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        """Return what is known about attempts, including those that an earlier process submitted.

        Unknown attempts are left out. From now on `poll` reports those that are not finished. An attempt that this
        call reports as `Gone` is not reported by `poll` again. The call changes nothing in the pool, and does not
        consume updates of other attempts.

        Args:
            requests: The attempts that the supervisor has stored.

        Returns:
            For each known attempt everything that happened to it, in order. The updates of an attempt that waits or
            runs end with `Queued` or `Running`, so that each known attempt has at least one.

        Raises:
            UnavailableError: The pool does not answer. Call again later, before `submit`: an attempt that the pool
                already has must not be started twice.
        """
        ...

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        """Cancel attempts.

        The engine sends SIGTERM to a running agent, and SIGKILL after the grace period. A queued attempt never starts.
        `poll` reports each cancelled attempt as `Gone`.

        Args:
            attempt_ids: The attempts to cancel. Unknown and finished ones are ignored.
        """
        ...

    def release(self, attempt_ids: Sequence[str]) -> None:
        """Release held attempts, so that the pool starts them again. `poll` reports them as `Released`.

        Args:
            attempt_ids: The attempts to release. Those that are not held are ignored.
        """
        ...

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        """Move the outputs that the pool returned for these attempts to the output locations of their jobs.

        Call this after an attempt is `Gone` and the supervisor has accepted it; at most one attempt per job.
        Each file is moved completely or not at all. Call again after an error to move the rest.
        Engines whose agents upload the outputs themselves do nothing.

        Args:
            requests: The accepted attempts.

        Raises:
            OSError: A file could not be moved, for example because the disk is full.
        """
        ...

    def poll(self) -> Sequence[AttemptUpdate]:
        """Return new updates for tracked attempts, in the order in which things happened to each.

        Tracked are attempts that this object submitted or recovered. A running attempt may be reported repeatedly; a
        finished one is reported as `Gone` exactly once. When it is reported, its journal is complete.
        The call also starts queued attempts and repeats actions that failed temporarily.
        """
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait until something may have changed, or the timeout expires. Returning early is always allowed.

        Args:
            timeout_s: Maximum time to wait, in seconds.
        """
        ...
