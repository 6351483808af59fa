"""Tests of launch.sh: it finds a Python in the image, or reports that there is none."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import packtrain

LAUNCHER = Path(packtrain.__file__).parent / "agent" / "launch.sh"
SHELLS = [path for path in ("/bin/sh", "/bin/dash", "/bin/bash", "/bin/busybox") if Path(path).exists()]
AGENT_STUB = "import os, sys; print(sys.executable, sys.flags.isolated, os.environ.get('SSL_CERT_FILE'), sys.argv[1:])"


@pytest.fixture
def folder(tmp_path):
    shutil.copy(LAUNCHER, tmp_path / "launch.sh")
    (tmp_path / "agent.pyz").write_text(AGENT_STUB)
    return tmp_path


def launch(folder, *arguments, shell="/bin/sh", **environ):
    command = [shell, *(["sh"] if shell.endswith("busybox") else []), str(folder / "launch.sh"), *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize("shell", SHELLS)
def test_arguments_are_passed(folder, shell):
    process = launch(folder, "plan.json", "--site", "a b", shell=shell, PATH="", PACKTRAIN_PYTHON=sys.executable)
    assert process.stdout.rstrip().endswith("['plan.json', '--site', 'a b']"), process.stderr
    assert f"{sys.executable} 1 " in process.stdout


def test_named_python_is_preferred(folder):
    named_python = folder / "my python"
    named_python.symlink_to(sys.executable)
    process = launch(folder, PATH="/usr/bin:/bin", PACKTRAIN_PYTHON=str(named_python))
    assert process.stdout.startswith(str(named_python)), process.stderr


def test_common_locations_without_path(folder):
    candidates = [
        p for p in ("/usr/bin/python3", "/usr/local/bin/python3", "/opt/conda/bin/python3") if Path(p).exists()
    ]
    if not candidates:
        pytest.skip("no Python in a common location")
    process = launch(folder, PATH="")
    assert (process.returncode, process.stderr) == (0, "")


def test_unusable_python_is_skipped(folder):
    tools = folder / "bin"
    tools.mkdir()
    (tools / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tools / "python3").chmod(0o755)
    (tools / "python3.12").symlink_to(sys.executable)
    process = launch(folder, PATH=str(tools))
    assert process.stdout.startswith(f"{tools}/python3.12"), process.stderr


def test_no_python_has_its_own_exit_code(folder):
    script = (folder / "launch.sh").read_text()
    for folder_name in ("/usr/bin/", "/usr/local/bin/", "/opt/conda/bin/", "/opt/venv/bin/"):
        script = script.replace(folder_name, "/missing/")
    (folder / "launch.sh").write_text(script)
    process = launch(folder, PATH="")
    assert process.returncode == 50
    assert "no Python 3.9 or newer was found" in process.stderr


def test_user_certificates_are_kept(folder):
    process = launch(folder, PATH="", PACKTRAIN_PYTHON=sys.executable, SSL_CERT_FILE="/my/named_python.pem")
    assert " /my/named_python.pem " in process.stdout


def test_system_certificates_are_found(folder):
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    if not Path(bundle).exists():
        pytest.skip("needs the CA bundle of Debian")
    assert f" {bundle} " in launch(folder, PATH="", PACKTRAIN_PYTHON=sys.executable).stdout
