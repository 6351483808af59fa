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
from packtrain.cli.ui.credentials import Access, access_options
from packtrain.cli.ui.download import refuse_packing
from packtrain.cli.ui.hints import hinted
from packtrain.cli.ui.options import patience_option
from packtrain.cli.ui.output import count, dry_run_option, json_option, show
from packtrain.cli.ui.transfer_progress import Follower, Stop, stopping
from packtrain.errors import FailedError, NotFoundError, UsageError
from packtrain.plan import Output, Ref
from packtrain.transfer.registry import source_for
from packtrain.transfer.upload import upload_file
from packtrain.transfer.urls import joined, shown
from packtrain.views.transfer import Account, account_line

_GOES_ON = "no file is visible half; the same command starts again"
_SIZE = "size"


@dataclass(frozen=True)
class Parcel:
    path: Path
    ref: Ref
    size: int


@click.command(name="put")
@click.argument("paths", metavar="FILE|FOLDER...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.argument("url")
@patience_option("How long a failing upload is tried again.")
@access_options
@dry_run_option
@json_option
def command(paths: tuple[Path, ...], url: str, patience: float, access: Access, dry_run: bool, as_json: bool) -> None:
    """Upload files or folders to an address: retried, verified, complete or invisible.

    One file goes to the address itself, or below it if it ends in /. What one folder holds goes below the
    address; of several, each goes below it under its name.
    """
    refuse_packing(url, "packtrain does not pack: the files of a folder go below the address as they are")
    parcels = _parcels(paths, url, access)
    began, verified = time.monotonic(), []
    if not dry_run:
        with stopping(_GOES_ON) as stop, Follower(quiet=as_json) as follower:
            verified = list(_put_all(parcels, access, patience, stop, follower))
    seconds = time.monotonic() - began
    show(
        as_json,
        {"files": _data(parcels, verified), "bytes": sum(one.size for one in parcels), "seconds": seconds},
        lambda out: _text(out, parcels, verified, seconds, shown(url)),
    )


def _parcels(paths: Sequence[Path], url: str, access: Access) -> list[Parcel]:
    parcels = [
        Parcel(path, access.ref(joined(url, name), url), path.stat().st_size) for name, path in _named(paths, url)
    ]
    if not parcels:
        raise UsageError(f"{', '.join(map(str, paths))}: there are no files to put")
    return parcels


def _named(paths: Sequence[Path], url: str) -> Iterator[tuple[str, Path]]:
    """Every file, and its name below the address; the empty name is the address itself."""
    for path in paths:
        if not path.exists():
            raise NotFoundError(f"there is no file or folder {path}")
        if path.is_dir():
            below = (file for file in sorted(path.rglob("*")) if file.is_file())
            yield from ((file.relative_to(path if len(paths) == 1 else path.parent).as_posix(), file) for file in below)
        else:
            yield path.name if len(paths) > 1 or url.endswith("/") else "", path


def _put_all(
    parcels: Sequence[Parcel], access: Access, patience_s: float, stop: Stop, follower: Follower
) -> Iterator[str | None]:
    for parcel in parcels:
        follower.begin("upload", parcel.path.name, parcel.size)
        _put(parcel, access, patience_s, stop, follower)
        yield _verified_by(parcel, access)


def _put(parcel: Parcel, access: Access, patience_s: float, stop: Stop, follower: Follower) -> None:
    try:
        upload_file(
            parcel.path,
            Output(parcel.ref),
            "",
            access.reveal,
            patience_s=patience_s,
            stop=stop.check,
            progress=follower.progress,
        )
    except FailedError as error:
        raise hinted(error) from error


def _verified_by(parcel: Parcel, access: Access) -> str | None:
    """What the destination says of the file, which the upload has compared; None if we may not look."""
    try:
        info = source_for(parcel.ref, access.reveal).stat(parcel.ref)
    except FailedError:
        return None
    if info.digest is not None:
        return info.digest.algorithm
    return _SIZE if info.size == parcel.size else None


def _data(parcels: Sequence[Parcel], verified: Sequence[str | None]) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = [
        {"path": str(one.path), "url": shown(one.ref.url), "bytes": one.size} for one in parcels
    ]
    for file, by in zip(files, verified, strict=False):
        file["verified_by"] = by
    return files


def _text(out: Console, parcels: Sequence[Parcel], verified: Sequence[str | None], seconds: float, to: str) -> None:
    total = sum(one.size for one in parcels)
    if not verified:
        for one in parcels:
            out.print(f"would put {one.path} ({formatting.size(one.size)}) to {shown(one.ref.url)}", markup=False)
        return
    told = f"{count(len(parcels), 'file')} to {to}: {account_line(Account(total, seconds))} · {_checked(verified)}"
    out.print(told, markup=False)


def _checked(verified: Sequence[str | None]) -> str:
    """As the least proven of the files."""
    if None in verified:
        return f"not verified: the server does not show {count(verified.count(None), 'file')} of them"
    if _SIZE in verified:
        return "verified by size; the server gave no digest"
    return f"verified by {', '.join(sorted({by for by in verified if by}))}"
