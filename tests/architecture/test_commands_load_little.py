"""Commands that people call again and again do not load what reads workflow files, nor what draws pictures."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"pydantic", "yaml", "matplotlib", "PIL", "htcondor2"}


@pytest.mark.parametrize(
    "command",
    [
        "watch.ps", "watch.logs", "watch.why", "results.outputs", "start.cancel", "start.supervise",
        "data.get", "data.put", "data.checksums",
    ],
)  # fmt: skip
def test_it_is_light(command):
    program = f"import sys, packtrain.cli.commands.{command}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert HEAVY & set(loaded.split()) == set()
