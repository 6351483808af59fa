"""XRootD origin and cache: they serve files, pause and resume."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from testbed.xrootd import XRootDCache, XRootDOrigin

pytestmark = pytest.mark.slow


def get(url: str, timeout_s: float) -> bytes:
    with urllib.request.urlopen(url, timeout=timeout_s) as response:
        return bytes(response.read())


def test_cache_serves_origin(tmp_path):
    with XRootDOrigin(tmp_path / "origin") as origin, XRootDCache(tmp_path / "cache", origin) as cache:
        (origin.object_dir / "x").write_bytes(b"from the origin")
        assert get(f"{cache.url}/data/x", 10) == b"from the origin"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"{cache.url}/data/nothing", 10)
        assert "Proxy file cache initialization completed" in cache.log.read_text()


def test_pause_and_resume(tmp_path):
    with XRootDOrigin(tmp_path / "origin") as origin:
        (origin.object_dir / "x").write_bytes(b"content")
        origin.pause()
        with pytest.raises(OSError):
            get(f"{origin.url}/data/x", 0.5)
        origin.resume()
        assert get(f"{origin.url}/data/x", 10) == b"content"
