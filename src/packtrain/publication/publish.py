"""Publish the outputs of the accepted attempt of a job.

    1. The manifest of the attempt is read. It alone says what is published.
    2. Its files are copied to the user's path: renamed on a file system, copied by the server on S3.
    3. What showed intermediate outputs and is not in the manifest is deleted; with deleteSync, everything else.
    4. That publication is complete is saved in the run's folder, and what attempts stored is removed.

A crash at any point is followed by the same steps again. A file that was already renamed is then compared with the
manifest. An http destination is one URL: its outputs are in the attempt's folder, and are uploaded from there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass

from packtrain.errors import FailedError, FormatError, TransferError
from packtrain.fileutil import atomic_write
from packtrain.plan import ManifestEntry, OutputManifest, RunFolder
from packtrain.plan.output_manifest import MANIFEST_NAME, staged_name, staging_folder
from packtrain.publication.destination import Destination, JobOutputs, is_reserved
from packtrain.transfer.integrity.digests import sha256_file
from packtrain.transfer.upload import upload_folder
from packtrain.transfer.urls import is_http, redact_url

_OWN_KINDS = frozenset({"access_denied", "secret_missing", "upload_refused", "certificate_invalid"})


class OutputsGoneError(FailedError):
    """The accepted outputs are neither where the attempt stored them nor under the user's path."""

    def __init__(self, detail: str) -> None:
        super().__init__("upload_failed", f"the accepted outputs are gone: {detail}; run the workflow again")


@dataclass(frozen=True)
class Publication:
    """The published outputs of a job."""

    emitter: str  # of the agent whose outputs they are
    files: int = 0
    bytes: int = 0
    url: str = ""  # of an http destination: where the file is, without credentials
    answer: str = ""  # what the http server said, mostly a link


def publish_outputs(outputs: JobOutputs, attempt_id: str, emitter: str) -> Publication:
    """Publish the outputs of an attempt. Repeatable.

    Args:
        outputs: The job and its destination.
        attempt_id: The accepted attempt.
        emitter: The agent of it that succeeded.

    Raises:
        FailedError: upload_failed and others. The outputs stay where the attempt stored them.
    """
    previous = read_publication(outputs.folder, outputs.job.id)
    if previous is not None and previous.emitter == emitter:
        return previous
    publish = _upload_to_url if is_http(outputs.output.location.url) else _publish_to_prefix
    try:
        return publish(outputs, attempt_id, emitter)
    except OutputsGoneError:
        raise
    except FailedError as error:
        raise _publication_error(outputs, emitter, error) from error
    except (OSError, FormatError) as error:
        raise _publication_error(outputs, emitter, FailedError("upload_failed", str(error))) from error


