"""An index whose making is killed (SIGKILL): the same command goes on, and asks for little twice."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from packtrain.plan import Ref
from packtrain.stream.build import Wish, build
from testbed.origin import Fault, Origin

INNER, MEMBERS = 30, 3
GOOD_ANSWERS = 140  # of 156: however the threads run, by then half of the inner tars are known


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


def command(origin: Origin, target: Path) -> list[str]:
    return [sys.executable, "-m", "packtrain", "index", f"{origin.url}/train.tar", "-o", str(target), "--json"]


def asked(origin: Origin) -> int:
    return sum(seen.path == "/train.tar" for seen in origin.seen)


@pytest.mark.slow
def test_what_was_found_is_not_looked_for_again(tmp_path):
    (tmp_path / "www").mkdir()
    like_imagenet(tmp_path / "www/train.tar")
    target, part = tmp_path / "index", tmp_path / ".index.part"
    faults = [None] * GOOD_ANSWERS + [Fault(stall_after=0)] * 100
    with Origin(tmp_path / "www", faults=faults) as origin:
        process = subprocess.Popen(command(origin, target), stdout=subprocess.DEVNULL)
        assert origin.stalled.wait(60)
        process.kill()
        process.wait()
        assert part.exists() and not target.exists()
        origin.faults.clear()
        origin.release()
        origin.seen.clear()
        done = subprocess.run(command(origin, target), capture_output=True, text=True, check=True)
        again = asked(origin)
    with Origin(tmp_path / "www") as origin:
        build(Wish([[Ref(f"{origin.url}/train.tar")]], str), tmp_path / "other")
        whole = asked(origin)
    data = json.loads(done.stdout)
    assert (data["samples"], data["classes"]) == (INNER * MEMBERS, INNER)
    assert again < whole - INNER, f"{again} requests after the kill, {whole} for all"
    assert not part.exists()
