"""Read the output of a job's steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote_to_bytes

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


class JobLogReader:
    """Reads what the executions of a job have written since the last read.

    Args:
        run_dir: The folder of the run.
        agent_logs: Read the agent's log instead of the output of the steps.
        execution_number: The execution to read; None for the newest.
    """

    def __init__(self, run_dir: Path, agent_logs: bool = False, execution_number: int | None = None) -> None:
        self._run_folder, self._agent_logs, self._execution_number = RunFolder(run_dir), agent_logs, execution_number
        self._readers: dict[str, AttemptLogReader] = {}  # by attempt id

    def read_new_lines(self, job: JobState, final: bool) -> Iterator[tuple[str, str]]:
        """Yield (file, line) from the log files, or from the published log tail while the files are on the worker.

        Args:
            job: The job.
            final: Also yield an incomplete last line.

        Raises:
            NotFoundError: The job has no such execution.
        """
        executions = [execution for execution in job.executions if self._execution_number in (None, execution.number)]
        if not executions:
            if self._execution_number is not None:
                raise NotFoundError(
                    f"job {job.id} has no execution {self._execution_number}, only {len(job.executions)}"
                )
            return
        attempt_id, latest = executions[-1].attempt_id, job.latest_execution
        folder = self._run_folder.attempt_folder(job.id, attempt_id)
        reader = self._readers.setdefault(attempt_id, AttemptLogReader(folder, self._agent_logs))
        if not folder.logs.exists() and latest and latest.is_live and job.log_tail:
            yield from reader.read_log_tail(job.log_tail)
        yield from reader.read_new_lines(final)


def select_job(state: RunState, job_id: str | None) -> JobState:
    """Return the job with this id, or the only job. Raises NotFoundError if there are several."""
    if job_id is not None:
        return state.jobs[job_id]
    jobs = list(state.jobs.values())
    if len(jobs) > 1:
        examples = ", ".join(f"{state.run}.{job.id}" for job in jobs[:3])
        raise NotFoundError(f"the run {state.run} has {len(jobs)} jobs; name one of them: {examples} …")
    return jobs[0]