def read_publication(folder: RunFolder, job: str) -> Publication | None:
    """Return what was published for a job, or None if that is not complete."""
    try:
        return Publication(**json.loads(folder.publication(job).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _publish_to_prefix(outputs: JobOutputs, attempt_id: str, emitter: str) -> Publication:
    destination = Destination(outputs)
    manifest = _read_manifest(outputs, emitter, destination.read_text)
    staged = destination.list_names(staged_name(outputs.run, outputs.job.id, emitter, "").rstrip("/"))

    def publish_entry(entry: ManifestEntry) -> None:
        name = staged_name(outputs.run, outputs.job.id, emitter, entry.path)
        if staged.get(entry.path) not in (None, entry.bytes):
            url = redact_url(destination.location_of(name).url)
            raise TransferError("truncated", f"{url} has {staged[entry.path]} bytes instead of {entry.bytes}", url)
        try:
            destination.copy(name, entry.path, entry, may_move=True)
        except TransferError as error:
            if error.kind != "object_missing" or destination.exists(name):
                raise
            _verify_published(destination, entry)  # an earlier supervisor, or an earlier try, renamed it

    destination.for_each(publish_entry, manifest.entries)
    _delete_others(outputs, destination, {entry.path for entry in manifest.entries})
    publication = Publication(emitter, len(manifest.entries), sum(entry.bytes for entry in manifest.entries))
    _save_publication(outputs, publication)
    destination.remove_staging()
    return publication


def _verify_published(destination: Destination, entry: ManifestEntry) -> None:
    try:
        destination.verify(entry.path, entry)
    except TransferError as error:
        if error.kind not in ("object_missing", "truncated", "digest_mismatch"):
            raise
        raise OutputsGoneError(error.detail) from error


def _delete_others(outputs: JobOutputs, destination: Destination, published: set[str]) -> None:
    others = read_shown_names(outputs.folder, outputs.job.id)
    if outputs.output.delete_sync:
        others |= {name for name in destination.list_names() if not is_reserved(name)}
    destination.for_each(destination.delete, sorted(others - published))


def _upload_to_url(outputs: JobOutputs, attempt_id: str, emitter: str) -> Publication:
    attempt_output = outputs.folder.attempt_folder(outputs.job.id, attempt_id).output
    staging = attempt_output / staging_folder(outputs.run, outputs.job.id, emitter)
    manifest = _read_manifest(outputs, emitter, lambda name: (attempt_output / name).read_text(encoding="utf-8"))
    for entry in manifest.entries:
        path = staging / "files" / entry.path
        if path.stat().st_size != entry.bytes or sha256_file(path) != entry.sha256:
            raise OutputsGoneError(f"{path} is not the file that the agent listed")
    uploaded = upload_folder(
        staging / "files",
        outputs.output,
        outputs.resolve_secret,
        check_cancelled=outputs.check_cancelled,
        on_progress=lambda done, total: None,
        retry_timeout_s=outputs.retry_timeout_s,
    )
    publication = Publication(emitter, uploaded.files, uploaded.bytes, uploaded.url, uploaded.answer)
    _save_publication(outputs, publication)
    shutil.rmtree(attempt_output / staging_folder(outputs.run, outputs.job.id), ignore_errors=True)
    return publication


def _read_manifest(outputs: JobOutputs, emitter: str, read_text: Callable[[str], str]) -> OutputManifest:
    name = f"{staging_folder(outputs.run, outputs.job.id, emitter)}/{MANIFEST_NAME}"
    try:
        text = read_text(name)
    except (TransferError, FileNotFoundError) as error:
        if isinstance(error, TransferError) and error.kind != "object_missing":
            raise
        raise OutputsGoneError(str(error)) from error
    manifest = OutputManifest.from_text(text)
    if (manifest.run, manifest.job, manifest.emitter) != (outputs.run, outputs.job.id, emitter):
        raise FormatError(f"{name} is the manifest of {manifest.run}, job {manifest.job}, {manifest.emitter}")
    return manifest


def _save_publication(outputs: JobOutputs, publication: Publication) -> None:
    atomic_write(outputs.folder.publication(outputs.job.id), json.dumps(asdict(publication)) + "\n", durable=True)


def read_shown_names(folder: RunFolder, job: str) -> set[str]:
    """Return the names under the user's path that showed intermediate outputs."""
    try:
        return set(map(json.loads, folder.shown_outputs(job).read_text(encoding="utf-8").splitlines()))
    except FileNotFoundError:
        return set()


def add_shown_names(folder: RunFolder, job: str, names: set[str]) -> None:
    """Save names before they show intermediate outputs, so that publication can remove them."""
    known = read_shown_names(folder, job)
    if names - known:
        text = "".join(f"{json.dumps(name)}\n" for name in sorted(known | names))
        atomic_write(folder.shown_outputs(job), text, durable=True)


def _publication_error(outputs: JobOutputs, emitter: str, error: FailedError) -> FailedError:
    kind = error.kind if error.kind in _OWN_KINDS else "upload_failed"
    staging = staging_folder(outputs.run, outputs.job.id, emitter)
    where = "the attempt's folder" if is_http(outputs.output.location.url) else redact_url(outputs.output.location.url)
    detail = f"the outputs could not be published: {error.detail}; they are kept in {where}, below {staging}"
    return FailedError(kind, f"{detail}; `packtrain resume {outputs.run}` publishes them")
