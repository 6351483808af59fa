"""What a submit file may refer to: files beside it, and variables of whoever submits."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_LARGEST = 20_000_000


@dataclass(frozen=True)
class Around:
    """`where` is the submit file's folder, which relative paths are relative to."""

    where: Path
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)

    def read(self, path: str) -> str:
        """Raises OSError."""
        with open(self.where / path, "rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")

    def exists(self, path: str) -> bool:
        return self._is("exists", path)

    def is_folder(self, path: str) -> bool:
        return self._is("is_dir", path)

    def _is(self, what: str, path: str) -> bool:
        try:
            return bool(getattr(self.where / path, what)())
        except (OSError, ValueError):
            return False

    def matching(self, pattern: str, kind: str) -> list[str]:
        """Paths that a pattern matches, in order, folders with a slash behind them; kind: files, dirs, any."""
        try:
            found = sorted(glob.glob(pattern, root_dir=self.where))  # noqa: PTH207 - takes any pattern
        except (OSError, ValueError):
            return []
        wanted = [path for path in found if kind == "any" or self.is_folder(path) == (kind == "dirs")]
        return [f"{path}/" if self.is_folder(path) and not path.endswith("/") else path for path in wanted]
