"""An index whose making is killed (SIGKILL): the same command goes on, and asks for little twice."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from packtrain.indexing import IndexRequest, build_index
from packtrain.indexing.resume_file import read_frames
from packtrain.plan import Location
from testbed.http_server import HttpServer, RecordedRequest, ResponseFault

INNER, MEMBERS = 30, 3


class Halfway(HttpServer):
    """Nothing comes from the second half of the archive, until it is let go on."""

    half: int | None = None

    def note(self, seen: RecordedRequest) -> ResponseFault:
        start = int(re.search(r"bytes=(\d+)", seen.headers.get("range", "bytes=0")).group(1))
        return (
            super().record_request(seen)
            if self.half is None or start < self.half
            else ResponseFault(stall_after_bytes=0)
        )


def like_imagenet(path: Path) -> None:
    with tarfile.open(path, "w") as outer:
        for label in range(INNER):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for number in range(MEMBERS):
                    info = tarfile.TarInfo(f"n{label:03}_{number}.JPEG")
                    info.size = 70_000
                    tar.addfile(info, io.BytesIO(os.urandom(info.size)))
            info = tarfile.TarInfo(f"n{label:03}.tar")
            info.size = len(inner.getvalue())
            outer.addfile(info, io.BytesIO(inner.getvalue()))


def command(origin: HttpServer, target: Path) -> list[str]:
    url = f"{origin.url}/train.tar"
    return [sys.executable, "-m", "packtrain", "index", url, "-o", str(target), "--json", "--retry-timeout", "10m"]


def asked(origin: HttpServer) -> int:
    return sum(seen.path == "/train.tar" for seen in origin.requests)


def inner_tars_in(part: Path) -> int:
    """Those that were walked through to their end, as far as the journal on the disk says."""
    if not part.exists():
        return 0
    with open(part, "rb") as file:
        return sum(bool(json.loads(data).get("last")) for data, _ in read_frames(file))


@pytest.mark.slow
def test_what_was_found_is_not_looked_for_again(tmp_path):
    (tmp_path / "www").mkdir()
    like_imagenet(tmp_path / "www/train.tar")
    target, part = tmp_path / "index", tmp_path / ".index.part"
    with Halfway(tmp_path / "www") as origin:
        origin.half = (tmp_path / "www/train.tar").stat().st_size // 2
        process = subprocess.Popen(command(origin, target), stdout=subprocess.DEVNULL)
        while inner_tars_in(part) < INNER // 2 - 1:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
        process.wait()
        assert not target.exists()
        origin.half = None
        origin.release_stalls()
        origin.requests.clear()
        done = subprocess.run(command(origin, target), capture_output=True, text=True, check=True)
        again = asked(origin)
    with HttpServer(tmp_path / "www") as origin:
        build_index(IndexRequest([[Location(f"{origin.url}/train.tar")]], str), tmp_path / "other")
        whole = asked(origin)
    data = json.loads(done.stdout)
    assert (data["samples"], data["classes"]) == (INNER * MEMBERS, INNER)
    assert again < whole - INNER, f"{again} requests after the kill, {whole} for all"
    assert not part.exists()
