"""The CA certificates that a pool's sites trust: a folder as OpenSSL wants it, and one file of all.

It is in the cache, not in the pool's folder: containers see it under the same path, and under /tmp they have their own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from testbed import debian

_SYSTEM = Path("/etc/ssl/certs/ca-certificates.crt")


class Trust:
    def __init__(self) -> None:
        self.folder = debian.cache() / "pools" / f"{os.getpid()}-{id(self):x}"
        self.bundle = self.folder / "bundle.pem"

    def make(self) -> None:
        _sweep(self.folder.parent)
        self.folder.mkdir(parents=True)
        self.bundle.write_bytes(_SYSTEM.read_bytes() if _SYSTEM.exists() else b"")

    def add(self, authority: Path) -> None:
        named = ["openssl", "x509", "-noout", "-hash", "-in", str(authority)]
        digest = subprocess.run(named, check=True, capture_output=True, text=True).stdout.strip()
        text = authority.read_text()
        number = len(list(self.folder.glob(f"{digest}.*")))  # several authorities may have one name
        (self.folder / f"{digest}.{number}").write_text(text)
        with open(self.bundle, "a") as bundle:
            bundle.write(text)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _sweep(place: Path) -> None:
    """What pools left whose process was killed."""
    with contextlib.suppress(FileNotFoundError):
        for folder in place.iterdir():
            if not Path(f"/proc/{folder.name.partition('-')[0]}").exists():
                shutil.rmtree(folder, ignore_errors=True)
