"""The supervisor as a job of the access point: its description."""

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
COMMAND = ["/opt/venv/bin/python", "-m", "packtrain", "supervise", "cifar-x7kq", "--in-schedd"]
ENVIRON = {"HOME": "/home/ada", "PACKTRAIN_STORE": '/home/ada/it\'s "here"/store.db'}


def test_the_description_is_as_expected():
    assert render_supervisor_job("cifar-x7kq", FOLDER, COMMAND, ENVIRON) == GOLDEN.read_text(encoding="utf-8")


def test_a_job_ad_gets_no_secret_of_the_shell():
    shell = {
        "PATH": "/bin",
        "CONDOR_CONFIG": "/etc/condor",
        "PACKTRAIN_STORE": "/s",
        "BEARER_TOKEN": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "DATA_TOKEN": "secret",
        "_CONDOR_CREDS": "/run/creds",
    }
    assert supervisor_environment(shell) == {"PATH": "/bin", "CONDOR_CONFIG": "/etc/condor", "PACKTRAIN_STORE": "/s"}


def test_a_job_ad_gets_no_secret_that_is_named_like_ours():
    shell = {
        "PACKTRAIN_HF_TOKEN": "secret",
        "PACKTRAIN_CONFIG": "/c",
        "_CONDOR_SCHEDD_HOST": "ap",
        "_CONDOR_X": "secret",
    }
    assert supervisor_environment(shell, {"_CONDOR_X"}) == {"PACKTRAIN_CONFIG": "/c", "_CONDOR_SCHEDD_HOST": "ap"}


@pytest.mark.parametrize(("value", "refused"), [("true", True), ("HOME, X*", True), ("False", False)])
def test_variables_of_a_shell_that_will_be_gone_are_refused(value, refused):
    """The supervisor's own would be taken for them, without a word."""
    with pytest.raises(UsageError, match="--detach") if refused else contextlib.nullcontext():
        reject_getenv(RunSettings(submit_lines=(("GetEnv", value),)))
