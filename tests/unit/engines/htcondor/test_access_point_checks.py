"""The checks of an access point for `packtrain doctor`."""

from __future__ import annotations

import pytest

from packtrain.engines.htcondor.access_point_checks import check_access_point
from packtrain.engines.htcondor.condor_client import ScheddUnreachableError
from packtrain.engines.setup_check import ERROR, OK, WARN


class FakeClient:
    """Stands in for CondorClient."""

    def __init__(self, **params: str) -> None:
        self._params = params

    def get_versions(self) -> tuple[str, str]:
        return "24.0.1", "$CondorVersion: 24.0.3 2025-01-01 $"

    def query(self, constraint, projection):
        return []

    def get_param(self, name: str) -> str:
        return self._params.get(name, "")


class UnreachableClient(FakeClient):
    def get_versions(self):
        raise ScheddUnreachableError("the HTCondor pool cannot be reached: no")


@pytest.fixture
def config_path(tmp_path, monkeypatch):
    path = tmp_path / "config.yaml"
    monkeypatch.setenv("PACKTRAIN_CONFIG", str(path))
    return path


def find_check(folder, text: str, **params: str):
    (check,) = [check for check in check_access_point(FakeClient(**params), folder) if text in check.message]
    return check


def test_unreachable_pool_ends_the_checks(tmp_path):
    (check,) = check_access_point(UnreachableClient(), tmp_path)
    assert check.status == ERROR


def test_tokens_for_jobs(tmp_path, config_path):
    assert find_check(tmp_path, "SEC_CREDENTIAL", SEC_CREDENTIAL_DIRECTORY_OAUTH="/creds").status == OK
    assert find_check(tmp_path, "SEC_CREDENTIAL").status == OK
    config_path.write_text("htcondor: {submitCommands: {Use_OAuth_Services: rdrive}}\n")
    check = find_check(tmp_path, "SEC_CREDENTIAL")
    assert check.status == WARN and "use_oauth_services = rdrive" in check.message and check.hint
    assert find_check(tmp_path, "SEC_CREDENTIAL", SEC_CREDENTIAL_DIRECTORY_OAUTH="/creds").status == OK
