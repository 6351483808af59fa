"""Tests that fail once get one more run, alone; those that are broken stay broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.rerun_failed import MAX_RERUNS
from tests.support.paths import PROJECT_ROOT

UNLUCKY = """
import pathlib, pytest
@pytest.mark.xdist_group("a-group")
def test_unlucky():
    mark = pathlib.Path(__file__).with_name("mark")
    again = mark.exists()
    mark.touch()
    assert again
def test_good(): pass
"""


def run(folder: Path, text: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = xdist_group\n")
    pytest_alone = [sys.executable, "-m", "pytest"]
    words = [
        sys.executable,
        "-m",
        "testbed.rerun_failed",
        *pytest_alone,
        "--",
        "-n",
        "1",
        "--dist",
        "loadgroup",
        "test_it.py",
    ]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout


@pytest.mark.slow
def test_what_failed_by_bad_luck_passes_alone_and_is_named(tmp_path):
    code, said = run(tmp_path, UNLUCKY)
    assert code == 0, said
    assert "1 failed, 1 passed" in said
    assert said.rstrip().endswith("passed alone, to be mended:\n  test_it.py::test_unlucky")


@pytest.mark.slow
def test_what_is_broken_fails_again(tmp_path):
    code, said = run(tmp_path, "def test_broken(): assert 0")
    assert code == 1 and "once more" in said and "to be mended" not in said


@pytest.mark.slow
def test_many_failures_are_no_bad_luck(tmp_path):
    code, said = run(tmp_path, "\n".join(f"def test_{number}(): assert 0" for number in range(MAX_RERUNS + 1)))
    assert code == 1 and "once more" not in said


@pytest.mark.slow
def test_a_module_that_cannot_be_imported_is_no_success(tmp_path):
    code, _ = run(tmp_path, "import nothing_of_that_name")
    assert code != 0
