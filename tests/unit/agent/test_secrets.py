"""Tests of the secret files: they are read for each use, and their values are redacted."""

import pytest

from packtrain.agent.secrets import Secrets
from packtrain.errors import FailedError
from packtrain.plan import Secret


def test_plain_text_is_unchanged(tmp_path):
    assert Secrets(tmp_path).resolve_secret("plain") == "plain"


def test_secret_is_read_each_time(tmp_path):
    secrets = Secrets(tmp_path)
    (tmp_path / "token").write_text("first\n")
    assert secrets.resolve_secret(Secret("token")) == "first"
    (tmp_path / "token").write_text("renewed")
    assert secrets.resolve_secret(Secret("token")) == "renewed"


def test_one_newline_is_stripped(tmp_path):
    (tmp_path / "key").write_text("line one\nline two\n\n")
    assert Secrets(tmp_path).resolve_secret(Secret("key")) == "line one\nline two\n"


@pytest.mark.parametrize("folder", ["present", "absent"])
def test_missing_secret_is_named(tmp_path, folder):
    (tmp_path / "present").mkdir()
    with pytest.raises(FailedError, match=r"'token'.*No such file") as caught:
        Secrets(tmp_path / folder).resolve_secret(Secret("token"))
    assert caught.value.kind == "secret_missing"


def test_name_cannot_escape_folder(tmp_path):
    (tmp_path / "outside").write_text("x")
    (tmp_path / "secrets").mkdir()
    with pytest.raises(FailedError):
        Secrets(tmp_path / "secrets").resolve_secret(Secret("../outside"))


def test_all_secrets_are_redacted(tmp_path):
    (tmp_path / "a").write_text("hunter22\n")
    (tmp_path / "b").write_text("correct horse")
    redactor = Secrets(tmp_path).redactor
    assert redactor.redact_text("hunter22 and correct horse") == "*** and ***"


def test_missing_folder(tmp_path):
    assert Secrets(tmp_path / "absent").redactor.redact_text("anything") == "anything"


def test_renewed_secret_is_redacted_after_use(tmp_path):
    (tmp_path / "token").write_text("first-value")
    secrets = Secrets(tmp_path)
    (tmp_path / "token").write_text("second-value")
    assert secrets.resolve_secret(Secret("token")) == "second-value"
    assert secrets.redactor.redact_text("first-value, second-value") == "***, ***"
