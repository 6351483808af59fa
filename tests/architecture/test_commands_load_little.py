"""Frequently used commands do not import the libraries that read workflow files or draw charts."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY_LIBRARIES = {"pydantic", "yaml", "matplotlib", "PIL", "htcondor2"}


@pytest.mark.parametrize(
    "command",
    [
        "watch.ps", "watch.logs", "watch.why", "results.outputs", "start.cancel", "start.supervise",
        "data.get", "data.put", "data.checksums",
    ],
)  # fmt: skip
def test_command_imports_no_heavy_library(command):
    program = f"import sys, packtrain.cli.commands.{command}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert HEAVY_LIBRARIES & set(loaded.split()) == set()
