"""List and download the outputs of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from packtrain import services
from packtrain.errors import NotFoundError, UsageError
from packtrain.events import kinds
from packtrain.plan import Job, Location, RemoteFile, RunFolder, read_plan
from packtrain.runs.secrets import make_secret_resolver
from packtrain.state import JobStatus, RunState
from packtrain.store import RunInfo, SqliteStore
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.fetch import fetch
from packtrain.transfer.registry import get_source
from packtrain.transfer.urls import filename_from_url, is_http, url_origin

_RETRY_TIMEOUT_S = 10.0

OnFileProgress = Callable[["OutputFile", int], None]
"""Receives a file that is downloaded and how many of its bytes are there."""


@dataclass(frozen=True)
class OutputFile:
    """One file of the outputs of a job.

    Attributes:
        job: The id of the job.
        name: The path below the outputs of the job.
        bytes: The size, if it is known.
        url: Where it is.
        location: The same, with references to the credentials for it.
        answer: What an http server said when it was uploaded, if that is not the link in `url`.
    """

    job: str
    name: str
    bytes: int | None
    url: str
    location: Location = field(repr=False)
    answer: str = ""


@dataclass(frozen=True)
class Outputs:
    """The outputs of the jobs of a run that succeeded.

    Attributes:
        run: The id of the run.
        files: All files.
        has_folder_per_job: Whether `download` creates a folder for each job, because there are several.
        resolve_secret: Returns the values of credentials.
        missing_reason: Why there are no files, as the end of a sentence.
    """

    run: str
    files: tuple[OutputFile, ...]
    has_folder_per_job: bool
    resolve_secret: SecretResolver = field(repr=False)
    missing_reason: str = field(default="", repr=False)

    def download(
        self, folder: str | Path, on_progress: OnFileProgress = lambda file, done_bytes: None
    ) -> tuple[Path, ...]:
        """Copy all files to a folder; if outputs of several jobs were requested, each job gets a folder in it.

        Args:
            folder: The folder, which is created if it does not exist.
            on_progress: Receives a file and how many of its bytes were copied.

        Returns:
            The paths of the copies, in the order of `files`.

        Raises:
            NotFoundError: There are no outputs.
            FailedError: A file cannot be copied.
        """
        self.require_files()
        paths = [
            _target_path(Path(folder) / file.job if self.has_folder_per_job else Path(folder), file.name)
            for file in self.files
        ]
        for file, path in zip(self.files, paths, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            fetch(
                RemoteFile(file.name, (file.location,), file.bytes),
                path,
                self.resolve_secret,
                retry_timeout_s=_RETRY_TIMEOUT_S,
                check_cancelled=lambda: None,
                on_progress=lambda done, total, file=file: on_progress(file, done),  # type: ignore[misc]
            )
        return tuple(paths)

    def require_files(self) -> None:
        """Raise NotFoundError if there are no files."""
        if not self.files:
            raise NotFoundError(f"the run {self.run} has no outputs{self.missing_reason}")


def list_outputs(store: SqliteStore, run_info: RunInfo, job_id: str | None = None) -> Outputs:
    """List the outputs of a run or of one of its jobs.

    Args:
        store: The store.
        run_info: The run.
        job_id: The job; None for all.
    """
    state = services.refresh_state(store, run_info)
    jobs = [job for job in read_plan(RunFolder(run_info.folder).plan).jobs if job_id in (None, job.id)]
    resolve_secret = make_secret_resolver(run_info)
    succeeded = [job for job in jobs if _has_outputs(state, job)]
    uploads = _read_http_uploads(store, state, succeeded)
    files = tuple(file for job in succeeded for file in _list_files(job, uploads.get(job.id, {}), resolve_secret))
    return Outputs(run_info.run, files, len(jobs) > 1, resolve_secret, _missing_reason(state, jobs, succeeded))


def _missing_reason(state: RunState, jobs: Sequence[Job], succeeded: Sequence[Job]) -> str:
    if succeeded:
        return ": the steps wrote no files to $DEEPSQUARE_OUTPUT"
    if all(job.id in state.jobs and state.jobs[job.id].result for job in jobs):
        return f", because it did not succeed; `packtrain why {state.run}` explains it"
    return f" yet; `packtrain ps {state.run}` shows its status"


def _has_outputs(state: RunState, job: Job) -> bool:
    return job.output is not None and job.id in state.jobs and state.jobs[job.id].status is JobStatus.SUCCEEDED


def _read_http_uploads(store: SqliteStore, state: RunState, jobs: Sequence[Job]) -> Mapping[str, Mapping[str, Any]]:
    """Return where the supervisor uploaded the outputs of each job to: an http server lists nothing."""
    if not any(job.output is not None and is_http(job.output.location.url) for job in jobs):
        return {}
    ends = (stored.event for stored in store.events(state.run, kind=kinds.JOB_ENDED))
    return {event.job: event.data["published"] for event in ends if event.data.get("published")}


def _list_files(job: Job, upload: Mapping[str, Any], resolve_secret: SecretResolver) -> Sequence[OutputFile]:
    assert job.output is not None
    location = job.output.location
    if is_http(location.url):
        return [_http_file(job.id, location, upload)] if upload else []
    return [
        OutputFile(job.id, entry.name, entry.size, entry.location.url, entry.location)
        for entry in get_source(location, resolve_secret).list(location)
        if ".packtrain" not in PurePosixPath(entry.name).parts
    ]


def _http_file(job: str, location: Location, upload: Mapping[str, Any]) -> OutputFile:
    """Return the uploaded file. A service that stores it elsewhere answers with the link to it."""
    answer = unquote(str(upload.get("answer") or ""))
    is_link = answer.startswith(("https://", "http://")) and " " not in answer
    link = str(upload["answer"]) if is_link else str(upload["url"])
    # Credentials of the upload's host must not be sent to the host of a link.
    same_host = url_origin(link) == url_origin(location.url)
    address = replace(location, url=link) if same_host else Location(link)
    return OutputFile(job, filename_from_url(link), int(upload["bytes"]), link, address, "" if is_link else answer)


def _target_path(folder: Path, name: str) -> Path:
    target = folder / name
    if folder.resolve() not in target.resolve().parents:
        raise UsageError(f"the output {name!r} would be written outside of {folder}")
    return target
