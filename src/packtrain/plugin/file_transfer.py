"""Moves what was asked for: one file, or all below a folder, with the patience of a job."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.plan import Item, Output, Ref
from packtrain.plugin.job_credentials import Access
from packtrain.plugin.transfer_requests import Asked
from packtrain.transfer.fetch import Fetched, fetch
from packtrain.transfer.registry import source_for
from packtrain.transfer.retry import insisted
from packtrain.transfer.upload import upload_file, upload_folder
from packtrain.transfer.urls import checked_name, scheme_of

Stop = Callable[[], None]
_FEDERATED = ("osdf", "pelican")
_PACK = re.compile(r"[?&]pack=")


@dataclass
class Moved:
    """What became of one pair. `error` is None if all is there, complete and verified."""

    asked: Asked
    began: float = field(default_factory=time.time)
    ended: float = 0.0
    bytes: int = 0
    fetched: list[Fetched] = field(default_factory=list)
    error: FailedError | None = None
    tried: bool = True


def move(asked: Asked, access: Access, patience_s: float, stop: Stop) -> Moved:
    """Never raises: what went wrong is part of the answer."""
    moved = Moved(asked)
    try:
        ref = access.ref(asked.url)
        _refuse_packing(ref, asked.upload)
        if asked.upload:
            moved.bytes = _send(ref, asked.path, access, patience_s, stop)
        else:
            _bring(ref, moved, access, patience_s, stop)
    except FailedError as error:
        moved.error = error
    except OSError as error:
        moved.error = FailedError("internal", f"{asked.local}: {error.strerror or error}")
    except Exception as error:
        moved.error = FailedError("internal", f"a defect of packtrain: {type(error).__name__}: {error}")
    moved.ended = time.time()
    return moved


def _refuse_packing(ref: Ref, upload: bool) -> None:
    if scheme_of(ref.url) in _FEDERATED and _PACK.search(ref.url):
        verb = "pack" if upload else "unpack"
        raise FailedError("unsupported", f"packtrain's plugin does not {verb} (`?pack=`): {verb} it in the job")


def _bring(ref: Ref, moved: Moved, access: Access, patience_s: float, stop: Stop) -> None:
    for name, source in _sources(ref, moved.asked, access, patience_s, stop):
        target = moved.asked.path / name if name else moved.asked.path
        target.parent.mkdir(parents=True, exist_ok=True)
        item = Item(name or target.name, (source,))
        got = fetch(item, target, access.reveal, patience_s=patience_s, stop=stop, progress=lambda done, total: None)
        moved.fetched.append(got)
        moved.bytes += got.bytes


def _sources(ref: Ref, asked: Asked, access: Access, patience_s: float, stop: Stop) -> list[tuple[str, Ref]]:
    """Names below the target, and where they come from; the empty name is the target itself."""
    if not asked.recursive:
        return [("", ref)]
    top = replace(ref, url=ref.url.partition("?")[0])
    found = insisted(lambda: list(source_for(top, access.reveal).list(top)), patience_s, stop)
    return [(checked_name(entry.name, entry.ref.url), entry.ref) for entry in found]


def _send(ref: Ref, path: Path, access: Access, patience_s: float, stop: Stop) -> int:
    """The bytes that stand there now. HTCondor writes `folder//name`."""
    if scheme_of(ref.url) not in ("http", "https"):
        head, slashes, rest = ref.url.partition("://")
        ref = replace(ref, url=head + slashes + _single_slashes(rest))
    if path.is_dir():
        done = upload_folder(
            path, Output(ref), access.reveal, stop=stop, progress=lambda done, total: None, patience_s=patience_s
        )
        return done.bytes
    if not path.is_file():
        raise FailedError("output_missing", f"the file {path.name} does not exist: the job did not make it")
    upload_file(path, Output(ref), "", access.reveal, patience_s=patience_s, stop=stop)
    return path.stat().st_size


def _single_slashes(rest: str) -> str:
    """An osdf address begins with one that stays."""
    return re.sub(r"(?<=.)/{2,}", "/", rest)
