"""The CA certificates that the sites of a pool trust: an OpenSSL folder, and one bundle file.

They are in the cache folder, not in the pool's folder, because containers mount their own /tmp.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from testbed import debian

_SYSTEM_CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


class TrustedCertificates:
    """The CA certificates that one pool trusts."""

    def __init__(self) -> None:
        self.folder = debian.cache_dir() / "pools" / f"{os.getpid()}-{id(self):x}"
        self.bundle = self.folder / "bundle.pem"

    def create(self) -> None:
        _remove_stale_folders(self.folder.parent)
        self.folder.mkdir(parents=True)
        self.bundle.write_bytes(_SYSTEM_CA_BUNDLE.read_bytes() if _SYSTEM_CA_BUNDLE.exists() else b"")

    def add(self, ca_file: Path) -> None:
        """Trust another CA."""
        command = ["openssl", "x509", "-noout", "-hash", "-in", str(ca_file)]
        digest = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        text = ca_file.read_text()
        number = len(list(self.folder.glob(f"{digest}.*")))  # several CAs may have the same name
        (self.folder / f"{digest}.{number}").write_text(text)
        with open(self.bundle, "a") as bundle:
            bundle.write(text)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _remove_stale_folders(parent: Path) -> None:
    """Remove the folders of pools whose process was killed."""
    with contextlib.suppress(FileNotFoundError):
        for folder in parent.iterdir():
            if not Path(f"/proc/{folder.name.partition('-')[0]}").exists():
                shutil.rmtree(folder, ignore_errors=True)
