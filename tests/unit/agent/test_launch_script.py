"""The launcher finds a Python in whatever surrounds it, or says that there is none."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import packtrain

LAUNCHER = Path(packtrain.__file__).parent / "agent" / "launch.sh"
SHELLS = [path for path in ("/bin/sh", "/bin/dash", "/bin/bash", "/bin/busybox") if Path(path).exists()]
TELL = "import os, sys; print(sys.executable, sys.flags.isolated, os.environ.get('SSL_CERT_FILE'), sys.argv[1:])"


@pytest.fixture
def folder(tmp_path):
    shutil.copy(LAUNCHER, tmp_path / "launch.sh")
    (tmp_path / "agent.pyz").write_text(TELL)
    return tmp_path


def launch(folder, *arguments, shell="/bin/sh", **environ):
    command = [shell, *(["sh"] if shell.endswith("busybox") else []), str(folder / "launch.sh"), *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize("shell", SHELLS)
def test_it_passes_arguments_on(folder, shell):
    done = launch(folder, "plan.json", "--site", "a b", shell=shell, PATH="", PACKTRAIN_PYTHON=sys.executable)
    assert done.stdout.rstrip().endswith("['plan.json', '--site', 'a b']"), done.stderr
    assert f"{sys.executable} 1 " in done.stdout


def test_the_named_python_comes_first(folder):
    own = folder / "my python"
    own.symlink_to(sys.executable)
    done = launch(folder, PATH="/usr/bin:/bin", PACKTRAIN_PYTHON=str(own))
    assert done.stdout.startswith(str(own)), done.stderr


def test_one_of_a_well_known_place_is_found_without_a_path(folder):
    found = [p for p in ("/usr/bin/python3", "/usr/local/bin/python3", "/opt/conda/bin/python3") if Path(p).exists()]
    if not found:
        pytest.skip("no Python at a well-known place")
    done = launch(folder, PATH="")
    assert (done.returncode, done.stderr) == (0, "")


def test_one_that_is_too_old_or_broken_is_passed_over(folder):
    tools = folder / "bin"
    tools.mkdir()
    (tools / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tools / "python3").chmod(0o755)
    (tools / "python3.12").symlink_to(sys.executable)
    done = launch(folder, PATH=str(tools))
    assert done.stdout.startswith(f"{tools}/python3.12"), done.stderr


def test_none_is_told_with_its_own_exit_code(folder):
    nowhere = (folder / "launch.sh").read_text()
    for place in ("/usr/bin/", "/usr/local/bin/", "/opt/conda/bin/", "/opt/venv/bin/"):
        nowhere = nowhere.replace(place, "/nowhere/")
    (folder / "launch.sh").write_text(nowhere)
    done = launch(folder, PATH="")
    assert done.returncode == 50
    assert "no Python 3.9 or newer was found" in done.stderr


def test_the_users_certificates_are_respected(folder):
    done = launch(folder, PATH="", PACKTRAIN_PYTHON=sys.executable, SSL_CERT_FILE="/my/own.pem")
    assert " /my/own.pem " in done.stdout


def test_certificates_of_the_system_are_found(folder):
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    if not Path(bundle).exists():
        pytest.skip("no Debian")
    assert f" {bundle} " in launch(folder, PATH="", PACKTRAIN_PYTHON=sys.executable).stdout
