"""The zip files that are sent to workers: small, reproducible and complete."""

import os
import subprocess
import sys
import zipfile

import pytest

from packtrain import __version__
from packtrain.engines import bundle
from packtrain.errors import PacktrainError


@pytest.fixture
def agent(tmp_path):
    bundle.build_agent(tmp_path / "agent.pyz")
    return tmp_path / "agent.pyz"


def test_agent_is_small(agent):
    assert agent.stat().st_size <= bundle.MAX_AGENT_BYTES


def test_agent_is_reproducible(agent, tmp_path):
    os.utime(bundle._LAUNCHER_PATH)
    bundle.build_agent(tmp_path / "again.pyz")
    assert (tmp_path / "again.pyz").read_bytes() == agent.read_bytes()


def test_agent_packages(agent):
    names = zipfile.ZipFile(agent).namelist()
    top_names = {name.split("/")[1] for name in names if "/" in name}
    packages = {"plan", "events", "transfer", "pixi", "agent", "torch", "stream"}
    assert top_names == {"__init__.py", "errors.py", "backoff.py", "fileutil.py", "formatting.py", "condor", *packages}
    condor = {name for name in names if name.startswith("packtrain/condor/")}
    assert condor == {"packtrain/condor/__init__.py", "packtrain/condor/classads.py"}
    assert names[0] == "__main__.py"
    assert all(name.endswith(".py") for name in names)


def test_plugin_is_executable(tmp_path):
    bundle.build_plugin(tmp_path / "plugin.pyz")
    assert (tmp_path / "plugin.pyz").read_bytes().startswith(b"#!/usr/bin/env python3\n")
    names = zipfile.ZipFile(tmp_path / "plugin.pyz").namelist()
    top_names = {name.split("/")[1] for name in names if "/" in name}
    packages = {"plan", "events", "transfer", "plugin"}
    assert top_names == {"__init__.py", "errors.py", "backoff.py", "fileutil.py", "formatting.py", "condor", *packages}
    process = subprocess.run([str(tmp_path / "plugin.pyz"), "-classad"], capture_output=True, text=True, cwd="/")
    assert 'PluginType = "FileTransfer"' in process.stdout and process.returncode == 0


def test_no_temporary_files(agent):
    assert os.listdir(agent.parent) == ["agent.pyz"]


def test_too_large_agent(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "MAX_AGENT_BYTES", 1000)
    with pytest.raises(PacktrainError, match="more than the maximum of 1000"):
        bundle.build_agent(tmp_path / "agent.pyz")
    assert os.listdir(tmp_path) == []


def test_agent_runs_isolated(agent):
    process = subprocess.run(
        [sys.executable, "-I", "-S", str(agent), "--version"], capture_output=True, text=True, cwd="/"
    )
    assert (process.stdout.strip(), process.returncode) == (__version__, 0)


def test_build_does_not_import_the_agent():
    program = "import sys, packtrain.engines.bundle; print('packtrain.agent' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "False"


def test_launcher_is_executable(tmp_path):
    bundle.write_launcher(tmp_path / "launch.sh")
    assert os.access(tmp_path / "launch.sh", os.X_OK)
    assert (tmp_path / "launch.sh").read_bytes().startswith(b"#!/bin/sh\n")
