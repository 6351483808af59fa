"""The redactor: secrets in every form in which they leak, and nothing else."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest

from packtrain.events import Redactor

SECRET = "s3cr/t +ü=x&y"


def b64(text):
    return base64.b64encode(text.encode()).decode()


FORMS = {
    "plain": SECRET,
    "URL-quoted": quote(SECRET, safe=""),
    "URL-quoted path": quote(SECRET),
    "form-quoted": quote_plus(SECRET),
    "JSON": json.dumps(SECRET)[1:-1],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_every_form_is_masked(form):
    redactor = Redactor([SECRET])
    assert redactor.redact_text(f"GET /?token={form}&more HTTP/1.1") == "GET /?token=***&more HTTP/1.1"
    assert redactor.redact_bytes(f"<{form}>".encode()) == b"<***>"


@pytest.mark.parametrize("secret", ["abcd", "hunter2", "a-longer-secret-0123456789"])
@pytest.mark.parametrize("around", ["{}", "user:{}", "u:{}", "us:{}:more", "{}x", "{}xy"])
def test_base64_is_masked_wherever_the_secret_stands_in_it(secret, around):
    leaked = b64(around.format(secret))
    shown = Redactor([secret]).redact_text(f"Authorization: Basic {leaked}.")
    assert "***" in shown
    rest = shown.split("Basic ")[1].rstrip(".").replace("***", "")
    assert len(rest) <= len(leaked) - len(secret), "at most what surrounds the secret is left"


def test_url_safe_base64_is_masked():
    secret = "\u07ff\u07ff?>>>~~~secret"
    leaked = base64.urlsafe_b64encode(secret.encode()).decode().rstrip("=")
    assert "-" in leaked or "_" in leaked
    assert leaked[:-2] not in Redactor([secret]).redact_text(leaked)


def test_short_values_are_left_alone():
    redactor = Redactor(["", "a", "abc", "  x \n"])
    assert redactor.redact_text("a b c abc x") == "a b c abc x"
    assert redactor.max_secret_bytes == 0


def test_white_space_around_a_secret_does_not_matter():
    assert Redactor(["  token-1\n"]).redact_text("use token-1 here") == "use *** here"


def test_the_longer_of_two_secrets_wins():
    assert Redactor(["pass", "password-1"]).redact_text("password-1 pass") == "*** ***"


def test_special_characters_are_meant_literally():
    redactor = Redactor(["a.b*c"])
    assert redactor.redact_text("a.b*c aXbbc") == "*** aXbbc"


def test_without_secrets_nothing_changes():
    redactor = Redactor()
    assert (redactor.redact_text("x"), redactor.redact_bytes(b"\xff"), redactor.redact_value([{"a": "x"}])) == (
        "x",
        b"\xff",
        [{"a": "x"}],
    )


def test_a_secret_that_is_no_utf8_is_masked_in_bytes():
    raw = b"tok\xff\xfeen"
    redactor = Redactor([raw.decode("utf-8", "surrogateescape")])
    assert redactor.redact_bytes(b"x " + raw + b" y") == b"x *** y"
    assert redactor.max_secret_bytes >= len(raw)


def test_values_are_masked_inside_a_document_but_keys_and_numbers_stay():
    redactor = Redactor(["1234"])
    masked = redactor.redact_value({"1234": ["x1234y", 1234, None, True, ("1234",)]})
    assert masked == {"1234": ["x***y", 1234, None, True, ["***"]]}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
def test_pieces_add_up_to_the_masked_whole(size):
    redactor = Redactor([SECRET, "aaab", "abcabd"])
    whole = f"x{SECRET}y aaaaab abcabcabd {b64('u:' + SECRET)} aaa".encode()
    written, held = b"", b""
    for start in range(0, len(whole), size):
        ready, held = redactor.redact_partial(held + whole[start : start + size])
        written += ready
    assert written + redactor.redact_bytes(held) == redactor.redact_bytes(whole)
    assert SECRET.encode() not in written
