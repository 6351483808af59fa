"""A real 7z in a folder, for tests of archives that only 7z can unpack."""

from __future__ import annotations

from pathlib import Path

from testbed import debian


def bin_dir() -> Path:
    """Return the folder of 7z, installed if needed. Put it first in PATH."""
    return debian.install(debian.cache_dir() / "7z", PACKAGE_SPEC) / "usr/bin"


def _post_install(new: Path, final: Path) -> None:
    """Rewrite Debian's 7z, a script with an absolute path."""
    script = new / "usr/bin/7z"
    script.unlink()
    script.write_text(f'#!/bin/sh\nexec "{final}/usr/lib/7zip/7z" "$@"\n')
    script.chmod(0o755)


PACKAGE_SPEC = debian.PackageSpec("sid", ("7zip",), _post_install)
