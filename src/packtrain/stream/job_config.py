"""What a job is given to stream: an index, or the input with `mode: stream` that PACKTRAIN_STREAM names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from packtrain.errors import UsageError
from packtrain.plan import Secret, Text
from packtrain.plan.secret_files import secret
from packtrain.plan.stream_config import SUFFIX, VARIABLE, Given
from packtrain.stream.index import Index
from packtrain.stream.samples import Settings


def given(path: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> tuple[Index, Settings]:
    """The index and the settings for `Samples`, of an index or of what the agent wrote; without a path of what
    PACKTRAIN_STREAM names. Raises UsageError, FormatError and OSError."""
    named = Path(path or environ.get(VARIABLE) or "")
    if not named.name:
        raise UsageError(_nothing_given(environ))
    if not named.name.endswith(SUFFIX):
        return Index.open(named), Settings()
    told = Given.read(named)
    keep = Path(told.keep) if told.keep else None
    reveal = Revealing(Path(told.secrets))
    return Index.open(told.index), Settings(
        keep=keep, keep_bytes=told.keep_bytes, reveal=reveal, archives=told.archives
    )


def _nothing_given(environ: Mapping[str, str]) -> str:
    several = sorted(name for name in environ if name.startswith(f"{VARIABLE}_"))
    if several:
        return f"the job has several inputs to stream: name one of those in {' and '.join(several)}"
    return f"there is nothing to stream: name an index, or give the workflow an input with `mode: stream` ({VARIABLE})"


class Revealing:
    """Reads a secret anew for each connection: it may be renewed. A class, for processes that are not forked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, text: Text) -> str:
        return secret(self._folder, text.name) if isinstance(text, Secret) else text
