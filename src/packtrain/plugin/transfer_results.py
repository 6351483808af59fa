"""Write the results: one ClassAd for each request, and the exit code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packtrain import __version__
from packtrain.condor.classads import ClassAd, format_new_classad
from packtrain.errors import FailedError
from packtrain.events import FAILURE_KINDS
from packtrain.plugin.file_transfer import TransferResult
from packtrain.plugin.transfer_requests import TransferRequest
from packtrain.transfer.urls import redact_url

EXIT_SUCCESS, EXIT_FAILED, EXIT_NO_RESULTS, EXIT_RETRYABLE = 0, 1, 3, 11
"""The exit codes of Pelican's own plugin, so that existing policies apply. A hold shows them as subcode n × 256."""

_NOT_RETRYABLE, _RETRYABLE = -1, 0
# Failure kind → ErrorType and further attributes of HTCondor's TransferErrorData.
_ERROR_TYPES: dict[str, tuple[str, dict[str, Any]]] = {
    "host_unknown": ("Resolution", {"FailureType": "PreContact"}),
    "network_unreachable": ("Contact", {}),
    "certificate_invalid": ("Contact", {}),
    "access_denied": ("Authorization", {"FailureType": "Authorization", "ShouldRefresh": True}),
    "secret_missing": ("Authorization", {"FailureType": "Authentication", "ShouldRefresh": False}),
    "object_missing": ("Specification", {}),
    "output_missing": ("Specification", {}),
    "disk_full": ("Transfer", {"FailureType": "NoSpace"}),
    "unsupported": ("Parameter", {"PluginVersion": __version__, "PluginLaunched": True}),
    "internal": ("Parameter", {"PluginVersion": __version__, "PluginLaunched": True}),
}
_DEFAULT_ERROR_TYPE = ("Transfer", {"FailureType": "TimedOut"})


def make_result_ad(result: TransferResult) -> ClassAd:
    """Return the ClassAd of a result."""
    request, error = result.request, result.error
    ad: ClassAd = {
        "TransferFileName": request.local_name,
        "TransferUrl": request.url,
        "TransferSuccess": error is None,
        "TransferType": "upload" if request.is_upload else "download",
        "TransferProtocol": request.url.partition("://")[0].rpartition("+")[2].lower(),
        "TransferStartTime": int(result.started_at),
        "TransferEndTime": int(result.ended_at),
        "ConnectionTimeSeconds": round(max(0.0, result.ended_at - result.started_at), 3),
        "TransferTotalBytes": result.transferred_bytes,
        "TransferFileBytes": result.transferred_bytes if error is None else 0,
        "TransferHostName": _server_name(result),
        "TransferLocalMachineName": os.uname().nodename,
        "DeveloperData": _developer_data(result),
    }
    return ad if error is None else {**ad, **_error_attributes(error, result)}


def make_skipped_result(request: TransferRequest) -> TransferResult:
    """Return the result of a request that was not started, because an earlier one failed."""
    error = FailedError("terminated", "not started, because another transfer failed")
    result = TransferResult(request, error=error, was_started=False)
    result.ended_at = result.started_at
    return result


def is_retryable(error: FailedError) -> bool:
    """Return whether the failure is transient."""
    return FAILURE_KINDS[error.kind].transient


def exit_code(transfer_results: Sequence[TransferResult]) -> int:
    """Return the exit code; retryable only if all failed transfers are."""
    errors = [result.error for result in transfer_results if result.error is not None and result.was_started]
    if not errors:
        return EXIT_SUCCESS
    return EXIT_RETRYABLE if all(map(is_retryable, errors)) else EXIT_FAILED


def write_ads(path: Path, ads: Sequence[ClassAd]) -> None:
    """Overwrite the file and pad it with spaces: HTCondor preallocates it in case the disk is full."""
    data = "".join(format_new_classad(ad) + "\n" for ad in ads).encode("utf-8", "surrogateescape")
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        file.write(data + b" " * (size - len(data)))


def _error_attributes(error: FailedError, result: TransferResult) -> ClassAd:
    kind, more = _ERROR_TYPES.get(error.kind, _DEFAULT_ERROR_TYPE)
    server = (
        {"FailedName" if kind == "Resolution" else "FailedServer": _server_name(result)} if kind != "Parameter" else {}
    )
    retry_after_s = getattr(error, "retry_after_s", None)
    data = {
        "ErrorType": kind,
        **server,
        **more,
        "Retryable": int(retry_after_s or _RETRYABLE) if is_retryable(error) else _NOT_RETRYABLE,
        "ErrorCode": FAILURE_KINDS[error.kind].exit_code,
        "ErrorString": error.detail,
        "DeveloperData": {"Kind": error.kind},
    }
    return {
        "TransferError": f"{error.detail} ({_format_remedy(error)})",
        "TransferRetryable": is_retryable(error),
        "TransferErrorData": [data],
    }


def _format_remedy(error: FailedError) -> str:
    row = FAILURE_KINDS[error.kind]
    return f"{error.kind}; {'transient: try again later' if row.transient else row.remedy}"


def _server_name(result: TransferResult) -> str:
    """Return the server that sent most bytes, or else the host of the URL."""
    totals: dict[str, int] = {}
    for fetched in result.fetch_results:
        for label, count in fetched.bytes_by_source.items():
            totals[label] = totals.get(label, 0) + count
    if totals:
        return max(totals, key=lambda label: totals[label])
    return urlsplit(redact_url(result.request.url)).hostname or ""


def _developer_data(result: TransferResult) -> ClassAd:
    fetched = result.fetch_results
    return {
        "PacktrainVersion": __version__,
        "Files": len(fetched) or int(result.request.is_upload and result.error is None),
        "Retries": sum(one.retries for one in fetched),
        "Stalls": sum(one.stalls for one in fetched),
        "WastedBytes": sum(one.wasted_bytes for one in fetched),
        "VerifiedBy": fetched[0].verified_by if len(fetched) == 1 else "",
        "Sha256": fetched[0].sha256 if len(fetched) == 1 else "",
        "BytesBySource": [
            {"Source": label, "Bytes": count} for one in fetched[:1] for label, count in one.bytes_by_source.items()
        ],
    }
