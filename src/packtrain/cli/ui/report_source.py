"""The job history that a command line names: a run, HTCondor logs, Slurm's accounting or a job table.

Used by report and simulate.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.status import Status

from packtrain.cli.ui.output import error_console
from packtrain.errors import NotFoundError
from packtrain.plan import RunFolder
from packtrain.report.history import JobHistory
from packtrain.report.readers.files import read_accounting_history, read_history
from packtrain.report.readers.training_curves import TrainingCurves
from packtrain.store import RunInfo


class ReportSource:
    """The run or the files that the arguments name, and their job history.

    Args:
        arguments: A run or files.
        history: A history that was read already; then there are no arguments.
    """

    def __init__(self, arguments: tuple[str, ...], history: JobHistory | None = None) -> None:
        self.run_info = _find_run(arguments) if history is None else None
        self.curves: TrainingCurves | None = None
        if history is None:
            history = self._load_run_history(self.run_info) if self.run_info else _read_files(arguments)
        self.history = history

    def _load_run_history(self, run_info: RunInfo) -> JobHistory:
        from packtrain import services
        from packtrain.runs import reports

        store = services.open_store()
        state = services.refresh_state(store, run_info)
        self.curves = reports.load_training_curves(store, state)
        return reports.load_job_history(store, run_info, state)

    @property
    def folder(self) -> Path:
        """Where the report is written by default: the folder of the run, else NAME-report here."""
        if self.run_info:
            return RunFolder(self.run_info.folder).report
        name = re.sub(r"[^\w.-]+", "-", self.history.name).strip("-.") or "jobs"
        return Path.cwd() / f"{name}-report"


def read_slurm_history(since: str, until: str, user: str) -> JobHistory:
    """Return the history of jobs in the accounting of this machine's Slurm.

    Raises:
        NotFoundError: There are no jobs.
        UsageError: sacct rejects an argument.
        UnavailableError: The accounting does not answer.
    """
    from packtrain import services

    span = f"from {since} to {until}" if until else f"since {since}"
    text = services.read_slurm_accounting(since, until, user)
    history = read_accounting_history(text, f"Slurm jobs {span}{f' of {user}' if user else ''}")
    if not history.jobs and not history.problems:
        raise NotFoundError(f"sacct lists no {history.name}; begin earlier, or name another user with --user")
    return history


def load_history(arguments: tuple[str, ...]) -> JobHistory:
    """Return the job history of a run or of files."""
    return ReportSource(arguments).history


def _find_run(arguments: tuple[str, ...]) -> RunInfo | None:
    """Return the run that the arguments name, or None if they name files."""
    if arguments and (len(arguments) > 1 or _is_file_argument(arguments[0])):
        return None
    from packtrain import services  # slow to import, and not needed for logs and tables

    if not arguments:
        return services.find_run(services.open_store(), "")
    path = Path(arguments[0])
    run = path.absolute().name if (path / "plan.json").is_file() else arguments[0]
    try:
        return services.find_run(services.open_store(), run)
    except NotFoundError:
        raise NotFoundError(
            f"there is neither a run nor a file {arguments[0]!r}; `packtrain ps` lists the runs"
        ) from None


def _is_file_argument(argument: str) -> bool:
    path = Path(argument).expanduser()
    if (path / "plan.json").is_file():
        return False  # the folder of a run
    return path.exists() or "/" in argument or glob.has_magic(argument)


def _read_files(names: tuple[str, ...]) -> JobHistory:
    with _reading_progress() as on_events_read:
        return read_history(names, on_events_read)


@contextmanager
def _reading_progress() -> Iterator[Callable[[int], None]]:
    """Show in a terminal how many events were read."""
    n_read = 0

    def on_events_read(n_events: int) -> None:
        nonlocal n_read
        n_read += n_events
        status.update(f"read {n_read:,} events")

    status = Status("reading", console=error_console())
    if not error_console().is_terminal:
        yield lambda n_events: None
        return
    with status:
        yield on_events_read
