"""Transfer one file, or all files below a folder, with the job's retry timeout."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.plan import Location, Output, RemoteFile
from packtrain.plugin.job_credentials import JobCredentials
from packtrain.plugin.transfer_requests import TransferRequest
from packtrain.transfer.fetch import FetchResult, fetch
from packtrain.transfer.registry import get_source
from packtrain.transfer.retry import retry
from packtrain.transfer.upload import upload_file, upload_folder
from packtrain.transfer.urls import check_listed_name, is_federated, is_http

CancelCheck = Callable[[], None]
_PACK_OPTION = re.compile(r"[?&]pack=")


@dataclass
class TransferResult:
    """The result of one request. `error` is None if all files are complete and verified."""

    request: TransferRequest
    started_at: float = field(default_factory=time.time)
    ended_at: float = 0.0
    transferred_bytes: int = 0
    fetch_results: list[FetchResult] = field(default_factory=list)
    error: FailedError | None = None
    was_started: bool = True


def run_transfer(
    request: TransferRequest, credentials: JobCredentials, retry_timeout_s: float, check_cancelled: CancelCheck
) -> TransferResult:
    """Carry out one request. Errors become part of the result."""
    result = TransferResult(request)
    try:
        location = credentials.location_from_url(request.url)
        _reject_pack_option(location, request.is_upload)
        if request.is_upload:
            result.transferred_bytes = _upload(
                location, request.local_path, credentials, retry_timeout_s, check_cancelled
            )
        else:
            _download(location, result, credentials, retry_timeout_s, check_cancelled)
    except FailedError as error:
        result.error = error
    except OSError as error:
        result.error = FailedError("internal", f"{request.local_name}: {error.strerror or error}")
    except Exception as error:
        result.error = FailedError("internal", f"a bug in packtrain: {type(error).__name__}: {error}")
    result.ended_at = time.time()
    return result


def _reject_pack_option(location: Location, is_upload: bool) -> None:
    if is_federated(location.url) and _PACK_OPTION.search(location.url):
        verb = "pack" if is_upload else "unpack"
        raise FailedError("unsupported", f"packtrain's plugin does not {verb} (`?pack=`); {verb} it in the job")


def _download(
    location: Location,
    result: TransferResult,
    credentials: JobCredentials,
    retry_timeout_s: float,
    check_cancelled: CancelCheck,
) -> None:
    for name, source in _list_sources(location, result.request, credentials, retry_timeout_s, check_cancelled):
        target = result.request.local_path / name if name else result.request.local_path
        target.parent.mkdir(parents=True, exist_ok=True)
        fetched = fetch(
            RemoteFile(name or target.name, (source,)),
            target,
            credentials.resolve_secret,
            retry_timeout_s=retry_timeout_s,
            check_cancelled=check_cancelled,
            on_progress=lambda done, total: None,
        )
        result.fetch_results.append(fetched)
        result.transferred_bytes += fetched.bytes


def _list_sources(
    location: Location,
    request: TransferRequest,
    credentials: JobCredentials,
    retry_timeout_s: float,
    check_cancelled: CancelCheck,
) -> list[tuple[str, Location]]:
    """Return (name below the target, location) of all files; the empty name is the target itself."""
    if not request.is_recursive:
        return [("", location)]
    top = replace(location, url=location.url.partition("?")[0])
    entries = retry(
        lambda: list(get_source(top, credentials.resolve_secret).list(top)), retry_timeout_s, check_cancelled
    )
    return [(check_listed_name(entry.name, entry.location.url), entry.location) for entry in entries]


def _upload(
    location: Location, path: Path, credentials: JobCredentials, retry_timeout_s: float, check_cancelled: CancelCheck
) -> int:
    """Upload a file or folder and return the number of bytes."""
    # HTCondor writes URLs such as `folder//name`.
    if not is_http(location.url):
        head, slashes, rest = location.url.partition("://")
        location = replace(location, url=head + slashes + _collapse_slashes(rest))
    if path.is_dir():
        uploaded = upload_folder(
            path,
            Output(location),
            credentials.resolve_secret,
            check_cancelled=check_cancelled,
            on_progress=lambda done, total: None,
            retry_timeout_s=retry_timeout_s,
        )
        return uploaded.bytes
    if not path.is_file():
        raise FailedError("output_missing", f"the file {path.name} does not exist; the job did not create it")
    upload_file(
        path,
        Output(location),
        "",
        credentials.resolve_secret,
        retry_timeout_s=retry_timeout_s,
        check_cancelled=check_cancelled,
    )
    return path.stat().st_size


def _collapse_slashes(path: str) -> str:
    """Collapse repeated slashes except the leading one of an osdf URL."""
    return re.sub(r"(?<=.)/{2,}", "/", path)
