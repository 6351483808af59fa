"""packtrain logs"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote_to_bytes

import click

from packtrain import services
from packtrain.cli.ui.output import json_option
from packtrain.errors import NotFoundError
from packtrain.plan import AttemptFolder, RunFolder
from packtrain.state import JobState, RunState


@dataclass
class AttemptLogReader:
    """Reads the complete lines that were appended to the log files of an attempt since the last read."""

    attempt_folder: AttemptFolder
    agent_logs: bool = False
    _offsets: dict[Path, int] = field(default_factory=dict)

    def read_log_tail(self, log_tail: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield (file, line) from the log tail that a pool publishes while the file itself is on the worker."""
        name, text = PurePosixPath(str(log_tail.get("file", ""))).name, unquote_to_bytes(str(log_tail.get("text", "")))
        path, end = self.attempt_folder.logs / name, log_tail.get("end")
        if not name or not isinstance(end, int) or self.agent_logs:
            return
        start, read_bytes = end - len(text), self._offsets.get(path, 0)
        new_bytes = text[max(0, read_bytes - start) :]
        complete = new_bytes[: new_bytes.rfind(b"\n") + 1]
        if start > read_bytes:
            yield name, "…"
        self._offsets[path] = max(read_bytes, end - len(new_bytes) + len(complete))
        for line in complete.decode("utf-8", "replace").splitlines():
            yield name, line

    def read_new_lines(self, final: bool = False) -> Iterator[tuple[str, str]]:
        """Yield (file, line); `final` includes an incomplete last line."""
        for path in self._files():
            with open(path, "rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read()
            complete = data if final else data[: data.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(complete)
            for line in complete.decode("utf-8", "replace").splitlines():
                yield path.name, line

    def _files(self) -> list[Path]:
        if self.agent_logs:
            return [path for path in (self.attempt_folder.agent_log, self.attempt_folder.agent_out) if path.exists()]
        paths = self.attempt_folder.logs.glob("*") if self.attempt_folder.logs.exists() else ()
        return sorted((p for p in paths if p.is_file()), key=lambda p: (p.stat().st_ctime, p.name))


@click.command(name="logs")
@click.argument("target", metavar="[RUN[.JOB]]", default="")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the job ends.")
@click.option("--execution", "execution_number", type=int, help="Number of the execution (default: the newest).")
@click.option("--agent", "agent_logs", is_flag=True, help="Show the agent's log instead of the steps' output.")
@json_option
def command(target: str, follow: bool, execution_number: int | None, agent_logs: bool, as_json: bool) -> None:
    """Show the output of a job's steps. In a run with several jobs, name one as RUN.JOB."""
    store = services.open_store()
    run_info, job_id = services.find_job(store, target)
    job = _select_job(services.refresh_state(store, run_info), job_id)
    readers: dict[str, AttemptLogReader] = {}
    while True:
        ended = job.result is not None or services.live_supervisor_lease(store, run_info.run) is None
        reader = _get_reader(readers, RunFolder(run_info.folder), job, execution_number, agent_logs)
        for name, line in _new_lines(reader, job, final=ended or not follow) if reader else ():
            click.echo(json.dumps({"job": job.id, "log": name, "line": line}) if as_json else _format_line(name, line))
        if ended or not follow:
            return
        time.sleep(0.2)
        job = services.load_state(store, run_info.run).jobs[job.id]


def _new_lines(reader: AttemptLogReader, job: JobState, final: bool) -> Iterator[tuple[str, str]]:
    """Yield new lines from the log files, or from the published log tail while the files are on the worker."""
    if (
        not reader.attempt_folder.logs.exists()
        and job.latest_execution
        and job.latest_execution.is_live
        and job.log_tail
    ):
        yield from reader.read_log_tail(job.log_tail)
    yield from reader.read_new_lines(final)


def _select_job(state: RunState, job_id: str | None) -> JobState:
    if job_id is not None:
        return state.jobs[job_id]
    jobs = list(state.jobs.values())
    if len(jobs) > 1:
        examples = ", ".join(f"{state.run}.{job.id}" for job in jobs[:3])
        raise NotFoundError(f"the run {state.run} has {len(jobs)} jobs; name one of them: {examples} …")
    return jobs[0]


def _get_reader(
    readers: dict[str, AttemptLogReader],
    folder: RunFolder,
    job: JobState,
    execution_number: int | None,
    agent_logs: bool,
) -> AttemptLogReader | None:
    executions = [execution for execution in job.executions if execution_number in (None, execution.number)]
    if not executions:
        if execution_number is not None:
            raise NotFoundError(f"job {job.id} has no execution {execution_number}, only {len(job.executions)}")
        return None
    attempt_id = executions[-1].attempt_id
    return readers.setdefault(attempt_id, AttemptLogReader(folder.attempt_folder(job.id, attempt_id), agent_logs))


def _format_line(name: str, line: str) -> str:
    """Return a line of standard output unchanged; other lines get their file name as a prefix."""
    return line if name.endswith(".out") else f"{click.style(name, dim=True)}  {line}"
