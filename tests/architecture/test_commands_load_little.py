"""Frequently used commands do not import the libraries that read workflow files or draw charts."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import packtrain

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


def test_import_packtrain_loads_no_other_module():
    program = "import sys, packtrain; print(*(name for name in sys.modules if name.startswith('packtrain')))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == ["packtrain"]


def test_exported_names():
    """The stub declares the names that `import packtrain` provides."""
    stub = (Path(packtrain.__file__).parent / "__init__.pyi").read_text(encoding="utf-8")
    declared = re.findall(r"^from (\S+) import (\w+) as (\w+)$", stub, re.MULTILINE)
    assert {name for _, name, alias in declared if name == alias} == set(packtrain.__all__) - {"__version__"}
    for module, name, _ in declared:
        assert getattr(packtrain, name) is getattr(importlib.import_module(module), name)
        assert name in dir(packtrain)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        packtrain.nothing  # noqa: B018
