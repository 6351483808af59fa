"""Which responses redirect, and which hosts receive credentials."""

from __future__ import annotations

import pytest

from packtrain.transfer.http.headers import Headers
from packtrain.transfer.http.redirects import may_send_credentials, redirect_target

URL = "https://host/folder/file"


@pytest.mark.parametrize(
    ("method", "status", "is_redirect"),
    [
        *[("GET", status, True) for status in (301, 302, 303, 307, 308)],
        *[("PUT", status, False) for status in (301, 302, 303)],
        *[("PUT", status, True) for status in (307, 308)],
        ("HEAD", 302, True),
        ("DELETE", 302, False),
        ("GET", 300, False),
        ("GET", 304, False),
        ("GET", 200, False),
    ],
)
def test_redirect_statuses(method, status, is_redirect):
    target = redirect_target(method, URL, status, Headers([("Location", "other")]))
    assert target == ("https://host/folder/other" if is_redirect else None)


def test_redirect_without_location():
    assert redirect_target("GET", URL, 302, Headers()) is None
    assert redirect_target("GET", URL, 302, Headers([("Location", "")])) is None


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (URL, True),
        ("https://host:443/other?x", True),
        ("https://HOST/other", True),
        ("https://user@host/other", True),
        ("http://host/folder/file", False),
        ("https://host:8443/folder/file", False),
        ("https://sub.host/folder/file", False),
        ("https://host.evil/folder/file", False),
        ("https://host@evil/folder/file", False),
    ],
)
def test_may_send_credentials(url, expected):
    assert may_send_credentials(URL, url) is expected
