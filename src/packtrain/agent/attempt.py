"""One attempt: its stages in order, the first real error, and the event that ends it.

    probe → fetch → unpack → steps → check      the first failure ends this row
    sync → clean                                always

The first failure is the attempt's; what fails later is a notice.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Callable

from packtrain.agent.agent_log import AgentLog
from packtrain.agent.cleanup import remove_tree
from packtrain.agent.context import Context, Tally, Terms
from packtrain.agent.live.metrics import MetricsFollower
from packtrain.agent.outputs.check import check_outputs
from packtrain.agent.outputs.inventory import MOST_LISTED, inventory, under, write_list
from packtrain.agent.outputs.sync import (
    ContinuousSync,
    keep_outputs,
    left_prefix,
    partial_prefix,
    sync_outputs,
    tidy_outputs,
)
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stages.fetch import fetch_inputs, unpack_inputs
from packtrain.agent.stages.probe import probe
from packtrain.agent.steps.guard import Guard
from packtrain.agent.steps.processes import Processes
from packtrain.agent.steps.runner import StepRunner
from packtrain.agent.steps.short_tmpdir import short_temporary
from packtrain.agent.stop_request import Stop
from packtrain.agent.time_limits import LeftInTimeError, LimitWatch, discard_carried, variables_of, verdict
from packtrain.errors import EXIT_CONTINUE_HERE, EXIT_OK, FailedError
from packtrain.events import Event, Failure, Journal, kinds
from packtrain.plan import Job
from packtrain.plan.claim import hand_on
from packtrain.transfer.engine.source_stats import expect

if TYPE_CHECKING:
    from packtrain.agent.checkpoints.uploader import Checkpoints
    from packtrain.agent.live.reporter import Live
    from packtrain.agent.stages.stream_inputs import Streams

_OURS = ("PACKTRAIN_RESUME", "PACKTRAIN_DEADLINE", "PACKTRAIN_STREAM")  # of a packtrain around this one
_FULL = (errno.ENOSPC, errno.EDQUOT)

Work = Callable[[Context, Tally], None]


def fetch_all(context: Context, tally: Tally) -> None:
    """Inputs, and the checkpoint to go on from. Raises FailedError."""
    if not _taken_back(context, tally):
        fetch_inputs(context, tally)
    if context.job.checkpoint is not None:
        from packtrain.agent.checkpoints.restore import restore

        restore(context)


def _taken_back(context: Context, tally: Tally) -> bool:
    if context.keep is None:
        return False
    from packtrain.agent.stages.reuse_inputs import take_back

    return take_back(context, tally)


def unpack_all(context: Context, tally: Tally) -> None:
    """Raises FailedError."""
    if not context.saved.inputs_kept:
        unpack_inputs(context, tally)
        if context.keep is not None:
            from packtrain.agent.stages.reuse_inputs import note_inputs

            note_inputs(context)


def run_steps(context: Context, tally: Tally) -> None:
    """Raises FailedError (step_failed, container_failed, out_of_memory, …) or LeftInTimeError."""
    metrics = MetricsFollower(context)
    checkpoints = _checkpoints(context, lambda: metrics.step)
    try:
        with ExitStack() as stack:
            if checkpoints is not None:
                stack.enter_context(checkpoints)
            stack.enter_context(metrics)
            if context.job.output is not None and context.job.output.continuous:
                stack.enter_context(ContinuousSync(context, context.job.output))
            variables = {**_host_variables(), **stack.enter_context(short_temporary(os.environ, context.box.tmp))}
            _runner(context, variables, _streams(context, stack)).run_all()
        context.stop.steps_are_done()
    except FailedError as error:
        raise verdict(context, checkpoints, error) from error


def _checkpoints(context: Context, step_now: Callable[[], int | None]) -> Checkpoints | None:
    if context.job.checkpoint is None:
        return None
    from packtrain.agent.checkpoints.uploader import checkpoints_of

    return checkpoints_of(context, step_now)


def _streams(context: Context, stack: ExitStack) -> Streams | None:
    if not any(source.mode == "stream" for source in context.job.inputs):
        return None
    from packtrain.agent.stages.stream_inputs import streams_of

    return stack.enter_context(streams_of(context))


def _host_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _OURS}


def _runner(context: Context, host: Mapping[str, str], streams: Streams | None) -> StepRunner:
    return StepRunner(
        context.job,
        context.box,
        context.journal,
        context.redactor,
        context.secrets.reveal,
        context.stop,
        host,
        context.journal.run,
        context.processes,
        {**variables_of(context), **(streams.variables if streams else {})},
        context.in_container,
        streams.folders if streams else (),
    )


FORWARD: tuple[tuple[str, Work], ...] = (
    ("probe", probe),
    ("fetch", fetch_all),
    ("unpack", unpack_all),
    ("steps", run_steps),
    ("check", check_outputs),
)


def run_attempt(
    job: Job,
    box: Sandbox,
    journal: Journal,
    secrets: Secrets,
    stop: Stop,
    claim: int,
    started: float,
    terms: Terms,
    first: Event,
) -> int:
    """All of an attempt after its first event; the agent's exit code. No thread may run yet: the guard is forked."""
    guard = Guard.start((claim,))
    log = AgentLog(box.home.agent_log, secrets.redactor)
    live = _live(journal, first, terms.live_s, log, box)
    processes = Processes(guard, job.limits.grace_s)
    expect(terms.speeds)
    _beware(job)
    code = Attempt(_context(job, box, journal, log, secrets, stop, processes, terms), started).run()
    guard.quit()
    if live is not None:
        live.end()
    if code == EXIT_CONTINUE_HERE:
        hand_on(claim)
    return code


