"""The protocol between the supervisor and an engine.

All calls are batched, because a pool has thousands of attempts. An attempt is identified by its attempt id, which the
supervisor stores before it calls the engine. Submitting the same attempt id again must not start it a second time:
after a crash, a new supervisor repeats the call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from packtrain.events import Event
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
            replace(s, transfer="agent") if self.fetch_with_agent and s.transfer == "plugin" else s for s in job.inputs
        )
        return replace(job, resources=replace(job.resources, mem_per_cpu_mb=memory), inputs=inputs)


NO_OVERRIDES = Overrides()


@dataclass(frozen=True)
class SubmitRequest:
    """One attempt to submit. The overrides are already applied to the job."""

    attempt_id: str
    job: Job
    overrides: Overrides = NO_OVERRIDES


@dataclass(slots=True)
class AttemptUpdate:
    """The status of one attempt, or one thing that happened to it.

    The meaning depends on `status`:

    * `queued`, `running`: the current status.
    * `started`: the pool started an execution; `execution` is its number.
    * `interrupted`: the pool ended that execution and put the attempt back into the queue.
    * `transfer`: the pool moves files; see `transfer_direction` and `transfer_state`.
    * `held`: the pool holds the attempt; see `hold_code` and `hold_action`.
    * `released`: the pool no longer holds it.
    * `gone`: the engine no longer has the attempt. This is the last update.

    Treat updates as immutable. The class is not frozen because creating a frozen object takes three times as long, and
    a pool produces many updates.
    """

    attempt_id: str
    job_id: str
    status: str
    native_id: str = ""  # the engine's own name for the attempt
    site: str = ""
    exit_code: int | None = None  # of a gone attempt, if known
    detail: str = ""  # a message for the user
    failure_kind: str = ""  # if the engine knows it
    seq: int = 0  # position in the engine's log, the same for every reader; 0: not from a log
    occurred_at: float = 0.0  # Unix time from the engine's log; 0: now
    execution: int = 0  # number of the execution, from 1; 0: none
    host: str = ""  # the node of the execution
    hold_action: str = ""  # of a hold: release, wait, give_up
    hold_code: tuple[int, int] = (0, 0)  # of a hold: HTCondor's code and subcode
    agent_events: tuple[Event, ...] = ()  # events that the agent sent through the engine
    transfer_direction: str = ""  # of a transfer: in, out
    transfer_state: str = ""  # of a transfer: queued, started, finished
    emitters: tuple[str, ...] = ()  # of an interrupted or held execution: the agents that sent events during it
    progress: Mapping[str, Any] = field(default_factory=dict)  # a snapshot that replaces the one before


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

    Temporary failures, such as a schedd that does not answer, do not raise, except in `recover`: the engine repeats the
    action during later calls of `poll`, and reports with a `queued` update why an attempt waits.
    """

    @property
    def capabilities(self) -> Capabilities:
        """The resources and the properties of this engine. They do not change."""
        ...

    def submit(self, requests: Sequence[SubmitRequest]) -> Mapping[str, str]:
        """Submit attempts. They start when there is room, in the order of submission.

        Repeatable: an attempt that is queued, running or finished is not started again, even if another engine object
        submitted it. An attempt that the pool rejects for good is reported by `poll` as `gone` with a failure kind.

        Args:
            requests: The attempts. The same attempt id may occur more than once.

        Returns:
            Native ids by attempt id. Attempts without a native id yet are missing.
        """
        ...

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        """Return what is known about attempts, including those that an earlier process submitted.

        Unknown attempts are left out. From now on `poll` reports those that are not finished. An attempt that this
        call reports as `gone` is not reported by `poll` again. The call changes nothing in the pool, and does not
        consume updates of other attempts.

        Args:
            requests: The attempts that the supervisor has stored.

        Returns:
            For each known attempt everything that happened to it, in order, and its current status as the last update.

        Raises:
            UnavailableError: The pool does not answer. Call again later, before `submit`: an attempt that the pool
                already has must not be started twice.
        """
        ...

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        """Cancel attempts.

        The engine sends SIGTERM to a running agent, and SIGKILL after the grace period. A queued attempt never starts.
        `poll` reports each cancelled attempt as `gone`. Repeatable; unknown and finished attempts are ignored.

        Args:
            attempt_ids: The attempts to cancel.
        """
        ...

    def release(self, attempt_ids: Sequence[str]) -> None:
        """Release held attempts, so that the pool starts them again.

        Repeatable; attempts that are not held are ignored.

        Args:
            attempt_ids: The attempts to release.
        """
        ...

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        """Move the outputs that the pool returned for these attempts to the output locations of their jobs.

        Call this after an attempt is `gone` and the supervisor has accepted it; at most one attempt per job.
        Each file is moved completely or not at all. Repeatable, also after an error.
        Engines whose agents upload the outputs themselves do nothing.

        Args:
            requests: The accepted attempts.

        Raises:
            OSError: A file could not be moved, for example because the disk is full.
        """
        ...

    def poll(self) -> Sequence[AttemptUpdate]:
        """Return status updates for tracked attempts.

        Tracked are attempts that this object submitted or recovered. A running attempt may be reported repeatedly; a
        finished one is reported as `gone` exactly once. When it is reported, its journal is complete.
        The call also starts queued attempts and repeats actions that failed temporarily.
        """
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait until something may have changed, or the timeout expires.

        Args:
            timeout_s: Maximum time to wait, in seconds.
        """
        ...
