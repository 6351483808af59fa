"""One attempt: its stages in order, the first real error, and the event that ends it.

    probe → fetch → unpack → steps → check      the first failure ends this row
    sync → clean                                always

The first failure is the attempt's; what fails later is a notice.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
import traceback
from contextlib import ExitStack, suppress
from typing import Any, Callable

from packtrain.agent.checks import check_outputs
from packtrain.agent.cleanup import remove_tree
from packtrain.agent.context import Context, Tally
from packtrain.agent.guard import Guard
from packtrain.agent.inputs import fetch_inputs, unpack_inputs
from packtrain.agent.log import AgentLog
from packtrain.agent.metrics import MetricsFollower
from packtrain.agent.outputs import inventory, under
from packtrain.agent.probe import probe
from packtrain.agent.process import Processes
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.steps import StepRunner
from packtrain.agent.stop import Stop
from packtrain.agent.sync import ContinuousSync, partial_prefix, sync_outputs
from packtrain.errors import EXIT_OK
from packtrain.events import Failure, Journal, Redactor, kinds
from packtrain.plan import Job
from packtrain.transfer.depot import Depot

_FULL = (errno.ENOSPC, errno.EDQUOT)

Work = Callable[[Context, Tally], None]


def run_steps(context: Context, tally: Tally) -> None:
    """Raises FailedError: step_failed, container_failed, out_of_memory, …"""
    runner = StepRunner(
        context.job,
        context.box,
        context.journal,
        context.redactor,
        context.secrets.reveal,
        context.stop,
        os.environ,
        context.journal.run,
        context.processes,
    )
    with ExitStack() as stack:
        stack.enter_context(MetricsFollower(context))
        if context.job.output is not None and context.job.output.continuous:
            stack.enter_context(ContinuousSync(context, context.job.output))
        runner.run_all()


FORWARD: tuple[tuple[str, Work], ...] = (
    ("probe", probe),
    ("fetch", fetch_inputs),
    ("unpack", unpack_inputs),
    ("steps", run_steps),
    ("check", check_outputs),
)


def run_attempt(
    job: Job,
    box: Sandbox,
    journal: Journal,
    secrets: Secrets,
    redactor: Redactor,
    stop: Stop,
    claim: int,
    started: float,
    depot: Depot | None = None,
) -> int:
    """All of an attempt after its first event; the agent's exit code. No thread may run yet: the guard is forked."""
    guard = Guard.start((claim,))
    log = AgentLog(box.home.agent_log, redactor)
    processes = Processes(guard, job.limits.grace_s)
    context = Context(job, box, journal, log, secrets, redactor, stop, processes, depot)
    code = Attempt(context, started).run()
    guard.quit()
    return code


class Attempt:
    def __init__(self, context: Context, started: float) -> None:
        self._context, self._started = context, started
        self._failure: Failure | None = None
        self._outputs: list[dict[str, Any]] = []
        self._freed = 0

    def run(self) -> int:
        """The agent's exit code."""
        limit = self._wall_limit()
        for name, work in FORWARD:
            if self._failure is None:
                self._stage(name, _stoppable(work))
        self._stage("sync", self._sync)
        self._stage("clean", self._clean)
        if limit is not None:
            limit.cancel()
        return self._end()

    def _wall_limit(self) -> threading.Timer | None:
        seconds = self._context.job.limits.wall_time_s
        if seconds is None:
            return None
        detail = f"the job was stopped at its `limits.wallTime` of {seconds:g} s"
        timer = threading.Timer(seconds, self._context.stop.request, ("wall_time", detail))
        timer.daemon = True
        timer.start()
        return timer

    def _stage(self, name: str, work: Work) -> None:
        started, tally = time.monotonic(), Tally()
        failure: Failure | None = None
        try:
            self._context.journal.emit(kinds.STAGE_STARTED, stage=name)
            work(self._context, tally)
        except Exception as error:
            failure = self._record(error, name)
        self._tell_end(name, time.monotonic() - started, failure, tally)

    def _tell_end(self, stage: str, seconds: float, failure: Failure | None, tally: Tally) -> None:
        data = failure.to_data() if failure else None
        try:
            self._context.journal.emit(kinds.STAGE_ENDED, stage=stage, seconds=round(seconds, 3), failure=data, **tally)
        except OSError as error:
            self._record(error, stage)

    def _record(self, error: Exception, stage: str) -> Failure:
        """The first failure is the attempt's; a later one is worth a notice."""
        failure = failure_of(error, stage)
        self._context.log.line(f"{stage}: {failure.kind}: {failure.detail}")
        if failure.kind == "internal":
            self._context.log.line("".join(traceback.format_exception(type(error), error, error.__traceback__)))
        if self._failure is None:
            self._failure = failure
        else:
            with suppress(OSError):
                self._context.notice(stage, failure.detail)
        return failure

    def _sync(self, context: Context, tally: Tally) -> None:
        good = self._failure is None
        outputs = inventory(context.box.output, digest=good)
        self._outputs = under(partial_prefix(context), outputs)
        if good:
            sync_outputs(context, "", tally)
            self._outputs = outputs
        elif outputs:
            sync_outputs(context, partial_prefix(context), tally)

    def _clean(self, context: Context, tally: Tally) -> None:
        context.processes.terminate_all()
        cleaned = remove_tree(context.box.root)
        self._freed = cleaned.bytes
        tally.update(files=cleaned.files, bytes=cleaned.bytes)
        for problem in cleaned.problems:
            context.notice("clean", f"could not be removed: {problem}")

    def _end(self) -> int:
        failure = self._failure
        code = failure.exit_code if failure else EXIT_OK
        with suppress(OSError):  # the exit code still tells
            self._context.journal.emit(
                kinds.ATTEMPT_ENDED,
                outcome="failed" if failure else "succeeded",
                exit_code=code,
                failure=failure.to_data() if failure else None,
                outputs=self._outputs,
                freed_bytes=self._freed,
                seconds=round(time.monotonic() - self._started, 3),
            )
        self._say(f"ended with exit code {code}" + (f": {failure.detail}" if failure else ""))
        return code

    def _say(self, text: str) -> None:
        """The last line, here and wherever the engine keeps what agents print."""
        self._context.log.line(text)
        with suppress(OSError):
            sys.stderr.write(self._context.redactor.text(f"packtrain: {text}\n"))


def _stoppable(work: Work) -> Work:
    def check_first(context: Context, tally: Tally) -> None:
        context.stop.check()
        work(context, tally)

    return check_first


def failure_of(error: Exception, stage: str) -> Failure:
    """A full disk shows up anywhere, as an OSError of whoever wrote."""
    if isinstance(error, OSError) and error.errno in _FULL:
        where = f" at {error.filename}" if error.filename else ""
        return Failure.of("disk_full", stage, f"the disk is full{where}: {error.strerror}")
    return Failure.from_error(error, stage)
