"""Store the checkpoint generations of a job below its output, on any backend that can list objects.

A backend that cannot list objects (http) holds one generation: the file and its record at two sidecar URLs.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from packtrain.agent.checkpoints.record import (
    CHECKPOINT_SUFFIX,
    RECORD_NAME,
    RECORD_SUFFIX,
    REQUEUE_PREFIX,
    CheckpointRecord,
    generation_prefix,
    job_prefix,
    requeue_folder,
)
from packtrain.agent.context import AttemptContext
from packtrain.errors import FormatError, TransferError
from packtrain.plan import Digest, Location, Output, RemoteFile
from packtrain.transfer.api import SecretResolver, Sink, Source
from packtrain.transfer.registry import get_source
from packtrain.transfer.upload import verify_upload
from packtrain.transfer.urls import append_to_url_path, check_listed_name, is_http, join_url, redact_url

_MAX_RECORD_BYTES = 1 << 20
_REJECTION_KINDS = frozenset({"access_denied", "unsupported", "object_missing", "unexpected_content"})
_RETRYABLE_STATUSES = (408, 425, 429)

CancelCheck = Callable[[], None]


class RecordRejectedError(Exception):
    """The server accepted the checkpoint but not its record, so the checkpoint cannot be used to resume."""


class ReadWriteBackend(Source, Sink, Protocol):
    """A backend that both reads and writes, as all backends of packtrain do."""


def open_backend(location: Location, resolve_secret: SecretResolver) -> ReadWriteBackend:
    return cast(ReadWriteBackend, get_source(location, resolve_secret))


def checkpoint_destination(context: AttemptContext) -> Output | None:
    """Return the job's output, or the folder that the engine transfers between executions; None without either."""
    return (
        context.job.output
        if context.transferred_checkpoint is None
        else Output(Location(context.transferred_checkpoint.as_uri()))
    )


def open_checkpoint_store(context: AttemptContext, output: Output) -> CheckpointStore:
    return CheckpointStore(
        output.location,
        open_backend(output.location, context.secrets.resolve_secret),
        run=context.journal.run,
        job=context.job.id,
        emitter=context.journal.emitter,
        broken_generations=context.checkpoint_state.broken_generations,
    )


