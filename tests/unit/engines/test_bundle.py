"""The zip that rides to the worker: small, the same each time, and complete."""

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


def test_it_is_small(agent):
    assert agent.stat().st_size <= 300_000


def test_it_is_the_same_each_time(agent, tmp_path):
    os.utime(bundle._LAUNCHER_PATH)
    bundle.build_agent(tmp_path / "again.pyz")
    assert (tmp_path / "again.pyz").read_bytes() == agent.read_bytes()


def test_it_holds_the_worker_packages_only(agent):
    names = zipfile.ZipFile(agent).namelist()
    tops = {name.split("/")[1] for name in names if "/" in name}
    packages = {"plan", "events", "transfer", "agent", "torch", "stream"}
    assert tops == {"__init__.py", "errors.py", "fileutil.py", "condor", *packages}
    condor = {name for name in names if name.startswith("packtrain/condor/")}
    assert condor == {"packtrain/condor/__init__.py", "packtrain/condor/classads.py"}
    assert names[0] == "__main__.py"
    assert all(name.endswith(".py") for name in names)


def test_the_plugin_is_a_program_of_its_own(tmp_path):
    bundle.build_plugin(tmp_path / "plugin.pyz")
    assert (tmp_path / "plugin.pyz").read_bytes().startswith(b"#!/usr/bin/env python3\n")
    names = zipfile.ZipFile(tmp_path / "plugin.pyz").namelist()
    tops = {name.split("/")[1] for name in names if "/" in name}
    assert tops == {"__init__.py", "errors.py", "fileutil.py", "condor", "plan", "events", "transfer", "plugin"}
    done = subprocess.run([str(tmp_path / "plugin.pyz"), "-classad"], capture_output=True, text=True, cwd="/")
    assert 'PluginType = "FileTransfer"' in done.stdout and done.returncode == 0


def test_nothing_half_written_stays(agent):
    assert os.listdir(agent.parent) == ["agent.pyz"]


def test_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "MAX_AGENT_BYTES", 1000)
    with pytest.raises(PacktrainError, match="more than the 1000"):
        bundle.build_agent(tmp_path / "agent.pyz")
    assert os.listdir(tmp_path) == []


def test_it_runs_without_anything_else(agent):
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(agent), "--version"], capture_output=True, text=True, cwd="/"
    )
    assert (done.stdout.strip(), done.returncode) == (__version__, 0)


def test_each_module_is_compiled_once(agent):
    program = (
        "import collections, runpy, sys\n"
        "seen = collections.Counter()\n"
        "sys.addaudithook(lambda e, a: seen.update([str(a[1])]) if e == 'compile' else None)\n"
        f"sys.argv = [{str(agent)!r}, '--help']\n"
        "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit:\n    pass\n"
        f"ours = {{n: c for n, c in seen.items() if n.startswith({str(agent)!r}) and not n.endswith('__main__.py')}}\n"
        "print(len(ours) > 10, set(ours.values()))\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True {1}", done.stdout


def test_making_it_does_not_import_the_agent():
    program = "import sys, packtrain.engines.bundle; print('packtrain.agent' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_launcher_can_be_executed(tmp_path):
    bundle.write_launcher(tmp_path / "launch.sh")
    assert os.access(tmp_path / "launch.sh", os.X_OK)
    assert (tmp_path / "launch.sh").read_bytes().startswith(b"#!/bin/sh\n")
