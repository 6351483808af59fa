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
from packtrain.agent.context import AttemptContext, EngineOptions, StageStats
from packtrain.agent.live.metrics import MetricsFollower
from packtrain.agent.outputs.check import check_outputs
from packtrain.agent.outputs.inventory import MAX_LISTED_OUTPUTS, list_outputs, with_prefix, write_output_list
from packtrain.agent.outputs.sync import (
    ContinuousSync,
    clean_outputs,
    failed_prefix,
    move_outputs,
    requeue_prefix,
    sync_outputs,
)
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stages.fetch import fetch_inputs, unpack_inputs
from packtrain.agent.stages.probe import probe
from packtrain.agent.steps.guard import Guard
from packtrain.agent.steps.processes import ProcessTable
from packtrain.agent.steps.runner import StepRunner
from packtrain.agent.steps.short_tmpdir import short_tmpdir
from packtrain.agent.stop_request import StopRequest
from packtrain.agent.time_limits import (
    RequeueRequested,
    TimeLimitMonitor,
    attempt_variables,
    classify_exit,
    discard_uploaded_files,
)
from packtrain.errors import EXIT_OK, EXIT_RESUME_IN_PLACE, FailedError
from packtrain.events import Event, Failure, Journal, kinds
from packtrain.plan import Job
from packtrain.plan.claim import hand_over_claim
from packtrain.transfer.engine.source_stats import set_expected_speeds

if TYPE_CHECKING:
    from packtrain.agent.checkpoints.uploader import CheckpointUploader
    from packtrain.agent.live.reporter import LiveReporter
    from packtrain.agent.stages.stream_inputs import PreparedStreams

_NOT_INHERITED = ("PACKTRAIN_RESUME", "PACKTRAIN_DEADLINE", "PACKTRAIN_STREAM")  # of a packtrain around this one
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)

StageFunction = Callable[[AttemptContext, StageStats], None]


def fetch_all(context: AttemptContext, stats: StageStats) -> None:
    """Inputs, and the checkpoint to go on from. Raises FailedError."""
    if not _restore_inputs(context, stats):
        fetch_inputs(context, stats)
    if context.job.checkpoint is not None:
        from packtrain.agent.checkpoints.restore import restore_checkpoint

        restore_checkpoint(context)


def _restore_inputs(context: AttemptContext, stats: StageStats) -> bool:
    if context.reuse_folder is None:
        return False
    from packtrain.agent.stages.reuse_inputs import restore_inputs

    return restore_inputs(context, stats)


def unpack_all(context: AttemptContext, stats: StageStats) -> None:
    """Raises FailedError."""
    if not context.checkpoint_state.inputs_reused:
        unpack_inputs(context, stats)
        if context.reuse_folder is not None:
            from packtrain.agent.stages.reuse_inputs import record_inputs_fingerprint

            record_inputs_fingerprint(context)


def run_steps(context: AttemptContext, stats: StageStats) -> None:
    """Raises FailedError (step_failed, container_failed, out_of_memory, …) or LeftInTimeError."""
    metrics = MetricsFollower(context)
    checkpoints = _make_checkpoint_uploader(context, lambda: metrics.last_step)
    try:
        with ExitStack() as stack:
            if checkpoints is not None:
                stack.enter_context(checkpoints)
            stack.enter_context(metrics)
            if context.job.output is not None and context.job.output.continuous_sync:
                stack.enter_context(ContinuousSync(context, context.job.output))
            variables = {**_host_variables(), **stack.enter_context(short_tmpdir(os.environ, context.sandbox.tmp))}
            _make_step_runner(context, variables, _prepare_streams(context, stack)).run_all()
        context.stop.mark_steps_finished()
    except FailedError as error:
        raise classify_exit(context, checkpoints, error) from error


def _make_checkpoint_uploader(
    context: AttemptContext, current_step: Callable[[], int | None]
) -> CheckpointUploader | None:
    if context.job.checkpoint is None:
        return None
    from packtrain.agent.checkpoints.uploader import make_checkpoint_uploader

    return make_checkpoint_uploader(context, current_step)


def _prepare_streams(context: AttemptContext, stack: ExitStack) -> PreparedStreams | None:
    if not any(source.mode == "stream" for source in context.job.inputs):
        return None
    from packtrain.agent.stages.stream_inputs import prepare_streams

    return stack.enter_context(prepare_streams(context))


def _host_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}


def _make_step_runner(
    context: AttemptContext, host_env: Mapping[str, str], streams: PreparedStreams | None
) -> StepRunner:
    return StepRunner(
        context.job,
        context.sandbox,
        context.journal,
        context.redactor,
        context.secrets.resolve_secret,
        context.stop,
        host_env,
        context.journal.run,
        context.processes,
        {**attempt_variables(context), **(streams.variables if streams else {})},
        context.in_container,
        streams.extra_mounts if streams else (),
    )