class CheckpointStore:
    """The checkpoints of one job at one destination. It writes below the emitter's own prefix and reads all prefixes.

    Args:
        location: The destination of the job's outputs.
        backend: The backend of that destination.
        run: Id of the run.
        job: Id of the job.
        emitter: Id of the agent; empty for a store that only reads.
        broken_generations: Prefixes of generations that have a record but are incomplete. They supersede nothing.
    """

    def __init__(
        self,
        location: Location,
        backend: ReadWriteBackend,
        run: str,
        job: str,
        emitter: str = "",
        broken_generations: Set[str] = frozenset(),
    ) -> None:
        self._root, self._backend = location, backend
        self.can_list = not is_http(location.url)
        self.run, self.job, self.emitter, self._broken_generations = run, job, emitter, broken_generations
        self._records_by_name: dict[str, CheckpointRecord] = {}  # cached: a stored record never changes
        self.broken_records: list[str] = []  # names of invalid records, each with the reason

    # Writing, below the emitter's own prefix

    def upload_file(self, generation: int, name: str, path: Path, check_cancelled: CancelCheck) -> None:
        """Upload atomically and verify. May be repeated. Raises FailedError, or what `check_cancelled` raises."""
        if self.can_list:
            self._put(f"{self._generation_prefix(generation)}/{name}", path, check_cancelled)
        else:
            self._put_location(self._sidecar_location(CHECKPOINT_SUFFIX), path, check_cancelled)

    def commit(self, generation: int, record: Path, check_cancelled: CancelCheck) -> None:
        """Upload the record. On a single-file destination this may also raise RecordRejectedError."""
        if self.can_list:
            self._put(f"{self._generation_prefix(generation)}/{RECORD_NAME}", record, check_cancelled)
        else:
            self._commit_sidecar(record, check_cancelled)

    def _commit_sidecar(self, record: Path, check_cancelled: CancelCheck) -> None:
        """Upload the record and read it back, because a server may accept uploads that it does not serve."""
        location = self._sidecar_location()
        try:
            self._put_location(location, record, check_cancelled)
            is_stored = self._read_text(location) == record.read_text(encoding="utf-8")
        except TransferError as error:
            if not _is_rejection(error):
                raise
            raise RecordRejectedError(f"the server rejected its record: {error}") from error
        if not is_stored:
            raise RecordRejectedError(
                f"the server accepted its record, but {redact_url(location.url)} returns something else"
            )

    def delete_generation(self, generation: int, names: tuple[str, ...]) -> None:
        """Delete the record first, so that an incomplete generation is never visible."""
        for name in (RECORD_NAME, *names):
            location = self._location(f"{self._generation_prefix(generation)}/{name}")
            self._backend.delete(location)
            if name != RECORD_NAME:
                self._abort_upload(location)

    def delete_other_generations(self) -> None:
        """Delete the generations of earlier executions. Only valid where no other attempt can be alive."""
        for record in [record for record in self.read_records() if record.emitter != self.emitter]:
            for name in (RECORD_NAME, *(file.name for file in record.files)):
                self._backend.delete(self._location(f"{record.prefix}/{name}"))
        for entry in list(self._backend.list(self._location(REQUEUE_PREFIX))):
            if not entry.name.startswith(f"{self.emitter}/"):
                self._backend.delete(entry.location)

    def _abort_upload(self, location: Location) -> None:
        """Abort unfinished multipart uploads, where the backend has them: S3 servers charge for their parts."""
        abort_uploads = getattr(self._backend, "abort_uploads", None)
        if abort_uploads is not None:
            with suppress(TransferError):
                abort_uploads(location)

    # Reading, from all emitters

    def read_records(self) -> list[CheckpointRecord]:
        """Return the records of all attempts of the job, possibly none. Raises TransferError."""
        self.broken_records = []
        return self._read_listed_records() if self.can_list else self._read_single_record()

    def _read_single_record(self) -> list[CheckpointRecord]:
        """Read the sidecar record, and ignore one of another run or job. Not cached, because it is overwritten."""
        location = self._sidecar_location()
        try:
            record = CheckpointRecord.from_json(self._read_text(location))
        except FormatError as error:
            self.broken_records.append(f"{redact_url(location.url)}: {error}")
            return []
        except TransferError as error:
            return self._handle_read_error(error)
        if len(record.files) > 1:
            self.broken_records.append(f"{redact_url(location.url)}: it names several files")
            return []
        return [record] if (record.run, record.job) == (self.run, self.job) else []

    @staticmethod
    def _handle_read_error(error: TransferError) -> list[CheckpointRecord]:
        if error.kind == "object_missing":
            return []
        if _is_rejection(error):
            raise TransferError("unsupported", error.detail, error.redacted_url) from error
        raise error

    def _read_listed_records(self) -> list[CheckpointRecord]:
        folder = self._location(job_prefix(self.run, self.job))
        try:
            names = [entry.name for entry in self._backend.list(folder)]
        except TransferError as error:
            if error.kind != "object_missing":
                raise
            names = []
        records = (
            self._records_by_name.get(name) or self._read_record(name)
            for name in names
            if name.endswith(f"/{RECORD_NAME}")
        )
        return [record for record in records if record is not None]

    def max_step_of_others(self) -> int:
        """Return the highest training step of other attempts, or -1 if there is none. Raises TransferError."""
        others = [record for record in self.read_records() if record.emitter != self.emitter]
        return max((record.step for record in others if record.prefix not in self._broken_generations), default=-1)

    def remote_files(self, record: CheckpointRecord) -> list[RemoteFile]:
        """Return what to download in order to resume from the record."""
        return [
            RemoteFile(f.name, (self._file_location(record, f.name),), f.size, Digest("sha256", f.sha256))
            for f in record.files
        ]

    def _file_location(self, record: CheckpointRecord, name: str) -> Location:
        return self._location(f"{record.prefix}/{name}") if self.can_list else self._sidecar_location(CHECKPOINT_SUFFIX)

    def list_requeue_outputs(self, emitter: str) -> list[RemoteFile]:
        """Return the outputs other than the checkpoint of a requeued attempt. A single-file destination has none."""
        if not self.can_list:
            return []
        folder = self._location(requeue_folder(emitter))
        return [
            RemoteFile(check_listed_name(e.name, e.location.url), (e.location,), e.size)
            for e in self._backend.list(folder)
        ]

    def _read_record(self, name: str) -> CheckpointRecord | None:
        try:
            text = self._read_text(self._location(f"{job_prefix(self.run, self.job)}/{name}"))
            record = CheckpointRecord.from_json(text)
        except FormatError as error:
            self.broken_records.append(f"{name}: {error}")
            return None
        except TransferError as error:
            if error.kind != "object_missing":  # a missing one was deleted meanwhile
                raise
            return None
        if f"{record.prefix}/{RECORD_NAME}" != f"{job_prefix(self.run, self.job)}/{name}":
            self.broken_records.append(f"{name}: it is the record of {record.prefix}")
            return None
        self._records_by_name[name] = record
        return record

    def _read_text(self, location: Location) -> str:
        stream = self._backend.open(location)
        data = b""
        try:
            while len(data) < _MAX_RECORD_BYTES:
                block = stream.read(_MAX_RECORD_BYTES)
                if not block:
                    break
                data += block
        finally:
            with suppress(OSError):
                stream.close()
        return data.decode("utf-8", "replace")

    def _put(self, name: str, path: Path, check_cancelled: CancelCheck) -> None:
        self._put_location(self._location(name), path, check_cancelled)

    def _put_location(self, location: Location, path: Path, check_cancelled: CancelCheck) -> None:
        check_cancelled()
        self._backend.put(location, path, lambda count: check_cancelled(), adopt_uploads=False)
        verify_upload(self._backend, location, path)

    def _generation_prefix(self, generation: int) -> str:
        return generation_prefix(self.run, self.job, self.emitter, generation)

    def _location(self, name: str) -> Location:
        return replace(self._root, url=join_url(self._root.url, name))

    def _sidecar_location(self, suffix: str = RECORD_SUFFIX) -> Location:
        return replace(self._root, url=append_to_url_path(self._root.url, suffix))


def _is_rejection(error: TransferError) -> bool:
    """Return whether the server refused the request for good, so that a retry is useless."""
    is_client_error = (
        error.http_status is not None
        and 400 <= error.http_status < 500
        and error.http_status not in _RETRYABLE_STATUSES
    )
    return is_client_error or error.kind in _REJECTION_KINDS
