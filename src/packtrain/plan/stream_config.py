"""What a program is given of an input with `mode: stream`: a small JSON file, which PACKTRAIN_STREAM names.

The agent writes it, `packtrain.stream` reads it (docs/formats/stream.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from packtrain.errors import FormatError
from packtrain.plan.codec import decode, encode
from packtrain.plan.model import Ref

VARIABLE = "PACKTRAIN_STREAM"
SUFFIX = ".packtrain-stream"
VERSION = 1


@dataclass(frozen=True)
class Given:
    index: str  # its path
    archives: tuple[tuple[Ref, ...], ...] = ()  # addresses of each, in the order of the index; the first is asked first
    secrets: str = ""  # the folder with those that the addresses name; they may be renewed
    keep: str = ""  # a folder for what was read; empty: nothing is kept
    keep_bytes: int = 0
    version: int = VERSION

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(encode(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Given:
        """Raises FormatError and OSError."""
        try:
            data = json.loads(path.read_bytes())
        except ValueError as error:
            raise FormatError(f"{path} is no JSON: {error}") from None
        if isinstance(data, dict) and data.get("version") != VERSION:
            raise FormatError(f"{path} has version {data.get('version')!r}, and this packtrain reads {VERSION}")
        return decode(cls, data, path.name)
