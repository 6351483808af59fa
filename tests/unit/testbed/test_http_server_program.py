"""The HTTP server as a program."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.paths import PROJECT_ROOT


def test_url_and_token(tmp_path: Path):
    (tmp_path / "hello").write_bytes(b"world")
    python_path = f"{PROJECT_ROOT / 'src'}:{PROJECT_ROOT}"
    environment = {**os.environ, "PYTHONPATH": python_path, "THE_TOKEN": "t0ken"}
    command = [sys.executable, "-m", "testbed.http_server", str(tmp_path), "--port", "0", "--token-env", "THE_TOKEN"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            url = process.stdout.readline().strip()
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"{url}/hello")
            request = urllib.request.Request(f"{url}/hello", headers={"Authorization": "Bearer t0ken"})
            assert urllib.request.urlopen(request).read() == b"world"
        finally:
            process.kill()
