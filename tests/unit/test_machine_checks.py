"""Checks of `packtrain doctor`: tokens, and the machine."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace

import pytest

from packtrain import machine_checks, services


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    for name in ("BEARER_TOKEN", "BEARER_TOKEN_FILE", "TOKEN", "_CONDOR_CREDS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def make_token(lifetime_s: float) -> str:
    claims = json.dumps({"exp": int(time.time() + lifetime_s)}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.sig"


def check_tokens() -> list[tuple[str, str]]:
    return [(result.status, result.detail) for result in machine_checks._check_tokens()]


def test_no_token():
    assert check_tokens() == [("ok", "none found (only needed for protected data)")]


@pytest.mark.parametrize(
    ("lifetime_s", "expected_status", "expected_detail"),
    [(7200, "ok", "valid for "), (-7200, "warning", "expired 2 h")],
)
def test_expiry(monkeypatch, lifetime_s, expected_status, expected_detail):
    monkeypatch.setenv("BEARER_TOKEN", make_token(lifetime_s))
    ((status, detail),) = check_tokens()
    assert status == expected_status and expected_detail in detail


def test_missing_token_file(monkeypatch, tmp_path):
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(tmp_path / "t"))
    assert check_tokens() == [("warning", f"no token in {tmp_path / 't'} ($BEARER_TOKEN_FILE)")]
    (tmp_path / "t").write_text("opaque\n")
    assert check_tokens() == [("ok", f"found in {tmp_path / 't'} ($BEARER_TOKEN_FILE)")]


def test_condor_credentials(monkeypatch, tmp_path):
    monkeypatch.setenv("_CONDOR_CREDS", str(tmp_path))
    (tmp_path / "a.use").write_text(json.dumps({"access_token": make_token(9999)}))
    (tmp_path / "b.use").write_text("{}")
    assert [status for status, _ in check_tokens()] == ["ok", "warning"]


@pytest.mark.parametrize(("cpus", "gpus", "expected"), [(1, 1, "1 CPU, "), (8, 2, "8 CPUs, ")])
def test_machine(monkeypatch, cpus, gpus, expected):
    machine = replace(services.engine_capabilities("local"), cpus=cpus, gpus=gpus)
    monkeypatch.setattr(services, "engine_capabilities", lambda name: machine)
    detail = next(machine_checks._check_engines()).detail
    assert detail.startswith(expected)
    assert detail.endswith("1 GPU" if gpus == 1 else "2 GPUs")
