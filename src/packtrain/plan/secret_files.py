"""Read secrets on the worker: files in one folder, read for each use because they may be renewed."""

from __future__ import annotations

from pathlib import Path

from packtrain.errors import FailedError


def read_secret_file(path: Path) -> str:
    """Return the content of a secret file without its final newline."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return text[:-1] if text.endswith("\n") else text


def read_secret(folder: Path, name: str) -> str:
    """Return the secret `name`. Raises FailedError("secret_missing")."""
    try:
        return read_secret_file(folder / Path(name).name)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FailedError("secret_missing", f"the secret {name!r} cannot be read: {reason}") from error
