"""packtrain put"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from packtrain import formatting
from packtrain.cli.ui.credentials import credential_options
from packtrain.cli.ui.options import retry_timeout_option
from packtrain.cli.ui.output import add_hint, dry_run_option, json_option, print_result
from packtrain.cli.ui.transfer_progress import CancelToken, TransferProgress, cancel_on_signal
from packtrain.errors import FailedError, NotFoundError, UsageError
from packtrain.formatting import pluralize
from packtrain.plan import Location, Output
from packtrain.planner.credentials.url_credentials import CredentialOptions
from packtrain.transfer.registry import get_source
from packtrain.transfer.upload import upload_file
from packtrain.transfer.urls import join_url, redact_url, reject_pack_query
from packtrain.views.transfer import TransferTotals, format_totals

_RESTART_HINT = "no partial file is visible; run the same command again to start over"
_VERIFIED_BY_SIZE = "size"


@dataclass(frozen=True)
class UploadItem:
    """One file to upload."""

    path: Path
    location: Location
    size: int


@click.command(name="put")
@click.argument("paths", metavar="FILE|FOLDER...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.argument("url")
@retry_timeout_option("How long to retry a failing upload.")
@credential_options
@dry_run_option
@json_option
def command(
    paths: tuple[Path, ...],
    url: str,
    retry_timeout_s: float,
    credentials: CredentialOptions,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Upload files or folders to URL and verify them. A partial upload is never visible.

    A single file is uploaded to URL itself, or below it if URL ends in /. The contents of a single folder are uploaded
    below URL. Several files and folders are uploaded below URL under their names.
    """
    reject_pack_query(url, "packtrain uploads the files of a folder one by one")
    items = _make_upload_items(paths, url, credentials)
    started_at, verification_methods = time.monotonic(), []
    if not dry_run:
        with cancel_on_signal(_RESTART_HINT) as cancel_token, TransferProgress(quiet=as_json) as progress:
            verification_methods = list(_upload_all(items, credentials, retry_timeout_s, cancel_token, progress))
    duration_s = time.monotonic() - started_at
    data = {
        "files": _files_data(items, verification_methods),
        "bytes": sum(item.size for item in items),
        "seconds": duration_s,
    }
    print_result(
        as_json, data, lambda out: _print_summary(out, items, verification_methods, duration_s, redact_url(url))
    )


def _make_upload_items(paths: Sequence[Path], url: str, credentials: CredentialOptions) -> list[UploadItem]:
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


def _upload_all(
    items: Sequence[UploadItem],
    credentials: CredentialOptions,
    retry_timeout_s: float,
    cancel_token: CancelToken,
    progress: TransferProgress,
) -> Iterator[str | None]:
    for item in items:
        progress.start("upload", item.path.name, item.size)
        _upload(item, credentials, retry_timeout_s, cancel_token, progress)
        yield _verification_method(item, credentials)


def _upload(
    item: UploadItem,
    credentials: CredentialOptions,
    retry_timeout_s: float,
    cancel_token: CancelToken,
    progress: TransferProgress,
) -> None:
    try:
        upload_file(
            item.path,
            Output(item.location),
            "",
            credentials.resolve_secret,
            retry_timeout_s=retry_timeout_s,
            check_cancelled=cancel_token.check_cancelled,
            on_progress=progress.on_progress,
        )
    except FailedError as error:
        raise add_hint(error) from error


def _verification_method(item: UploadItem, credentials: CredentialOptions) -> str | None:
    """Return how the upload was verified, or None if the destination does not allow to stat the file."""
    try:
        info = get_source(item.location, credentials.resolve_secret).stat(item.location)
    except FailedError:
        return None
    if info.digest is not None:
        return info.digest.algorithm
    return _VERIFIED_BY_SIZE if info.size == item.size else None


def _files_data(items: Sequence[UploadItem], verification_methods: Sequence[str | None]) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = [
        {"path": str(item.path), "url": redact_url(item.location.url), "bytes": item.size} for item in items
    ]
    for file, method in zip(files, verification_methods, strict=False):
        file["verified_by"] = method
    return files


def _print_summary(
    out: Console,
    items: Sequence[UploadItem],
    verification_methods: Sequence[str | None],
    duration_s: float,
    destination: str,
) -> None:
    if not verification_methods:
        for item in items:
            size = formatting.format_size(item.size)
            out.print(f"would upload {item.path} ({size}) to {redact_url(item.location.url)}")
        return
    totals = format_totals(TransferTotals(sum(item.size for item in items), duration_s))
    files, verification = pluralize(len(items), "file"), _format_verification(verification_methods)
    out.print(f"{files} to {destination}: {totals} · {verification}")


def _format_verification(verification_methods: Sequence[str | None]) -> str:
    """Describe the weakest verification among the files."""
    if None in verification_methods:
        return f"not verified: the server does not list {pluralize(verification_methods.count(None), 'file')} of them"
    if _VERIFIED_BY_SIZE in verification_methods:
        return "verified by size; the server sent no digest"
    return f"verified by {', '.join(sorted({method for method in verification_methods if method}))}"
