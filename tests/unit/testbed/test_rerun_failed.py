"""Failed tests are rerun alone; broken tests still fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.rerun_failed import MAX_RERUNS
from tests.support.paths import PROJECT_ROOT

FLAKY = """
import pathlib, pytest
@pytest.mark.xdist_group("a-group")
def test_flaky():
    mark = pathlib.Path(__file__).with_name("mark")
    is_rerun = mark.exists()
    mark.touch()
    assert is_rerun
def test_good(): pass
"""


def run(folder: Path, text: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = xdist_group\n")
    pytest_alone = [sys.executable, "-m", "pytest"]
    command = [
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
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return result.returncode, result.stdout


@pytest.mark.slow
def test_flaky_test_is_listed(tmp_path):
    code, output = run(tmp_path, FLAKY)
    assert code == 0, output
    assert "1 failed, 1 passed" in output
    assert output.rstrip().endswith("passed alone; please fix:\n  test_it.py::test_flaky")


@pytest.mark.slow
def test_broken_test_fails_again(tmp_path):
    code, output = run(tmp_path, "def test_broken(): assert 0")
    assert code == 1 and "running them again" in output and "please fix" not in output


@pytest.mark.slow
def test_many_failures_are_not_rerun(tmp_path):
    code, output = run(tmp_path, "\n".join(f"def test_{number}(): assert 0" for number in range(MAX_RERUNS + 1)))
    assert code == 1 and "running them again" not in output


@pytest.mark.slow
def test_import_error_fails(tmp_path):
    code, _ = run(tmp_path, "import nothing_of_that_name")
    assert code != 0
