"""Tokens as `doctor` finds them."""

from __future__ import annotations

import base64
import json
import time

import pytest

from packtrain.cli.commands.tools import doctor


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch, tmp_path):
    for name in ("BEARER_TOKEN", "BEARER_TOKEN_FILE", "TOKEN", "_CONDOR_CREDS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def token(lasts_s: float) -> str:
    claims = json.dumps({"exp": int(time.time() + lasts_s)}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.sig"


def told() -> list[tuple[str, str]]:
    return [(one.status, one.detail) for one in doctor._check_tokens()]


def test_none_is_fine():
    assert told() == [("ok", "none found (needed for protected data only)")]


@pytest.mark.parametrize(("lasts_s", "status", "says"), [(7200, "ok", " more"), (-7200, "warning", "ran out 2 h")])
def test_one_that_has_run_out_is_told(monkeypatch, lasts_s, status, says):
    monkeypatch.setenv("BEARER_TOKEN", token(lasts_s))
    ((seen_status, seen),) = told()
    assert seen_status == status and says in seen


def test_a_file_that_is_not_there_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(tmp_path / "t"))
    assert told() == [("warning", f"no token in {tmp_path / 't'} ($BEARER_TOKEN_FILE)")]
    (tmp_path / "t").write_text("opaque\n")
    assert told() == [("ok", f"found in {tmp_path / 't'} ($BEARER_TOKEN_FILE)")]


def test_each_of_a_jobs_credentials_is_looked_at(monkeypatch, tmp_path):
    monkeypatch.setenv("_CONDOR_CREDS", str(tmp_path))
    (tmp_path / "a.use").write_text(json.dumps({"access_token": token(9999)}))
    (tmp_path / "b.use").write_text("{}")
    assert [status for status, _ in told()] == ["ok", "warning"]
