"""The stage `steps`: run the workflow's steps while checkpoints, metrics and outputs are followed in the background."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Callable

from packtrain.agent.context import AttemptContext, StageStats
from packtrain.agent.live.metrics import MetricsFollower
from packtrain.agent.outputs.sync import ContinuousSync
from packtrain.agent.steps.runner import StepRunner
from packtrain.agent.steps.short_tmpdir import short_tmpdir
from packtrain.agent.time_limits import attempt_variables, classify_exit
from packtrain.errors import FailedError

if TYPE_CHECKING:
    from packtrain.agent.checkpoints.uploader import CheckpointUploader
    from packtrain.agent.stages.stream_inputs import PreparedStreams

# Set for the steps by a packtrain that may itself run inside a step: the inner steps must not inherit them.
_NOT_INHERITED = ("PACKTRAIN_RESUME", "PACKTRAIN_DEADLINE", "PACKTRAIN_STREAM")


def run_steps(context: AttemptContext, stats: StageStats) -> None:
    """Run all steps. Raises FailedError (step_failed, container_failed, out_of_memory, …) or RequeueRequested."""
    metrics = MetricsFollower(context)
    checkpoints = _make_checkpoint_uploader(context, lambda: metrics.last_step)
    try:
        with ExitStack() as stack:
            if checkpoints is not None:
                stack.enter_context(checkpoints)
            stack.enter_context(metrics)
            if context.job.output is not None and context.job.output.continuous_sync:
                stack.enter_context(ContinuousSync(context, context.job.output))
            host_env = {**_host_variables(), **stack.enter_context(short_tmpdir(os.environ, context.sandbox.tmp))}
            streams = _prepare_streams(context, stack)
            variables = {**attempt_variables(context), **(streams.variables if streams else {})}
            StepRunner(context, host_env, variables, streams.extra_mounts if streams else ()).run_all()
        context.stop.mark_steps_finished()
        context.processes.reopen()  # for the checks of the outputs
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
    if not any(job_input.mode == "stream" for job_input in context.job.inputs):
        return None
    from packtrain.agent.stages.stream_inputs import prepare_streams

    return stack.enter_context(prepare_streams(context))


def _host_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
