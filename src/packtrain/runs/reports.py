"""The training curves, the job history and the report of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain import services
from packtrain.errors import NotFoundError, PacktrainError, UsageError
from packtrain.events import kinds
from packtrain.plan import RunFolder, read_plan
from packtrain.report.readers.training_curves import TrainingCurves, build_training_curves, format_subtitle
from packtrain.state import RunState
from packtrain.store import RunInfo, SqliteStore

if TYPE_CHECKING:
    from packtrain.report.build import Report
    from packtrain.report.history import JobHistory  # imported when a report is built


def load_training_curves(store: SqliteStore, state: RunState) -> TrainingCurves:
    """Return the metrics that the jobs of a run reported."""
    return build_training_curves(state, (stored.event for stored in store.events(state.run, kind=kinds.METRIC)))


def save_training_chart(store: SqliteStore, run_info: RunInfo, state: RunState) -> tuple[Path | None, str]:
    """Write the training chart of a finished run. Return its path, or None and a message if that failed.

    Errors are returned, not raised: a missing chart must not fail a run.
    """
    path = RunFolder(run_info.folder).training_chart
    try:
        curves = load_training_curves(store, state)
        if not state.is_finished or not curves.jobs:
            return None, ""
        from packtrain.report.charts.training import save_training_plot

        save_training_plot(curves, path, format_subtitle(state))
    except (ImportError, OSError, RuntimeError, ValueError, PacktrainError) as error:
        return None, f"could not write the chart {path.name}: {error}"
    return path, ""


def plot_training(
    store: SqliteStore, run_info: RunInfo, path: Path | None = None, *, dry_run: bool = False
) -> tuple[TrainingCurves, Path]:
    """Plot the metrics of a run.

    Args:
        store: The store.
        run_info: The run.
        path: The file to write; by default, the training chart in the folder of the run.
        dry_run: Write nothing.

    Returns:
        The metrics, and the path of the plot.

    Raises:
        NotFoundError: No job has reported metrics.
        UsageError: The file cannot be written.
    """
    state = services.refresh_state(store, run_info)
    curves, path = load_training_curves(store, state), path or RunFolder(run_info.folder).training_chart
    if not curves.jobs:
        raise NotFoundError(
            f"no job of the run {run_info.run} has reported metrics; call packtrain.torch.log_metrics(step=…, loss=…)"
        )
    if not dry_run:
        from packtrain.report.charts.training import save_training_plot

        try:
            save_training_plot(curves, path, format_subtitle(state))
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from error
    return curves, path


def load_job_history(store: SqliteStore, run_info: RunInfo, state: RunState) -> JobHistory:
    """Return the history of the jobs of a run, for reports."""
    from packtrain.report.readers.run_store import read_run_history

    plan = RunFolder(run_info.folder).plan
    gpus = {job.id: float(job.resources.gpus) for job in read_plan(plan).jobs} if plan.exists() else {}
    history = read_run_history(state, (stored.event for stored in store.events(run_info.run)), gpus)
    return replace(history, name=run_info.run)  # all runs of a workflow have the workflow's name


def write_run_report(store: SqliteStore, run_info: RunInfo, state: RunState) -> tuple[Report | None, Path | None, str]:
    """Write the report of a run. Return the report and its page, or None and a message if that failed.

    Errors are returned, not raised: a missing report must not fail a run.
    """
    from packtrain.report.build import build_report, write_report

    try:
        report = build_report(load_job_history(store, run_info, state))
        curves = load_training_curves(store, state)
        return report, write_report(report, RunFolder(run_info.folder).report, curves=curves, write_pngs=False), ""
    except Exception as error:
        return None, None, f"could not write the report: {error}"
