"""What a program is given of an input with `mode: stream`: a small JSON file, which PACKTRAIN_STREAM names.

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
STREAM_CONFIG_VERSION = 1


@dataclass(frozen=True)
class StreamConfig:
    index_path: str  # its path
    archives: tuple[
        tuple[Location, ...], ...
    ] = ()  # addresses of each, in the order of the index; the first is asked first
    secrets_dir: str = ""  # the folder with those that the addresses name; they may be renewed
    cache_dir: str = ""  # a folder for what was read; empty: nothing is kept
    cache_limit_bytes: int = 0
    version: int = STREAM_CONFIG_VERSION

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(encode(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> StreamConfig:
        """Raises FormatError and OSError."""
        try:
            data = json.loads(path.read_bytes())
        except ValueError as error:
            raise FormatError(f"{path} is no JSON: {error}") from None
        if isinstance(data, dict) and data.get("version") != STREAM_CONFIG_VERSION:
            raise FormatError(
                f"{path} has version {data.get('version')!r}, and this packtrain reads {STREAM_CONFIG_VERSION}"
            )
        return decode(cls, data, path.name)
