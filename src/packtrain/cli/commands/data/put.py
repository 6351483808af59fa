"""packtrain put"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from packtrain import formatting
from packtrain.cli.ui.credentials import credential_options
from packtrain.cli.ui.options import retry_timeout_option
from packtrain.cli.ui.output import add_hint, dry_run_option, json_option, print_result
from packtrain.cli.ui.transfer_progress import TransferProgress, cancel_on_signal
from packtrain.data.credentials import CredentialOptions
from packtrain.data.upload import VERIFIED_BY_SIZE, UploadItem, make_upload_items, upload
from packtrain.errors import FailedError
from packtrain.formatting import pluralize
from packtrain.transfer.urls import redact_url
from packtrain.views.transfer import TransferTotals, format_totals

_RESTART_HINT = "no partial file is visible; run the same command again to start over"


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
    items = make_upload_items(paths, url, credentials)
    started_at, verification_methods = time.monotonic(), list[str | None]()
    if not dry_run:
        with cancel_on_signal(_RESTART_HINT) as cancel_token, TransferProgress(quiet=as_json) as progress:
            try:
                verification_methods = upload(
                    items, credentials, retry_timeout_s, cancel_token.check_cancelled, progress
                )
            except FailedError as error:
                raise add_hint(error) from error
    duration_s = time.monotonic() - started_at
    data = {
        "files": _files_data(items, verification_methods),
        "bytes": sum(item.size for item in items),
        "seconds": duration_s,
    }
    print_result(
        as_json, data, lambda out: _print_summary(out, items, verification_methods, duration_s, redact_url(url))
    )


def _files_data(items: Sequence[UploadItem], verification_methods: Sequence[str | None]) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = [{"path": str(item.path), "url": item.url, "bytes": item.size} for item in items]
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
            out.print(f"would upload {item.path} ({size}) to {item.url}")
        return
    totals = format_totals(TransferTotals(sum(item.size for item in items), duration_s))
    files, verification = pluralize(len(items), "file"), _format_verification(verification_methods)
    out.print(f"{files} to {destination}: {totals} · {verification}")


def _format_verification(verification_methods: Sequence[str | None]) -> str:
    """Describe the weakest verification among the files."""
    if None in verification_methods:
        return f"not verified: the server does not list {pluralize(verification_methods.count(None), 'file')} of them"
    if VERIFIED_BY_SIZE in verification_methods:
        return "verified by size; the server sent no digest"
    return f"verified by {', '.join(sorted({method for method in verification_methods if method}))}"
