"""`packtrain index` resumes after SIGKILL, and repeats few requests."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from packtrain.indexing import IndexRequest, build_index
from packtrain.indexing.resume_file import read_frames
from packtrain.plan import Location
from testbed.http_server import HttpServer, RecordedRequest, ResponseFault
from tests.support.waiting import wait_until

N_INNER_TARS, N_MEMBERS = 30, 3


class StallingServer(HttpServer):
    """Stalls all requests from the offset `stall_from` on, until it is None."""

    stall_from: int | None = None

    def record_request(self, request: RecordedRequest) -> ResponseFault:
        start = int(re.search(r"bytes=(\d+)", request.headers.get("range", "bytes=0")).group(1))
        if self.stall_from is not None and start >= self.stall_from:
            return ResponseFault(stall_after_bytes=0)
        return super().record_request(request)


def write_nested_tar(path: Path) -> None:
    with tarfile.open(path, "w") as outer:
        for label in range(N_INNER_TARS):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for number in range(N_MEMBERS):
                    info = tarfile.TarInfo(f"n{label:03}_{number}.JPEG")
                    info.size = 70_000
                    tar.addfile(info, io.BytesIO(os.urandom(info.size)))
            info = tarfile.TarInfo(f"n{label:03}.tar")
            info.size = len(inner.getvalue())
            outer.addfile(info, io.BytesIO(inner.getvalue()))


def index_command(origin: HttpServer, path: Path) -> list[str]:
    url = f"{origin.url}/train.tar"
    return [sys.executable, "-m", "packtrain", "index", url, "-o", str(path), "--json", "--retry-timeout", "10m"]


def count_requests(origin: HttpServer) -> int:
    return sum(request.path == "/train.tar" for request in origin.requests)


def count_scanned_tars(resume_path: Path) -> int:
    """Return how many inner tars the resume file has completely."""
    if not resume_path.exists():
        return 0
    with open(resume_path, "rb") as file:
        return sum(bool(json.loads(data).get("reaches_end")) for data, _ in read_frames(file))


@pytest.mark.slow
def test_resume_after_a_kill(tmp_path):
    (tmp_path / "www").mkdir()
    write_nested_tar(tmp_path / "www/train.tar")
    path, resume_path = tmp_path / "index", tmp_path / ".index.scan"
    with StallingServer(tmp_path / "www") as origin:
        origin.stall_from = (tmp_path / "www/train.tar").stat().st_size // 2
        process = subprocess.Popen(index_command(origin, path), stdout=subprocess.DEVNULL)
        wait_until(lambda: count_scanned_tars(resume_path) >= N_INNER_TARS // 2 - 1)
        process.kill()
        process.wait()
        assert not path.exists()
        origin.stall_from = None
        origin.release_stalls()
        origin.requests.clear()
        done = subprocess.run(index_command(origin, path), capture_output=True, text=True, check=True)
        n_resumed = count_requests(origin)
    with HttpServer(tmp_path / "www") as origin:
        build_index(IndexRequest([[Location(f"{origin.url}/train.tar")]], str), tmp_path / "other")
        n_full = count_requests(origin)
    data = json.loads(done.stdout)
    assert (data["samples"], data["classes"]) == (N_INNER_TARS * N_MEMBERS, N_INNER_TARS)
    assert n_resumed < n_full - N_INNER_TARS, f"{n_resumed} requests after the kill, {n_full} without"
    assert not resume_path.exists()
