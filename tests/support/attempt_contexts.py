"""Contexts of attempts for tests of single stages, with a real guard, journal and log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from packtrain.agent.agent_log import AgentLog
from packtrain.agent.context import AttemptContext
from packtrain.agent.processes.guard import Guard
from packtrain.agent.processes.process_table import ProcessTable
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stop_request import StopRequest
from packtrain.events import Journal
from packtrain.plan import AttemptFolder, Job


@contextmanager
def attempt_contexts(folder: Path) -> Iterator[Callable[..., AttemptContext]]:
    """Yield a function that makes contexts, and end their guards afterwards.

    The function takes the job, the emitter, the names of the sandbox and of the attempt's folder below `folder`, the
    grace period and other fields of the context. Secrets are the files in `folder / "secrets"`.
    """
    guards: list[Guard] = []

    def make(job: Job, emitter="agent-1", root="sandbox", attempt="attempt", grace_s=0.2, **fields) -> AttemptContext:
        sandbox = Sandbox(folder / root, AttemptFolder(folder / attempt))
        sandbox.create()
        secrets = Secrets(folder / "secrets")
        guards.append(Guard.start())
        journal = Journal(sandbox.attempt_folder.journal, "r", job.id, emitter, secrets.redactor)
        log = AgentLog(sandbox.attempt_folder.agent_log, secrets.redactor)
        processes = ProcessTable(guards[-1], grace_s)
        return AttemptContext(job, sandbox, journal, log, secrets, StopRequest(), processes, **fields)

    yield make
    for guard in guards:
        guard.quit()
