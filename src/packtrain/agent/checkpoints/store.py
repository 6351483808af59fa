"""Where the generations of a job's checkpoints stand: below its output, on any sink that can list what it has.

One that cannot (http) has room for one generation: the file at its address, and the record beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from packtrain.agent.checkpoints.record import (
    COMPLETION_MARKER_NAME,
    RECORD_NAME,
    RECORD_SUFFIX,
    REQUEUE_PREFIX,
    CheckpointRecord,
    completion_marker_json,
    generation_prefix,
    job_prefix,
    parse_completion_marker,
    requeue_folder,
)
from packtrain.agent.context import AttemptContext
from packtrain.errors import FailedError, FormatError, TransferError
from packtrain.plan import Digest, Location, Output, RemoteFile
from packtrain.transfer.api import SecretResolver, Sink, Source
from packtrain.transfer.registry import get_source
from packtrain.transfer.upload import verify_upload
from packtrain.transfer.urls import append_to_url_path, check_listed_name, join_url, redact_url, url_scheme

_SINGLE_FILE_SCHEMES = ("http", "https")  # takes one file, and lists nothing
_MAX_RECORD_BYTES = 1 << 20
_REJECTION_KINDS = frozenset({"access_denied", "unsupported", "object_missing", "unexpected_content"})
_RETRYABLE_STATUSES = (408, 425, 429)

CancelCheck = Callable[[], None]


class RecordRejectedError(Exception):
    """A server that takes one file does not take its record: nobody can go on from it."""


class ReadWriteBackend(Source, Sink, Protocol):
    """All our backends are both."""


def open_backend(location: Location, resolve_secret: SecretResolver) -> ReadWriteBackend:
    return cast(ReadWriteBackend, get_source(location, resolve_secret))


def can_list(location: Location) -> bool:
    return url_scheme(location.url) not in _SINGLE_FILE_SCHEMES


def checkpoint_destination(context: AttemptContext) -> Output | None:
    """Where checkpoints go: to the job's output, or into the folder that the engine carries."""
    return (
        context.job.output
        if context.transferred_checkpoint is None
        else Output(Location(context.transferred_checkpoint.as_uri()))
    )


def open_checkpoint_store(context: AttemptContext, output: Output) -> CheckpointStore:
    store, run, emitter = (
        open_backend(output.location, context.secrets.resolve_secret),
        context.journal.run,
        context.journal.emitter,
    )
    return CheckpointStore(
        output.location,
        store,
        run,
        context.job.id,
        emitter,
        context.transferred_checkpoint is None,
        context.checkpoint_state.broken_generations,
    )


def write_completion_marker(context: AttemptContext) -> None:
    """Before the outputs of an attempt appear: its last save has no record, so that an attempt that is late would take
    its own for the furthest, and put it in the place of the final one."""
    place, step = context.job.output, context.checkpoint_state.last_saved_step
    if context.job.checkpoint is None or place is None or step < 0 or not can_list(place.location):
        return
    try:
        open_checkpoint_store(context, place).mark_completed(
            step, context.sandbox.checkpoint_staging / COMPLETION_MARKER_NAME
        )
    except (FailedError, OSError) as error:  # the outputs matter more
        context.log.write(f"sync: other attempts could not be told of the end: {error}")


