"""The JSON file, named by $PACKTRAIN_STREAM, that describes an input with `mode: stream` to the program.

The agent writes it, `packtrain.stream` reads it (docs/formats/stream.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from packtrain.errors import FormatError
from packtrain.plan.codec import decode, encode
from packtrain.plan.model import Location

STREAM_CONFIG_VARIABLE = "PACKTRAIN_STREAM"
STREAM_CONFIG_SUFFIX = ".packtrain-stream"
STREAM_CONFIG_VERSION = 2


@dataclass(frozen=True)
class StreamConfig:
    """How a program reads the samples of a streamed input."""

    index_path: str
    archives: tuple[tuple[Location, ...], ...] = ()  # the sources of each archive of the index, preferred ones first
    secrets_dir: str = ""  # the folder of the secrets that the locations refer to; they may be renewed
    cache_dir: str = ""  # where samples that were read are cached; "": no cache
    cache_limit_bytes: int = 0
    version: int = STREAM_CONFIG_VERSION

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(encode(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> StreamConfig:
        """Read and validate the file. Raises FormatError and OSError."""
        try:
            data = json.loads(path.read_bytes())
        except ValueError as error:
            raise FormatError(f"{path} is not JSON: {error}") from None
        if isinstance(data, dict) and data.get("version") != STREAM_CONFIG_VERSION:
            raise FormatError(
                f"{path} has version {data.get('version')!r}, but this packtrain reads version {STREAM_CONFIG_VERSION}"
            )
        return decode(cls, data, path.name)
