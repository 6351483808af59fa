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
    """The log files of one attempt, read on from where the last look ended, whole lines only."""

    attempt_folder: AttemptFolder
    agent_logs: bool = False
    _offsets: dict[Path, int] = field(default_factory=dict)

    def read_log_tail(self, log_tail: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """(file, line) of the newest bytes of a log, as a pool tells them while the file itself is far away."""
        name, text = PurePosixPath(str(log_tail.get("file", ""))).name, unquote_to_bytes(str(log_tail.get("text", "")))
        path, end = self.attempt_folder.logs / name, log_tail.get("end")
        if not name or not isinstance(end, int) or self.agent_logs:
            return
        first, known = end - len(text), self._offsets.get(path, 0)
        fresh = text[max(0, known - first) :]
        whole = fresh[: fresh.rfind(b"\n") + 1]
        if first > known:
            yield name, "…"
        self._offsets[path] = max(known, end - len(fresh) + len(whole))
        for line in whole.decode("utf-8", "replace").splitlines():
            yield name, line

    def read_new_lines(self, final: bool = False) -> Iterator[tuple[str, str]]:
        """(file, line); `final` also gives an unfinished last line."""
        for path in self._files():
            with open(path, "rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read()
            whole = data if final else data[: data.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            for line in whole.decode("utf-8", "replace").splitlines():
                yield path.name, line

    def _files(self) -> list[Path]:
        if self.agent_logs:
            return [path for path in (self.attempt_folder.agent_log, self.attempt_folder.agent_out) if path.exists()]
        found = self.attempt_folder.logs.glob("*") if self.attempt_folder.logs.exists() else ()
        return sorted((p for p in found if p.is_file()), key=lambda p: (p.stat().st_ctime, p.name))


@click.command(name="logs")
@click.argument("target", metavar="[RUN[.JOB]]", default="")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option("--attempt", "number", type=int, help="Which attempt; the newest if not said.")
@click.option("--agent", is_flag=True, help="The agent's own log instead of the steps'.")
@json_option
def command(target: str, follow: bool, execution_number: int | None, agent_logs: bool, as_json: bool) -> None:
    """Show what the steps of a job wrote; with several jobs, name one as RUN.JOB."""
    store = services.open_store()
    row, wanted = services.find_job(store, target)
    state = services.refresh_state(store, row)
    job = _select_job(state, wanted)
    tails: dict[str, AttemptLogReader] = {}
    while True:
        ended = job.result is not None or services.live_supervisor_lease(store, row.run) is None
        tail = _get_reader(tails, RunFolder(row.folder), job, execution_number, agent_logs)
        for name, line in _new_lines(tail, job, final=ended or not follow) if tail else ():
            click.echo(json.dumps({"job": job.id, "log": name, "line": line}) if as_json else _format_line(name, line))
        if ended or not follow:
            return
        time.sleep(0.2)
        job = services.load_state(store, row.run).jobs[job.id]


def _new_lines(reader: AttemptLogReader, job: JobState, final: bool) -> Iterator[tuple[str, str]]:
    """From the files where they are here, else from what the pool last told of them."""
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
        some = ", ".join(f"{state.run}.{job.id}" for job in jobs[:3])
        raise NotFoundError(f"the run {state.run} has {len(jobs)} jobs; name one: {some} …")
    return jobs[0]


def _get_reader(
    readers: dict[str, AttemptLogReader],
    folder: RunFolder,
    job: JobState,
    execution_number: int | None,
    agent_logs: bool,
) -> AttemptLogReader | None:
    found = [a for a in job.executions if execution_number in (None, a.number)]
    if not found:
        if execution_number is not None:
            raise NotFoundError(f"job {job.id} has no attempt {execution_number}, only {len(job.executions)}")
        return None
    decision = found[-1].attempt_id
    return readers.setdefault(decision, AttemptLogReader(folder.attempt_folder(job.id, decision), agent_logs))


def _format_line(name: str, line: str) -> str:
    """Standard output as it is; the rest says where it comes from."""
    return line if name.endswith(".out") else f"{click.style(name, dim=True)}  {line}"