def _context(
    job: Job,
    box: Sandbox,
    journal: Journal,
    log: AgentLog,
    secrets: Secrets,
    stop: Stop,
    processes: Processes,
    terms: Terms,
) -> Context:
    carries = terms.carries and job.checkpoint is not None and not _has_a_place(job)
    return Context(
        job,
        box,
        journal,
        log,
        secrets,
        secrets.redactor,
        stop,
        processes,
        terms.depot,
        keep=terms.keep or (box.kept if terms.carries else None),
        deadline=terms.deadline,
        carried=box.carried if carries else None,
        in_container=terms.in_container,
    )


def _beware(job: Job) -> None:
    """Another attempt of the job may be alive, and write to the same names."""
    if job.output is not None:
        from packtrain.transfer.backends.s3.multipart import beware_of_rivals

        beware_of_rivals()


def _has_a_place(job: Job) -> bool:
    """For several generations of checkpoints, and what lies beside them."""
    from packtrain.agent.checkpoints.store import can_list

    return job.output is not None and can_list(job.output.ref)


def _live(journal: Journal, first: Event, every_s: float, log: AgentLog, box: Sandbox) -> Live | None:
    """None if it is not wanted, or there is nobody to speak to."""
    if not every_s:
        return None
    from packtrain.agent.live.chirp import config_of
    from packtrain.agent.live.reporter import Live, to_proxy

    config = config_of(os.environ)
    if config is None:
        log.line("live: there is no Chirp proxy here; the journal comes home at the end")
        return None
    live = Live(to_proxy(config), every_s, box.home.logs, log.line)
    live.hear(first)
    journal.listen(live.hear)
    return live.start()


