"""Upload files and folders for a user, and say how each upload was verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packtrain.data.credentials import CredentialOptions
from packtrain.data.download import DownloadProgress
from packtrain.errors import FailedError, NotFoundError, UsageError
from packtrain.plan import Location, Output
from packtrain.transfer.registry import get_source
from packtrain.transfer.tasks.cancellation import CancelCheck
from packtrain.transfer.upload import upload_file
from packtrain.transfer.urls import join_url, redact_url, reject_pack_query

VERIFIED_BY_SIZE = "size"


@dataclass(frozen=True)
class UploadItem:
    """One file to upload."""

    path: Path
    location: Location
    size: int

    @property
    def url(self) -> str:
        """The destination, without credentials."""
        return redact_url(self.location.url)


def make_upload_items(paths: Sequence[Path], url: str, credentials: CredentialOptions) -> list[UploadItem]:
    """Return the files to upload with their destinations.

    A single file is uploaded to `url` itself, or below it if it ends in /. The contents of a single folder are uploaded
    below `url`; several files and folders are uploaded below it under their names.
    """
    reject_pack_query(url, "packtrain uploads the files of a folder one by one")
    items = [
        UploadItem(path, credentials.make_location(join_url(url, name), url), path.stat().st_size)
        for name, path in _iter_files_with_names(paths, url)
    ]
    if not items:
        raise UsageError(f"{', '.join(map(str, paths))}: there are no files to upload")
    return items


def _iter_files_with_names(paths: Sequence[Path], url: str) -> Iterator[tuple[str, Path]]:
    """Yield every file with its name below the URL; an empty name means the URL itself."""
    for path in paths:
        if not path.exists():
            raise NotFoundError(f"there is no file or folder {path}")
        if path.is_dir():
            files = (file for file in sorted(path.rglob("*")) if file.is_file())
            yield from ((file.relative_to(path if len(paths) == 1 else path.parent).as_posix(), file) for file in files)
        else:
            yield path.name if len(paths) > 1 or url.endswith("/") else "", path


def upload(
    items: Sequence[UploadItem],
    credentials: CredentialOptions,
    retry_timeout_s: float,
    check_cancelled: CancelCheck,
    progress: DownloadProgress,
) -> list[str | None]:
    """Upload files one after another.

    Returns:
        How each upload was verified: a digest algorithm, `VERIFIED_BY_SIZE`, or None if the destination does not allow
        to stat the file.
    """
    verification_methods = []
    for item in items:
        progress.start("upload", item.path.name, item.size)
        upload_file(
            item.path,
            Output(item.location),
            "",
            credentials.resolve_secret,
            retry_timeout_s=retry_timeout_s,
            check_cancelled=check_cancelled,
            on_progress=progress.on_progress,
        )
        verification_methods.append(_verification_method(item, credentials))
    return verification_methods


def _verification_method(item: UploadItem, credentials: CredentialOptions) -> str | None:
    try:
        info = get_source(item.location, credentials.resolve_secret).stat(item.location)
    except FailedError:
        return None
    if info.digest is not None:
        return info.digest.algorithm
    return VERIFIED_BY_SIZE if info.size == item.size else None
