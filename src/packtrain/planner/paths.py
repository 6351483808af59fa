"""Local paths as users write them."""

from __future__ import annotations

import os.path
from pathlib import Path


def absolute(where: Path, text: str) -> Path:
    """A path relative to the folder `where`; `~/` is the home folder. Links stay: it is the path the user knows."""
    path = Path.home() / text[2:] if text.startswith("~/") else Path(text)
    return Path(os.path.normpath(where.absolute() / path))