FORWARD_STAGES: tuple[tuple[str, StageFunction], ...] = (
    ("probe", probe),
    ("fetch", fetch_all),
    ("unpack", unpack_all),
    ("steps", run_steps),
    ("check", check_outputs),
)


def run_attempt(
    job: Job,
    sandbox: Sandbox,
    journal: Journal,
    secrets: Secrets,
    stop: StopRequest,
    claim_fd: int,
    started_at: float,
    options: EngineOptions,
    start_event: Event,
) -> int:
    """All of an attempt after its first event; the agent's exit code. No thread may run yet: the guard is forked."""
    guard = Guard.start((claim_fd,))
    log = AgentLog(sandbox.attempt_folder.agent_log, secrets.redactor)
    live = _start_live_reporter(journal, start_event, options.live_interval_s, log, sandbox)
    processes = ProcessTable(guard, job.limits.grace_s)
    set_expected_speeds(options.host_speeds)
    _disable_upload_adoption(job)
    code = AttemptRunner(_make_context(job, sandbox, journal, log, secrets, stop, processes, options), started_at).run()
    guard.quit()
    if live is not None:
        live.stop()
    if code == EXIT_RESUME_IN_PLACE:
        hand_over_claim(claim_fd)
    return code


def _make_context(
    job: Job,
    sandbox: Sandbox,
    journal: Journal,
    log: AgentLog,
    secrets: Secrets,
    stop: StopRequest,
    processes: ProcessTable,
    options: EngineOptions,
) -> AttemptContext:
    carries = options.transfers_checkpoints and job.checkpoint is not None and not _has_checkpoint_store(job)
    return AttemptContext(
        job,
        sandbox,
        journal,
        log,
        secrets,
        secrets.redactor,
        stop,
        processes,
        options.download_cache,
        reuse_folder=options.reuse_folder or (sandbox.reuse_folder if options.transfers_checkpoints else None),
        deadline_at=options.deadline_at,
        transferred_checkpoint=sandbox.transferred_checkpoint if carries else None,
        in_container=options.in_container,
    )


def _disable_upload_adoption(job: Job) -> None:
    """Another attempt of the job may be alive, and write to the same names."""
    if job.output is not None:
        from packtrain.transfer.backends.s3.multipart import disable_upload_adoption

        disable_upload_adoption()


def _has_checkpoint_store(job: Job) -> bool:
    """For several generations of checkpoints, and what lies beside them."""
    from packtrain.agent.checkpoints.store import can_list

    return job.output is not None and can_list(job.output.location)


def _start_live_reporter(
    journal: Journal, start_event: Event, min_interval_s: float, log: AgentLog, sandbox: Sandbox
) -> LiveReporter | None:
    """None if it is not wanted, or there is nobody to speak to."""
    if not min_interval_s:
        return None
    from packtrain.agent.live.chirp import find_config
    from packtrain.agent.live.reporter import LiveReporter, chirp_connector

    config = find_config(os.environ)
    if config is None:
        log.write("live: there is no Chirp proxy here; the journal comes home at the end")
        return None
    live = LiveReporter(chirp_connector(config), min_interval_s, sandbox.attempt_folder.logs, log.write)
    live.on_event(start_event)
    journal.set_listener(live.on_event)
    return live.start()


