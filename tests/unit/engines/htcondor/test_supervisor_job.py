"""The submit description of the supervisor."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.engines.htcondor.supervisor_job import reject_getenv, render_supervisor_job, supervisor_environment
from packtrain.errors import UsageError
from packtrain.plan import RunFolder
from tests.support.paths import TESTS_DIR

GOLDEN = TESTS_DIR / "golden" / "htcondor" / "supervisor.sub"
FOLDER = RunFolder(Path("/home/ada/.packtrain/runs/cifar-x7kq"))
COMMAND = ["/opt/venv/bin/python", "-m", "packtrain", "supervise", "cifar-x7kq", "--in-job"]
ENVIRON = {"HOME": "/home/ada", "PACKTRAIN_STORE": '/home/ada/it\'s "here"/store.db'}


def test_golden():
    assert render_supervisor_job("cifar-x7kq", FOLDER, COMMAND, ENVIRON) == GOLDEN.read_text(encoding="utf-8")


def test_no_secrets_in_the_job_ad():
    environ = {
        "PATH": "/bin",
        "CONDOR_CONFIG": "/etc/condor",
        "PACKTRAIN_STORE": "/s",
        "BEARER_TOKEN": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "DATA_TOKEN": "secret",
        "_CONDOR_CREDS": "/run/creds",
    }
    assert supervisor_environment(environ) == {"PATH": "/bin", "CONDOR_CONFIG": "/etc/condor", "PACKTRAIN_STORE": "/s"}


def test_no_secrets_with_known_prefixes():
    environ = {
        "PACKTRAIN_HF_TOKEN": "secret",
        "PACKTRAIN_CONFIG": "/c",
        "_CONDOR_SCHEDD_HOST": "ap",
        "_CONDOR_X": "secret",
    }
    assert supervisor_environment(environ, {"_CONDOR_X"}) == {"PACKTRAIN_CONFIG": "/c", "_CONDOR_SCHEDD_HOST": "ap"}


@pytest.mark.parametrize(("value", "is_rejected"), [("true", True), ("HOME, X*", True), ("False", False)])
def test_getenv_is_rejected(value, is_rejected):
    """HTCondor would silently copy the supervisor's variables instead of the user's."""
    with pytest.raises(UsageError, match="--detach") if is_rejected else contextlib.nullcontext():
        reject_getenv(RunSettings(submit_lines=(("GetEnv", value),)))
