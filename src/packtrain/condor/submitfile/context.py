"""What a submit file may refer to: files beside it, and variables of whoever submits."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_MAX_READ_BYTES = 20_000_000


@dataclass(frozen=True)
class SubmitContext:
    """`where` is the submit file's folder, which relative paths are relative to."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)

    def read_text(self, path: str) -> str:
        """Raises OSError."""
        with open(self.folder / path, "rb") as file:
            return file.read(_MAX_READ_BYTES).decode("utf-8", "replace")

    def exists(self, path: str) -> bool:
        return self._check_path("exists", path)

    def is_folder(self, path: str) -> bool:
        return self._check_path("is_dir", path)

    def _check_path(self, method: str, path: str) -> bool:
        try:
            return bool(getattr(self.folder / path, method)())
        except (OSError, ValueError):
            return False

    def match_paths(self, pattern: str, kind: str) -> list[str]:
        """Paths that a pattern matches, in order, folders with a slash behind them; kind: files, dirs, any."""
        try:
            found = sorted(glob.glob(pattern, root_dir=self.folder))  # noqa: PTH207 - takes any pattern
        except (OSError, ValueError):
            return []
        wanted = [path for path in found if kind == "any" or self.is_folder(path) == (kind == "dirs")]
        return [f"{path}/" if self.is_folder(path) and not path.endswith("/") else path for path in wanted]
