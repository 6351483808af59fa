"""Gives the parser access to the files and environment variables that a submit file may refer to."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_MAX_READ_BYTES = 20_000_000


@dataclass(frozen=True)
class SubmitContext:
    """The folder of a submit file, which relative paths refer to, and the environment of the user."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)

    def read_text(self, path: str) -> str:
        """Return the text of a file, at most 20 MB. Raises OSError."""
        with open(self.folder / path, "rb") as file:
            return file.read(_MAX_READ_BYTES).decode("utf-8", "replace")

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists."""
        return self._check_path("exists", path)

    def is_folder(self, path: str) -> bool:
        """Return whether a path is an existing folder."""
        return self._check_path("is_dir", path)

    def _check_path(self, method: str, path: str) -> bool:
        try:
            return bool(getattr(self.folder / path, method)())
        except (OSError, ValueError):
            return False

    def match_paths(self, pattern: str, kind: str) -> list[str]:
        """Return the paths that match a pattern, sorted; folders end with a slash.

        Args:
            pattern: A glob pattern, relative to the folder.
            kind: `files`, `dirs` or `any`.
        """
        try:
            paths = sorted(glob.glob(pattern, root_dir=self.folder))  # noqa: PTH207 - takes any pattern
        except (OSError, ValueError):
            return []
        matching = [path for path in paths if kind == "any" or self.is_folder(path) == (kind == "dirs")]
        return [f"{path}/" if self.is_folder(path) and not path.endswith("/") else path for path in matching]
