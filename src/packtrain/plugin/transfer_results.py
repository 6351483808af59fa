"""The answers: one ClassAd for each pair that was asked for, and the exit code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packtrain import __version__
from packtrain.condor.classads import Ad, new_form
from packtrain.errors import FailedError
from packtrain.events import FAILURE_KINDS
from packtrain.plugin.file_transfer import Moved
from packtrain.plugin.transfer_requests import Asked
from packtrain.transfer.urls import shown

EXIT_DONE, EXIT_FAILED, EXIT_NO_ANSWER, EXIT_RETRYABLE = 0, 1, 3, 11
"""As of Pelican's own plugin, so that policies that know it know this one. Shown in a hold as subcode n × 256."""

_NOT_RETRYABLE, _RETRYABLE = -1, 0
# The failure's kind → what HTCondor calls it (docs of TransferErrorData), and what it wants to know besides.
_TYPES: dict[str, tuple[str, dict[str, Any]]] = {
    "host_unknown": ("Resolution", {"FailureType": "PreContact"}),
    "network_unreachable": ("Contact", {}),
    "certificate_refused": ("Contact", {}),
    "token_refused": ("Authorization", {"FailureType": "Authorization", "ShouldRefresh": True}),
    "secret_missing": ("Authorization", {"FailureType": "Authentication", "ShouldRefresh": False}),
    "object_missing": ("Specification", {}),
    "output_missing": ("Specification", {}),
    "disk_full": ("Transfer", {"FailureType": "NoSpace"}),
    "unsupported": ("Parameter", {"PluginVersion": __version__, "PluginLaunched": True}),
    "internal": ("Parameter", {"PluginVersion": __version__, "PluginLaunched": True}),
}
_OTHER = ("Transfer", {"FailureType": "TimedOut"})


def answer(moved: Moved) -> Ad:
    asked, error = moved.asked, moved.error
    ad: Ad = {
        "TransferFileName": asked.local,
        "TransferUrl": asked.url,
        "TransferSuccess": error is None,
        "TransferType": "upload" if asked.upload else "download",
        "TransferProtocol": asked.url.partition("://")[0].rpartition("+")[2].lower(),
        "TransferStartTime": int(moved.began),
        "TransferEndTime": int(moved.ended),
        "ConnectionTimeSeconds": round(max(0.0, moved.ended - moved.began), 3),
        "TransferTotalBytes": moved.bytes,
        "TransferFileBytes": moved.bytes if error is None else 0,
        "TransferHostName": _host(moved),
        "TransferLocalMachineName": os.uname().nodename,
        "DeveloperData": _figures(moved),
    }
    return ad if error is None else {**ad, **_about(error, moved)}


def not_tried(asked: Asked) -> Moved:
    """Of the files behind the first that did not come."""
    moved = Moved(asked, error=FailedError("terminated", "not tried, since another file did not come"), tried=False)
    moved.ended = moved.began
    return moved


def is_retryable(error: FailedError) -> bool:
    return FAILURE_KINDS[error.kind].transient


def exit_code(all_moved: Sequence[Moved]) -> int:
    """Retryable only if that holds for all that were tried and failed."""
    errors = [moved.error for moved in all_moved if moved.error is not None and moved.tried]
    if not errors:
        return EXIT_DONE
    return EXIT_RETRYABLE if all(map(is_retryable, errors)) else EXIT_FAILED


def write(path: Path, ads: Sequence[Ad]) -> None:
    """Over what is there, and spaces over the rest: HTCondor sets room aside for us, in case that the disk is full."""
    data = "".join(new_form(ad) + "\n" for ad in ads).encode("utf-8", "surrogateescape")
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        file.write(data + b" " * (size - len(data)))


def _about(error: FailedError, moved: Moved) -> Ad:
    kind, more = _TYPES.get(error.kind, _OTHER)
    server = {"FailedName" if kind == "Resolution" else "FailedServer": _host(moved)} if kind != "Parameter" else {}
    wait = getattr(error, "retry_after_s", None)
    data = {
        "ErrorType": kind,
        **server,
        **more,
        "Retryable": int(wait or _RETRYABLE) if is_retryable(error) else _NOT_RETRYABLE,
        "ErrorCode": FAILURE_KINDS[error.kind].exit_code,
        "ErrorString": error.detail,
        "DeveloperData": {"Kind": error.kind},
    }
    return {
        "TransferError": f"{error.detail} ({_advice(error)})",
        "TransferRetryable": is_retryable(error),
        "TransferErrorData": [data],
    }


def _advice(error: FailedError) -> str:
    row = FAILURE_KINDS[error.kind]
    return f"{error.kind}; {'it may pass: try again later' if row.transient else row.remedy}"


def _host(moved: Moved) -> str:
    """Who gave the most; else whom the address names."""
    given: dict[str, int] = {}
    for got in moved.fetched:
        for label, count in got.by_source.items():
            given[label] = given.get(label, 0) + count
    if given:
        return max(given, key=lambda label: given[label])
    return urlsplit(shown(moved.asked.url)).hostname or ""


def _figures(moved: Moved) -> Ad:
    got = moved.fetched
    return {
        "PacktrainVersion": __version__,
        "Files": len(got) or int(moved.asked.upload and moved.error is None),
        "Retries": sum(one.retries for one in got),
        "Stalls": sum(one.stalls for one in got),
        "WastedBytes": sum(one.wasted_bytes for one in got),
        "VerifiedBy": got[0].verified_by if len(got) == 1 else "",
        "Sha256": got[0].sha256 if len(got) == 1 else "",
        "BytesBySource": [
            {"Source": label, "Bytes": count} for one in got[:1] for label, count in one.by_source.items()
        ],
    }
