"""Secrets are read anew, missing ones are told, all of them are redacted."""

import pytest

from packtrain.agent.secrets import Secrets
from packtrain.errors import FailedError
from packtrain.plan import Secret


def test_plain_text_is_itself(tmp_path):
    assert Secrets(tmp_path).resolve_secret("plain") == "plain"


def test_a_secret_is_read_anew_each_time(tmp_path):
    secrets = Secrets(tmp_path)
    (tmp_path / "token").write_text("first\n")
    assert secrets.resolve_secret(Secret("token")) == "first"
    (tmp_path / "token").write_text("renewed")
    assert secrets.resolve_secret(Secret("token")) == "renewed"


def test_only_one_newline_is_dropped(tmp_path):
    (tmp_path / "key").write_text("line one\nline two\n\n")
    assert Secrets(tmp_path).resolve_secret(Secret("key")) == "line one\nline two\n"


@pytest.mark.parametrize("folder", ["there", "absent"])
def test_a_missing_one_is_named(tmp_path, folder):
    (tmp_path / "there").mkdir()
    with pytest.raises(FailedError, match=r"'token'.*No such file") as caught:
        Secrets(tmp_path / folder).resolve_secret(Secret("token"))
    assert caught.value.kind == "secret_missing"


def test_a_name_does_not_leave_the_folder(tmp_path):
    (tmp_path / "outside").write_text("x")
    (tmp_path / "secrets").mkdir()
    with pytest.raises(FailedError):
        Secrets(tmp_path / "secrets").resolve_secret(Secret("../outside"))


def test_the_redactor_knows_all(tmp_path):
    (tmp_path / "a").write_text("hunter22\n")
    (tmp_path / "b").write_text("correct horse")
    redactor = Secrets(tmp_path).redactor
    assert redactor.redact_text("hunter22 and correct horse") == "*** and ***"


def test_no_folder_no_secrets(tmp_path):
    assert Secrets(tmp_path / "absent").redactor.redact_text("anything") == "anything"


def test_a_renewed_secret_is_redacted_once_it_was_used(tmp_path):
    (tmp_path / "token").write_text("first-value")
    secrets = Secrets(tmp_path)
    (tmp_path / "token").write_text("second-value")
    assert secrets.resolve_secret(Secret("token")) == "second-value"
    assert secrets.redactor.redact_text("first-value, second-value") == "***, ***"
