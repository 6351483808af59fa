"""A real 7z in a folder, for the test that unpacks what only that tool can."""

from __future__ import annotations

from pathlib import Path

from testbed import debian


def bin_folder() -> Path:
    """Belongs in front of PATH."""
    return debian.install(debian.cache() / "7z", RECIPE) / "usr/bin"


def _finish(new: Path, final: Path) -> None:
    """Debian's 7z is a script with an absolute path in it."""
    script = new / "usr/bin/7z"
    script.unlink()
    script.write_text(f'#!/bin/sh\nexec "{final}/usr/lib/7zip/7z" "$@"\n')
    script.chmod(0o755)


RECIPE = debian.Recipe("sid", ("7zip",), _finish)
