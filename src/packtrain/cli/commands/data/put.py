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
from packtrain.cli.ui.credentials import CredentialOptions, credential_options
from packtrain.cli.ui.download import reject_pack_query
from packtrain.cli.ui.hints import add_hint
from packtrain.cli.ui.options import retry_timeout_option
from packtrain.cli.ui.output import dry_run_option, json_option, pluralize, print_result
from packtrain.cli.ui.transfer_progress import CancelToken, TransferProgress, cancel_on_signal
from packtrain.errors import FailedError, NotFoundError, UsageError
from packtrain.plan import Location, Output
from packtrain.transfer.registry import get_source
from packtrain.transfer.upload import upload_file
from packtrain.transfer.urls import join_url, redact_url
from packtrain.views.transfer import TransferTotals, format_totals

_RESTART_HINT = "no file is visible half; the same command starts again"
_VERIFIED_BY_SIZE = "size"


@dataclass(frozen=True)
class UploadItem:
    path: Path
    location: Location
    size: int


@click.command(name="put")
@click.argument("paths", metavar="FILE|FOLDER...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.argument("url")
@retry_timeout_option("How long a failing upload is tried again.")
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
    """Upload files or folders to an address: retried, verified, complete or invisible.

    One file goes to the address itself, or below it if it ends in /. What one folder holds goes below the
    address; of several, each goes below it under its name.
    """
    reject_pack_query(url, "packtrain does not pack: the files of a folder go below the address as they are")
    parcels = _make_upload_items(paths, url, credentials)
    began, verified = time.monotonic(), []
    if not dry_run:
        with cancel_on_signal(_RESTART_HINT) as stop, TransferProgress(quiet=as_json) as follower:
            verified = list(_upload_all(parcels, credentials, retry_timeout_s, stop, follower))
    seconds = time.monotonic() - began
    print_result(
        as_json,
        {"files": _files_data(parcels, verified), "bytes": sum(one.size for one in parcels), "seconds": seconds},
        lambda out: _print_summary(out, parcels, verified, seconds, redact_url(url)),
    )


def _make_upload_items(paths: Sequence[Path], url: str, credentials: CredentialOptions) -> list[UploadItem]:
    parcels = [
        UploadItem(path, credentials.make_location(join_url(url, name), url), path.stat().st_size)
        for name, path in _iter_files_with_names(paths, url)
    ]
    if not parcels:
        raise UsageError(f"{', '.join(map(str, paths))}: there are no files to put")
    return parcels


def _iter_files_with_names(paths: Sequence[Path], url: str) -> Iterator[tuple[str, Path]]:
    """Every file, and its name below the address; the empty name is the address itself."""
    for path in paths:
        if not path.exists():
            raise NotFoundError(f"there is no file or folder {path}")
        if path.is_dir():
            below = (file for file in sorted(path.rglob("*")) if file.is_file())
            yield from ((file.relative_to(path if len(paths) == 1 else path.parent).as_posix(), file) for file in below)
        else:
            yield path.name if len(paths) > 1 or url.endswith("/") else "", path


def _upload_all(
    items: Sequence[UploadItem],
    credentials: CredentialOptions,
    retry_timeout_s: float,
    cancel_token: CancelToken,
    progress: TransferProgress,
) -> Iterator[str | None]:
    for parcel in items:
        progress.start("upload", parcel.path.name, parcel.size)
        _upload(parcel, credentials, retry_timeout_s, cancel_token, progress)
        yield _verification_method(parcel, credentials)


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
    """What the destination says of the file, which the upload has compared; None if we may not look."""
    try:
        info = get_source(item.location, credentials.resolve_secret).stat(item.location)
    except FailedError:
        return None
    if info.digest is not None:
        return info.digest.algorithm
    return _VERIFIED_BY_SIZE if info.size == item.size else None


def _files_data(items: Sequence[UploadItem], verification_methods: Sequence[str | None]) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = [
        {"path": str(one.path), "url": redact_url(one.location.url), "bytes": one.size} for one in items
    ]
    for file, by in zip(files, verification_methods, strict=False):
        file["verified_by"] = by
    return files


def _print_summary(
    out: Console,
    items: Sequence[UploadItem],
    verification_methods: Sequence[str | None],
    duration_s: float,
    destination: str,
) -> None:
    total = sum(one.size for one in items)
    if not verification_methods:
        for one in items:
            out.print(
                f"would put {one.path} ({formatting.format_size(one.size)}) to {redact_url(one.location.url)}",
                markup=False,
            )
        return
    told = f"{pluralize(len(items), 'file')} to {destination}: {format_totals(TransferTotals(total, duration_s))} · {_format_verification(verification_methods)}"
    out.print(told, markup=False)


def _format_verification(verification_methods: Sequence[str | None]) -> str:
    """As the least proven of the files."""
    if None in verification_methods:
        return f"not verified: the server does not show {pluralize(verification_methods.count(None), 'file')} of them"
    if _VERIFIED_BY_SIZE in verification_methods:
        return "verified by size; the server gave no digest"
    return f"verified by {', '.join(sorted({by for by in verification_methods if by}))}"