class Attempt:
    def __init__(self, context: Context, started: float) -> None:
        self._context, self._started = context, started
        self._failure: Failure | None = None
        self._left: LeftInTimeError | None = None
        self._outputs: list[dict[str, Any]] = []
        self._freed = 0

    def run(self) -> int:
        """The agent's exit code."""
        watch = LimitWatch(self._context)
        for name, work in FORWARD:
            if self._goes_on:
                watch.in_steps = name == "steps"
                self._stage(name, _stoppable(work))
        watch.in_steps = False
        self._stage("sync", self._sync)
        self._stage("clean", self._clean)
        watch.end()
        return self._end()

    @property
    def _goes_on(self) -> bool:
        return self._failure is None and self._left is None

    def _stage(self, name: str, work: Work) -> None:
        started, tally = time.monotonic(), Tally()
        failure: Failure | None = None
        try:
            self._context.journal.emit(kinds.STAGE_STARTED, stage=name)
            work(self._context, tally)
        except LeftInTimeError as left:
            self._left = left
            self._context.log.line(f"{name}: {left}")
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
        """The first failure is the attempt's; a later one, or one after leaving in time, is worth a notice."""
        failure = failure_of(error, stage)
        self._context.log.line(f"{stage}: {failure.kind}: {failure.detail}")
        if failure.kind == "internal":
            import traceback

            self._context.log.line("".join(traceback.format_exception(type(error), error, error.__traceback__)))
        if self._goes_on:
            self._failure = failure
        else:
            with suppress(OSError):
                self._context.notice(stage, failure.detail)
        return failure

    def _sync(self, context: Context, tally: Tally) -> None:
        good = self._goes_on
        tidy_outputs(context)
        if self._left is not None:
            discard_carried(context)
            if not _has_a_place(context.job):
                self._leave_outputs(context)
                return
        prefix = partial_prefix(context) if self._left is None else left_prefix(context)
        outputs = inventory(context.box.output, digest=good)
        self._outputs = under(prefix, outputs)
        if good:
            sync_outputs(context, "", tally)
            self._outputs = outputs
            self._list_outputs(context)
        elif outputs:
            sync_outputs(context, prefix, tally)

    def _list_outputs(self, context: Context) -> None:
        """For the engine that brings them home: the event has no room for many."""
        if context.job.output is None and len(self._outputs) > MOST_LISTED:
            write_list(self._outputs, context.box.home.listed(context.journal.emitter))

    def _leave_outputs(self, context: Context) -> None:
        """Beside the checkpoint, for the engine to carry; or here, since one address has no room for them."""
        self._outputs = under(left_prefix(context), inventory(context.box.output, digest=False))
        if self._outputs:
            keep_outputs(context, left_prefix(context), context.carried or context.box.home.output)

    def _clean(self, context: Context, tally: Tally) -> None:
        context.processes.terminate_all()
        if self._left is not None and self._left.exit_code == EXIT_CONTINUE_HERE:
            self._keep_inputs(context)
        cleaned = remove_tree(context.box.root)
        self._freed = cleaned.bytes
        tally.update(files=cleaned.files, bytes=cleaned.bytes)
        for problem in cleaned.problems:
            context.notice("clean", f"could not be removed: {problem}")

    @staticmethod
    def _keep_inputs(context: Context) -> None:
        from packtrain.agent.stages.reuse_inputs import keep_inputs

        try:
            keep_inputs(context)
        except OSError as error:
            context.notice("clean", f"the inputs could not be kept for the next attempt: {error}")

    def _end(self) -> int:
        failure, left = self._failure, self._left
        code = failure.exit_code if failure else left.exit_code if left else EXIT_OK
        with suppress(OSError):  # the exit code still tells
            self._context.journal.emit(
                kinds.ATTEMPT_ENDED,
                outcome="failed" if failure else "continue" if left else "succeeded",
                exit_code=code,
                failure=failure.to_data() if failure else None,
                outputs=self._outputs[:MOST_LISTED],
                output_files=len(self._outputs),
                freed_bytes=self._freed,
                seconds=round(time.monotonic() - self._started, 3),
                **({"step": left.step, "reason": str(left)} if left else {}),
            )
        why = failure.detail if failure else str(left) if left else ""
        self._say(f"ended with exit code {code}" + (f": {why}" if why else ""))
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
