"""One execution of an attempt: its stages in order, the first failure, and the event that ends it.

    probe → fetch → unpack → steps → check      skipped after the first failure
    sync → clean                                always run

The first failure becomes the result. Later ones are only reported as notices.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any, Callable

from packtrain.agent.cleanup import remove_tree
from packtrain.agent.context import AttemptContext, StageStats, has_checkpoint_store, uses_pixi
from packtrain.agent.outputs.check import check_outputs
from packtrain.agent.outputs.inventory import MAX_LISTED_OUTPUTS, list_outputs, with_prefix, write_output_list
from packtrain.agent.outputs.sync import (
    clean_outputs,
    failed_prefix,
    move_outputs,
    requeue_prefix,
    stage_outputs,
    sync_outputs,
)
from packtrain.agent.stages.fetch import fetch_all
from packtrain.agent.stages.probe import probe
from packtrain.agent.stages.run_steps import run_steps
from packtrain.agent.stages.unpack import unpack_all
from packtrain.agent.time_limits import RequeueRequested, TimeLimitMonitor, discard_uploaded_files
from packtrain.errors import EXIT_OK, EXIT_RESUME_IN_PLACE
from packtrain.events import Failure, kinds
from packtrain.fileutil import DISK_FULL_ERRNOS

StageFunction = Callable[[AttemptContext, StageStats], None]

Stages = tuple[tuple[str, StageFunction], ...]

FORWARD_STAGES: Stages = (
    ("probe", probe),
    ("fetch", fetch_all),
    ("unpack", unpack_all),
    ("steps", run_steps),
    ("check", check_outputs),
)


def _install(context: AttemptContext, stats: StageStats) -> None:
    from packtrain.agent.stages.install import install_environment

    install_environment(context, stats)


def _stages_of(context: AttemptContext) -> Stages:
    """Return the forward stages of a job; only one with a Pixi environment has the stage `install`."""
    if not uses_pixi(context):
        return FORWARD_STAGES
    first_of_program = [name for name, _ in FORWARD_STAGES].index("steps")
    return (*FORWARD_STAGES[:first_of_program], ("install", _install), *FORWARD_STAGES[first_of_program:])


class AttemptRunner:
    """Runs the stages of one execution and records how it ended."""

    def __init__(self, context: AttemptContext, stages: Stages | None = None) -> None:
        self._context, self._stages = context, stages or _stages_of(context)
        self._failure: Failure | None = None
        self._requeue: RequeueRequested | None = None
        self._outputs: list[dict[str, Any]] = []
        self._freed_bytes = 0

    def run(self) -> int:
        """Run all stages and return the agent's exit code."""
        monitor = TimeLimitMonitor(self._context)
        for name, stage_function in self._stages:
            if self._should_continue:
                monitor.steps_running = name == "steps"
                self._run_stage(name, _with_stop_check(stage_function))
        monitor.steps_running = False
        self._run_stage("sync", self._sync_outputs)
        self._run_stage("clean", self._clean_up)
        monitor.stop()
        return self._finish()

    @property
    def _should_continue(self) -> bool:
        return self._failure is None and self._requeue is None

    def _run_stage(self, name: str, stage_function: StageFunction) -> None:
        started_at, stats = time.monotonic(), StageStats()
        failure: Failure | None = None
        try:
            self._context.journal.emit(kinds.STAGE_STARTED, stage=name)
            stage_function(self._context, stats)
        except RequeueRequested as requeue:
            self._requeue = requeue
            self._context.log.write(f"{name}: {requeue}")
        except Exception as error:
            failure = self._record_failure(error, name)
        self._emit_stage_ended(name, time.monotonic() - started_at, failure, stats)

    def _emit_stage_ended(self, stage: str, duration_s: float, failure: Failure | None, stats: StageStats) -> None:
        data = failure.to_data() if failure else None
        try:
            self._context.journal.emit(
                kinds.STAGE_ENDED, stage=stage, seconds=round(duration_s, 3), failure=data, **stats
            )
        except OSError as error:
            self._record_failure(error, stage)

    def _record_failure(self, error: Exception, stage: str) -> Failure:
        """Make the first failure the result; report a later one, or one after a requeue request, as a notice."""
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
        succeeded = self._should_continue
        clean_outputs(context)
        if self._requeue is not None:
            discard_uploaded_files(context)
            if not has_checkpoint_store(context.job):
                self._keep_requeue_outputs(context)
                return
        prefix = failed_prefix(context) if self._requeue is None else requeue_prefix(context)
        max_digests = MAX_LISTED_OUTPUTS if context.job.output is None else None  # a manifest has all digests
        outputs = list_outputs(context.sandbox.output, succeeded, max_digests)
        self._outputs = with_prefix(prefix, outputs)
        if succeeded:
            stage_outputs(context, outputs, stats)
            self._outputs = outputs
            self._write_output_list(context)
        elif outputs:
            sync_outputs(context, prefix, stats)

    def _write_output_list(self, context: AttemptContext) -> None:
        """List the outputs in a file for the engine that retrieves them, if they are too many for the event."""
        if context.job.output is None and len(self._outputs) > MAX_LISTED_OUTPUTS:
            write_output_list(self._outputs, context.sandbox.attempt_folder.output_listing(context.journal.emitter))

    def _keep_requeue_outputs(self, context: AttemptContext) -> None:
        """Move the outputs next to the checkpoint that the engine transfers, or to the attempt folder.

        An output location that cannot be listed takes a single file, so there is no room for them there.
        """
        self._outputs = with_prefix(requeue_prefix(context), list_outputs(context.sandbox.output, with_digest=False))
        if self._outputs:
            move_outputs(
                context,
                requeue_prefix(context),
                context.transferred_checkpoint or context.sandbox.attempt_folder.output,
            )

    def _clean_up(self, context: AttemptContext, stats: StageStats) -> None:
        context.processes.terminate_all()
        with suppress(OSError):
            context.pixi.resources.close()
        if self._requeue is not None and self._requeue.exit_code == EXIT_RESUME_IN_PLACE:
            self._save_inputs(context)
        cleanup = remove_tree(context.sandbox.root)
        self._freed_bytes = cleanup.bytes
        stats.update(files=cleanup.files, bytes=cleanup.bytes)
        for problem in cleanup.problems:
            context.emit_notice("clean", f"could not be removed: {problem}")

    @staticmethod
    def _save_inputs(context: AttemptContext) -> None:
        from packtrain.agent.stages.reuse_inputs import save_inputs

        try:
            save_inputs(context)
        except OSError as error:
            context.emit_notice("clean", f"the inputs could not be saved for the next execution: {error}")

    def _finish(self) -> int:
        failure, requeue = self._failure, self._requeue
        exit_code = failure.exit_code if failure else requeue.exit_code if requeue else EXIT_OK
        with suppress(OSError):  # the engine still gets the exit code
            self._context.journal.emit(
                kinds.AGENT_ENDED,
                outcome="failed" if failure else "requeued" if requeue else "succeeded",
                exit_code=exit_code,
                failure=failure.to_data() if failure else None,
                outputs=self._outputs[:MAX_LISTED_OUTPUTS],
                n_outputs=len(self._outputs),
                freed_bytes=self._freed_bytes,
                seconds=round(time.monotonic() - self._context.started_at, 3),
                **({"step": requeue.step, "reason": str(requeue)} if requeue else {}),
            )
        reason = failure.detail if failure else str(requeue) if requeue else ""
        self._print_result(f"ended with exit code {exit_code}" + (f": {reason}" if reason else ""))
        return exit_code

    def _print_result(self, message: str) -> None:
        """Write the last line to the agent's log and to stderr, which the engine keeps."""
        self._context.log.write(message)
        with suppress(OSError):
            sys.stderr.write(self._context.redactor.redact_text(f"packtrain: {message}\n"))


def _with_stop_check(stage_function: StageFunction) -> StageFunction:
    def check_stop_first(context: AttemptContext, stats: StageStats) -> None:
        context.stop.check()
        stage_function(context, stats)

    return check_stop_first


def failure_from_error(error: Exception, stage: str) -> Failure:
    """Convert an exception to a failure. Any write may hit a full disk, so that is detected by its errno."""
    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
        location = f" at {error.filename}" if error.filename else ""
        return Failure.from_kind("disk_full", stage, f"the disk is full{location}: {error.strerror}")
    return Failure.from_error(error, stage)