class CheckpointStore:
    def __init__(
        self,
        location: Location,
        backend: ReadWriteBackend,
        run: str,
        job: str,
        emitter: str = "",
        publishes: bool = True,
        broken_generations: Set[str] = frozenset(),
    ) -> None:
        """`shows`: there is a path of the user's own, at which the newest complete one appears. `void`: generations
        that are not whole, so that nobody is behind them."""
        self._root, self._backend, self.can_list, self.publishes = location, backend, can_list(location), publishes
        self.run, self.job, self.emitter, self._broken_generations = run, job, emitter, broken_generations
        self._records_by_name: dict[str, CheckpointRecord] = {}  # a record that stands never changes
        self._completed_steps: dict[str, int] = {}  # by name: the steps at which attempts of the job came to their end
        self.broken_records: list[str] = []  # what is no record, and why

    # Writing, below our own emitter's prefix

    def upload_file(self, generation: int, name: str, path: Path, check_cancelled: CancelCheck) -> None:
        """Atomic and repeatable, and looked at afterwards. Raises FailedError, or what `stop` raises."""
        self._put(f"{self._generation_prefix(generation)}/{name}", path, check_cancelled)

    def commit(self, generation: int, record: Path, check_cancelled: CancelCheck) -> None:
        """Raises RecordRefusedError too, where there is one address."""
        if self.can_list:
            self._put(f"{self._generation_prefix(generation)}/{RECORD_NAME}", record, check_cancelled)
        else:
            self._commit_sidecar(record, check_cancelled)

    def _commit_sidecar(self, record: Path, check_cancelled: CancelCheck) -> None:
        """Read afterwards: a server that takes anything need not give it back."""
        ref = self._sidecar_location()
        try:
            self._put_location(ref, record, check_cancelled)
            stands = self._read_text(ref) == record.read_text(encoding="utf-8")
        except TransferError as error:
            if not _is_rejection(error):
                raise
            raise RecordRejectedError(f"its record was refused: {error}") from error
        if not stands:
            raise RecordRejectedError(f"its record was taken, but {redact_url(ref.url)} does not give it back")

    def mark_completed(self, step: int, scratch: Path) -> None:
        scratch.write_text(completion_marker_json(step), encoding="utf-8")
        self._put(f"{job_prefix(self.run, self.job)}/{self.emitter}/{COMPLETION_MARKER_NAME}", scratch, lambda: None)

    def delete_generation(self, generation: int, names: tuple[str, ...]) -> None:
        """The record first: what is not whole is never visible."""
        for name in (RECORD_NAME, *names):
            ref = self._location(f"{self._generation_prefix(generation)}/{name}")
            self._backend.delete(ref)
            if name != RECORD_NAME:
                self._abort_upload(ref)

    def delete_other_generations(self) -> None:
        """What earlier starts left, now that we have something newer. Only where no other attempt can be alive."""
        for record in [record for record in self.read_records() if record.emitter != self.emitter]:
            for name in (RECORD_NAME, *(file.name for file in record.files)):
                self._backend.delete(self._location(f"{record.prefix}/{name}"))
        for entry in list(self._backend.list(self._location(REQUEUE_PREFIX))):
            if not entry.name.startswith(f"{self.emitter}/"):
                self._backend.delete(entry.location)

    def _abort_upload(self, location: Location) -> None:
        """Parts of an upload that did not end are not left behind to be paid for, where that can be asked for."""
        abandon = getattr(self._backend, "abort_uploads", None)
        if abandon is not None:
            with suppress(TransferError):
                abandon(location)

    def publish(self, name: str, path: Path, check_cancelled: CancelCheck) -> None:
        """Under the name that the user knows; where there is one address only, at that."""
        self._put(name if self.can_list else "", path, check_cancelled)

    # Reading, of all emitters

    def read_records(self) -> list[CheckpointRecord]:
        """Those of the job, of all its attempts; none at all is no error. Raises TransferError."""
        self.broken_records = []
        return self._read_listed_records() if self.can_list else self._read_single_record()

    def _read_single_record(self) -> list[CheckpointRecord]:
        """Never remembered: the next one takes its place. That of another run or job is not ours."""
        ref = self._sidecar_location()
        try:
            record = CheckpointRecord.from_json(self._read_text(ref))
        except FormatError as error:
            self.broken_records.append(f"{redact_url(ref.url)}: {error}")
            return []
        except TransferError as error:
            return self._handle_read_error(error)
        if len(record.files) > 1:
            self.broken_records.append(f"{redact_url(ref.url)}: it names several files")
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
        below = self._location(job_prefix(self.run, self.job))
        try:
            names = [entry.name for entry in self._backend.list(below)]
        except TransferError as error:
            if error.kind != "object_missing":
                raise
            names = []
        for name in names:
            if (
                name.endswith(f"/{COMPLETION_MARKER_NAME}")
                and name.count("/") == 1
                and name not in self._completed_steps
            ):
                self._completed_steps[name] = self._read_completion_marker(name)
        found = (
            self._records_by_name.get(name) or self._read_record(name)
            for name in names
            if name.endswith(f"/{RECORD_NAME}")
        )
        return [record for record in found if record is not None]

    def _read_completion_marker(self, name: str) -> int:
        try:
            return parse_completion_marker(self._read_text(self._location(f"{job_prefix(self.run, self.job)}/{name}")))
        except FormatError:
            return -1
        except TransferError as error:
            if error.kind != "object_missing":
                raise
            return -1

    def max_step_of_others(self) -> int:
        """The highest training step of other attempts; -1 if there is none, or nobody may look."""
        others = [record for record in self.read_records() if record.emitter != self.emitter]
        steps = [record.step for record in others if record.prefix not in self._broken_generations]
        return max([*steps, *self._completed_steps.values()], default=-1)

    def remote_files(self, record: CheckpointRecord) -> list[RemoteFile]:
        """What has to be fetched in order to go on from it."""
        return [
            RemoteFile(f.name, (self._file_location(record, f.name),), f.size, Digest("sha256", f.sha256))
            for f in record.files
        ]

    def _file_location(self, record: CheckpointRecord, name: str) -> Location:
        return self._location(f"{record.prefix}/{name}") if self.can_list else self._root

    def list_requeue_outputs(self, emitter: str) -> list[RemoteFile]:
        """The other outputs of an attempt that left in time; one address has no room for them."""
        if not self.can_list:
            return []
        below = self._location(requeue_folder(emitter))
        return [
            RemoteFile(check_listed_name(e.name, e.location.url), (e.location,), e.size)
            for e in self._backend.list(below)
        ]

    def _read_record(self, name: str) -> CheckpointRecord | None:
        try:
            text = self._read_text(self._location(f"{job_prefix(self.run, self.job)}/{name}"))
            record = CheckpointRecord.from_json(text)
        except FormatError as error:
            self.broken_records.append(f"{name}: {error}")
            return None
        except TransferError as error:
            if error.kind != "object_missing":  # else it was removed meanwhile
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
        self._backend.put(location, path, lambda count: check_cancelled())
        verify_upload(self._backend, location, path)

    def _generation_prefix(self, generation: int) -> str:
        return generation_prefix(self.run, self.job, self.emitter, generation)

    def _location(self, name: str) -> Location:
        return replace(self._root, url=join_url(self._root.url, name))

    def _sidecar_location(self) -> Location:
        return replace(self._root, url=append_to_url_path(self._root.url, RECORD_SUFFIX))


def _is_rejection(error: TransferError) -> bool:
    """Whether the server answered, and will not answer otherwise."""
    refused = (
        error.http_status is not None
        and 400 <= error.http_status < 500
        and error.http_status not in _RETRYABLE_STATUSES
    )
    return refused or error.kind in _REJECTION_KINDS
