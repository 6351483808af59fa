"""The JSON form of runs, jobs and executions, which `packtrain ps --json` prints."""

from __future__ import annotations

from typing import Any

from packtrain.state.execution import Execution, stage_fraction
from packtrain.state.job import JobState
from packtrain.state.run import RunState, run_status
from packtrain.store import RunInfo


def run_to_json(run_info: RunInfo, state: RunState, has_live_supervisor: bool) -> dict[str, Any]:
    """Return a run and its jobs as JSON values."""
    return {
        "run": run_info.run,
        "name": run_info.name,
        "engine": run_info.engine,
        "folder": str(run_info.folder),
        "created": run_info.created_at,
        "status": run_status(state, has_live_supervisor),
        "supervised": has_live_supervisor,
        "jobs": [job_to_json(job) for job in state.jobs.values()],
    }


def job_to_json(job: JobState) -> dict[str, Any]:
    """Return a job with all of its executions as JSON values."""
    latest = job.latest_execution
    failure = (job.result.failure if job.result else None) or (latest.failure if latest else None)
    return {
        "job": job.id,
        "point": dict(job.point),
        "status": job.status.value,
        "executions": [execution_to_json(execution) for execution in job.executions],
        "failure": failure.to_data() if failure else None,
        "metrics": dict(latest.metrics) if latest else {},
        "fraction": stage_fraction(latest) if latest and latest.is_live else None,
        "remaining_s": latest.training.remaining_s if latest and latest.is_live else None,
    }


def execution_to_json(execution: Execution) -> dict[str, Any]:
    """Return an execution as JSON values."""
    return {
        "number": execution.number,
        "attempt": execution.attempt_id,
        "status": execution.status.value,
        "stage": execution.stage,
        "host": execution.host,
        "native_id": execution.native_id,
        "execution": execution.execution_number,
        "hold_reason": execution.hold.event.data.get("detail") if execution.hold else None,
        "site": execution.site,
        "seconds": execution.agent_duration_s,
        "stages": {stage.name: stage.duration_s for stage in execution.stages},
        "exit_code": execution.exit_code,
        "failure": execution.failure.to_data() if execution.failure else None,
        "notices": list(execution.notices),
        "checkpoint": dict(execution.checkpoint),
        "restored_checkpoint": dict(execution.restored_checkpoint),
    }
