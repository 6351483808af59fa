"""Read HTCondor's transfer requests: pairs of a URL and a local file, as ClassAds in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from packtrain.condor.classads import get_attribute, parse_new_classads
from packtrain.errors import FormatError


@dataclass(frozen=True)
class TransferRequest:
    """One file or folder to transfer."""

    url: str
    local_name: str  # as HTCondor wrote it
    is_upload: bool

    @property
    def local_path(self) -> Path:
        """The local path; if it is an existing folder, the file in it."""
        path = Path(self.local_name)
        if not self.is_upload and path.is_dir() and not self.is_recursive:
            return path / unquote(urlsplit(self.url).path.rstrip("/").rpartition("/")[2])
        return path

    @property
    def is_recursive(self) -> bool:
        """Whether the URL has `?recursive`, as Pelican's own plugin supports it."""
        return "recursive" in parse_qs(self.url.partition("?")[2], keep_blank_values=True)


def read_requests(path: Path, is_upload: bool) -> list[TransferRequest]:
    """Return the requests of a file, ignoring ads without a URL. Raises FormatError and OSError."""
    ads = parse_new_classads(path.read_text(encoding="utf-8", errors="surrogateescape"))
    pairs = [(get_attribute(ad, "Url"), get_attribute(ad, "LocalFileName")) for ad in ads]
    requests = [
        TransferRequest(url, local, is_upload)
        for url, local in pairs
        if isinstance(url, str) and isinstance(local, str)
    ]
    if not requests and any(pair != (None, None) for pair in pairs):
        raise FormatError(f"{path.name} has ads without Url and LocalFileName")
    return requests
