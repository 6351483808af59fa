"""Resolve and classify local paths as users write them."""

from __future__ import annotations

import os.path
import stat
from pathlib import Path

FOLDER, FILE, OTHER, MISSING = "folder", "file", "other", "missing"


def resolve_path(base_dir: Path, text: str) -> Path:
    """Return the absolute path of `text` relative to `base_dir`; `~/` is the home folder, links are not resolved."""
    path = Path.home() / text[2:] if text.startswith("~/") else Path(text)
    return Path(os.path.normpath(base_dir.absolute() / path))


def classify_path(path: Path) -> tuple[str, str]:
    """Return what is at a path, and for MISSING the reason, which may be a permission."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return MISSING, "does not exist"
    except (OSError, ValueError) as error:
        return MISSING, f"cannot be accessed ({getattr(error, 'strerror', None) or error})"
    if stat.S_ISDIR(mode):
        return FOLDER, ""
    return (FILE, "") if stat.S_ISREG(mode) else (OTHER, "")