class AttemptRunner:
    def __init__(self, context: AttemptContext, started_at: float) -> None:
        self._context, self._started_at = context, started_at
        self._failure: Failure | None = None
        self._requeue: RequeueRequested | None = None
        self._outputs: list[dict[str, Any]] = []
        self._freed_bytes = 0

    def run(self) -> int:
        """The agent's exit code."""
        watch = TimeLimitMonitor(self._context)
        for name, work in FORWARD_STAGES:
            if self._should_continue:
                watch.steps_running = name == "steps"
                self._run_stage(name, _with_stop_check(work))
        watch.steps_running = False
        self._run_stage("sync", self._sync_outputs)
        self._run_stage("clean", self._clean_up)
        watch.stop()
        return self._finish()

    @property
    def _should_continue(self) -> bool:
        return self._failure is None and self._requeue is None

    def _run_stage(self, name: str, stage_function: StageFunction) -> None:
        started, tally = time.monotonic(), StageStats()
        failure: Failure | None = None
        try:
            self._context.journal.emit(kinds.STAGE_STARTED, stage=name)
            stage_function(self._context, tally)
        except RequeueRequested as left:
            self._requeue = left
            self._context.log.write(f"{name}: {left}")
        except Exception as error:
            failure = self._record_failure(error, name)
        self._emit_stage_ended(name, time.monotonic() - started, failure, tally)

    def _emit_stage_ended(self, stage: str, duration_s: float, failure: Failure | None, stats: StageStats) -> None:
        data = failure.to_data() if failure else None
        try:
            self._context.journal.emit(
                kinds.STAGE_ENDED, stage=stage, seconds=round(duration_s, 3), failure=data, **stats
            )
        except OSError as error:
            self._record_failure(error, stage)

    def _record_failure(self, error: Exception, stage: str) -> Failure:
        """The first failure is the attempt's; a later one, or one after leaving in time, is worth a notice."""
        failure = failure_from_error(error, stage)
        self._context.log.write(f"{stage}: {failure.kind}: {failure.detail}")
        if failure.kind == "internal":
            import traceback

            self._context.log.write("".join(traceback.format_exception(type(error), error, error.__traceback__)))
        if self._should_continue:
            self._failure = failure
        else:
            with suppress(OSError):
                self._context.emit_notice(stage, failure.detail)
        return failure

    def _sync_outputs(self, context: AttemptContext, stats: StageStats) -> None:
        good = self._should_continue
        clean_outputs(context)
        if self._requeue is not None:
            discard_uploaded_files(context)
            if not _has_checkpoint_store(context.job):
                self._keep_requeue_outputs(context)
                return
        prefix = failed_prefix(context) if self._requeue is None else requeue_prefix(context)
        outputs = list_outputs(context.sandbox.output, with_digest=good)
        self._outputs = with_prefix(prefix, outputs)
        if good:
            sync_outputs(context, "", stats)
            self._outputs = outputs
            self._write_output_list(context)
        elif outputs:
            sync_outputs(context, prefix, stats)

    def _write_output_list(self, context: AttemptContext) -> None:
        """For the engine that brings them home: the event has no room for many."""
        if context.job.output is None and len(self._outputs) > MAX_LISTED_OUTPUTS:
            write_output_list(self._outputs, context.sandbox.attempt_folder.output_listing(context.journal.emitter))

    def _keep_requeue_outputs(self, context: AttemptContext) -> None:
        """Beside the checkpoint, for the engine to carry; or here, since one address has no room for them."""
        self._outputs = with_prefix(requeue_prefix(context), list_outputs(context.sandbox.output, with_digest=False))
        if self._outputs:
            move_outputs(
                context,
                requeue_prefix(context),
                context.transferred_checkpoint or context.sandbox.attempt_folder.output,
            )

    def _clean_up(self, context: AttemptContext, stats: StageStats) -> None:
        context.processes.terminate_all()
        if self._requeue is not None and self._requeue.exit_code == EXIT_RESUME_IN_PLACE:
            self._save_inputs(context)
        cleaned = remove_tree(context.sandbox.root)
        self._freed_bytes = cleaned.bytes
        stats.update(files=cleaned.files, bytes=cleaned.bytes)
        for problem in cleaned.problems:
            context.emit_notice("clean", f"could not be removed: {problem}")

    @staticmethod
    def _save_inputs(context: AttemptContext) -> None:
        from packtrain.agent.stages.reuse_inputs import save_inputs

        try:
            save_inputs(context)
        except OSError as error:
            context.emit_notice("clean", f"the inputs could not be kept for the next attempt: {error}")

    def _finish(self) -> int:
        failure, left = self._failure, self._requeue
        code = failure.exit_code if failure else left.exit_code if left else EXIT_OK
        with suppress(OSError):  # the exit code still tells
            self._context.journal.emit(
                kinds.AGENT_ENDED,
                outcome="failed" if failure else "requeued" if left else "succeeded",
                exit_code=code,
                failure=failure.to_data() if failure else None,
                outputs=self._outputs[:MAX_LISTED_OUTPUTS],
                n_outputs=len(self._outputs),
                freed_bytes=self._freed_bytes,
                seconds=round(time.monotonic() - self._started_at, 3),
                **({"step": left.step, "reason": str(left)} if left else {}),
            )
        why = failure.detail if failure else str(left) if left else ""
        self._print_result(f"ended with exit code {code}" + (f": {why}" if why else ""))
        return code

    def _print_result(self, message: str) -> None:
        """The last line, here and wherever the engine keeps what agents print."""
        self._context.log.write(message)
        with suppress(OSError):
            sys.stderr.write(self._context.redactor.redact_text(f"packtrain: {message}\n"))


def _with_stop_check(stage_function: StageFunction) -> StageFunction:
    def check_stop_first(context: AttemptContext, stats: StageStats) -> None:
        context.stop.check()
        stage_function(context, stats)

    return check_stop_first


def failure_from_error(error: Exception, stage: str) -> Failure:
    """A full disk shows up anywhere, as an OSError of whoever wrote."""
    if isinstance(error, OSError) and error.errno in _DISK_FULL_ERRNOS:
        where = f" at {error.filename}" if error.filename else ""
        return Failure.from_kind("disk_full", stage, f"the disk is full{where}: {error.strerror}")
    return Failure.from_error(error, stage)
