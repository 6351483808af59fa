"""What a job is given to stream: an index, or the input with `mode: stream` that PACKTRAIN_STREAM names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from packtrain.errors import UsageError
from packtrain.plan import Secret, SecretOrStr
from packtrain.plan.secret_files import read_secret
from packtrain.plan.stream_config import STREAM_CONFIG_SUFFIX, STREAM_CONFIG_VARIABLE, StreamConfig
from packtrain.stream.index import Index
from packtrain.stream.samples import StreamSettings


def open_job_stream(
    path: str | Path | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[Index, StreamSettings]:
    """The index and the settings for `Samples`, of an index or of what the agent wrote; without a path of what
    PACKTRAIN_STREAM names. Raises UsageError, FormatError and OSError."""
    named = Path(path or environ.get(STREAM_CONFIG_VARIABLE) or "")
    if not named.name:
        raise UsageError(_missing_stream_message(environ))
    if not named.name.endswith(STREAM_CONFIG_SUFFIX):
        return Index.open(named), StreamSettings()
    told = StreamConfig.read(named)
    keep = Path(told.cache_dir) if told.cache_dir else None
    reveal = SecretFileResolver(Path(told.secrets_dir))
    return Index.open(told.index_path), StreamSettings(
        cache_dir=keep, cache_limit_bytes=told.cache_limit_bytes, resolve_secret=reveal, archive_sources=told.archives
    )


def _missing_stream_message(environ: Mapping[str, str]) -> str:
    several = sorted(name for name in environ if name.startswith(f"{STREAM_CONFIG_VARIABLE}_"))
    if several:
        return f"the job has several inputs to stream: name one of those in {' and '.join(several)}"
    return f"there is nothing to stream: name an index, or give the workflow an input with `mode: stream` ({STREAM_CONFIG_VARIABLE})"


class SecretFileResolver:
    """Reads a secret anew for each connection: it may be renewed. A class, for processes that are not forked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, text: SecretOrStr) -> str:
        return read_secret(self._folder, text.name) if isinstance(text, Secret) else text
