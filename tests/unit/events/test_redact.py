"""Redaction of secrets in all their encodings."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest

from packtrain.events import Redactor

SECRET = "s3cr/t +ü=x&y"


def to_base64(text):
    return base64.b64encode(text.encode()).decode()


ENCODINGS = {
    "plain": SECRET,
    "URL-quoted": quote(SECRET, safe=""),
    "URL-quoted path": quote(SECRET),
    "form-quoted": quote_plus(SECRET),
    "JSON": json.dumps(SECRET)[1:-1],
}


@pytest.mark.parametrize("encoded", ENCODINGS.values(), ids=ENCODINGS.keys())
def test_encodings(encoded):
    redactor = Redactor([SECRET])
    assert redactor.redact_text(f"GET /?token={encoded}&more HTTP/1.1") == "GET /?token=***&more HTTP/1.1"
    assert redactor.redact_bytes(f"<{encoded}>".encode()) == b"<***>"


@pytest.mark.parametrize("secret", ["abcd", "hunter2", "a-longer-secret-0123456789"])
@pytest.mark.parametrize("template", ["{}", "user:{}", "u:{}", "us:{}:more", "{}x", "{}xy"])
def test_base64_at_any_offset(secret, template):
    encoded = to_base64(template.format(secret))
    redacted = Redactor([secret]).redact_text(f"Authorization: Basic {encoded}.")
    assert "***" in redacted
    remainder = redacted.split("Basic ")[1].rstrip(".").replace("***", "")
    assert len(remainder) <= len(encoded) - len(secret), "only the text around the secret remains"


def test_url_safe_base64():
    secret = "\u07ff\u07ff?>>>~~~secret"
    encoded = base64.urlsafe_b64encode(secret.encode()).decode().rstrip("=")
    assert "-" in encoded or "_" in encoded
    assert encoded[:-2] not in Redactor([secret]).redact_text(encoded)


def test_short_values():
    redactor = Redactor(["", "a", "abc", "  x \n"])
    assert redactor.redact_text("a b c abc x") == "a b c abc x"
    assert redactor.max_secret_bytes == 0


def test_surrounding_white_space():
    assert Redactor(["  token-1\n"]).redact_text("use token-1 here") == "use *** here"


def test_longest_secret_first():
    assert Redactor(["pass", "password-1"]).redact_text("password-1 pass") == "*** ***"


def test_special_characters():
    redactor = Redactor(["a.b*c"])
    assert redactor.redact_text("a.b*c aXbbc") == "*** aXbbc"


def test_no_secrets():
    redactor = Redactor()
    assert (redactor.redact_text("x"), redactor.redact_bytes(b"\xff"), redactor.redact_value([{"a": "x"}])) == (
        "x",
        b"\xff",
        [{"a": "x"}],
    )


def test_secret_is_not_utf8():
    secret = b"tok\xff\xfeen"
    redactor = Redactor([secret.decode("utf-8", "surrogateescape")])
    assert redactor.redact_bytes(b"x " + secret + b" y") == b"x *** y"
    assert redactor.max_secret_bytes >= len(secret)


def test_redact_value():
    redactor = Redactor(["1234"])
    redacted = redactor.redact_value({"1234": ["x1234y", 1234, None, True, ("1234",)]})
    assert redacted == {"1234": ["x***y", 1234, None, True, ["***"]]}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
def test_redact_partial(size):
    redactor = Redactor([SECRET, "aaab", "abcabd"])
    data = f"x{SECRET}y aaaaab abcabcabd {to_base64('u:' + SECRET)} aaa".encode()
    written, pending = b"", b""
    for start in range(0, len(data), size):
        output, pending = redactor.redact_partial(pending + data[start : start + size])
        written += output
    assert written + redactor.redact_bytes(pending) == redactor.redact_bytes(data)
    assert SECRET.encode() not in written
