"""What `doctor` says of an access point."""

from __future__ import annotations

import pytest

from packtrain.engines.htcondor.access_point_checks import ERROR, OK, WARN, check_access_point
from packtrain.engines.htcondor.condor_client import ScheddUnreachableError


class AccessPoint:
    """Stands for the client."""

    def __init__(self, **settings: str) -> None:
        self._settings = settings

    def version(self) -> tuple[str, str]:
        return "24.0.1", "$CondorVersion: 24.0.3 2025-01-01 $"

    def query(self, constraint, projection):
        return []

    def param(self, name: str) -> str:
        return self._settings.get(name, "")


class Silent(AccessPoint):
    def version(self):
        raise ScheddUnreachableError("the HTCondor pool cannot be reached: no")


@pytest.fixture
def settings(tmp_path, monkeypatch):
    path = tmp_path / "config.yaml"
    monkeypatch.setenv("PACKTRAIN_CONFIG", str(path))
    return path


def said(folder, word: str, **of_access_point: str):
    (found,) = [one for one in check_access_point(AccessPoint(**of_access_point), folder) if word in one.message]
    return found


def test_a_pool_that_gives_no_answer_is_all_that_is_said(tmp_path):
    (found,) = check_access_point(Silent(), tmp_path)
    assert found.status == ERROR


def test_tokens_for_jobs(tmp_path, settings):
    assert said(tmp_path, "SEC_CREDENTIAL", SEC_CREDENTIAL_DIRECTORY_OAUTH="/creds").status == OK
    assert said(tmp_path, "SEC_CREDENTIAL").status == OK
    settings.write_text("htcondor: {lines: {Use_OAuth_Services: rdrive}}\n")
    found = said(tmp_path, "SEC_CREDENTIAL")
    assert found.status == WARN and "use_oauth_services = rdrive" in found.message and found.hint
    assert said(tmp_path, "SEC_CREDENTIAL", SEC_CREDENTIAL_DIRECTORY_OAUTH="/creds").status == OK
