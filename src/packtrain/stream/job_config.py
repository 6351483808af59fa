"""Open what a job streams: an index, or the input with `mode: stream` that $PACKTRAIN_STREAM names."""

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
    """Open an index, with the settings to read its samples.

    Args:
        path: An index, or a stream configuration that the agent wrote. Default: the file that $PACKTRAIN_STREAM names.
        environ: The environment variables.

    Returns:
        The index and the settings for `StreamingSamples`.

    Raises:
        UsageError: There is nothing to stream.
        FormatError: A file is damaged.
        OSError: A file cannot be read.
    """
    config_path = Path(path or environ.get(STREAM_CONFIG_VARIABLE) or "")
    if not config_path.name:
        raise UsageError(_missing_stream_message(environ))
    if not config_path.name.endswith(STREAM_CONFIG_SUFFIX):
        return Index.open(config_path), StreamSettings()
    config = StreamConfig.read(config_path)
    return Index.open(config.index_path), StreamSettings(
        cache_dir=Path(config.cache_dir) if config.cache_dir else None,
        cache_limit_bytes=config.cache_limit_bytes,
        resolve_secret=SecretFileResolver(Path(config.secrets_dir)),
        archive_sources=config.archives,
    )


def _missing_stream_message(environ: Mapping[str, str]) -> str:
    variables = sorted(name for name in environ if name.startswith(f"{STREAM_CONFIG_VARIABLE}_"))
    if variables:
        return f"the job has several inputs to stream: pass the path in {' or '.join(variables)}"
    return (
        "there is nothing to stream: pass the path of an index, or give the workflow an input with `mode: stream` "
        f"({STREAM_CONFIG_VARIABLE})"
    )


class SecretFileResolver:
    """Reads a secret from its file for each connection, because it may be renewed.

    A class rather than a closure, so that workers that are not forked can unpickle it.

    Args:
        folder: The folder with the files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, text: SecretOrStr) -> str:
        """Return the value of a secret; plain text unchanged.

        Args:
            text: A secret, or plain text.
        """
        return read_secret(self._folder, text.name) if isinstance(text, Secret) else text
