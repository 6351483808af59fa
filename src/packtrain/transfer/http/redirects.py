"""Follow redirects, and send credentials only to the host that they are for.

Credentials are in `Request.secret_headers`. They are sent only to the origin (scheme, host, port) of the request's own
URL, never to another one that a redirect names.
"""

from __future__ import annotations

from urllib.parse import urljoin

from packtrain.errors import TransferError
from packtrain.transfer.http.headers import Headers
from packtrain.transfer.urls import redact_url, url_origin

MAX_REDIRECTS = 10
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_METHOD_PRESERVING_STATUSES = frozenset({307, 308})


def may_send_credentials(request_url: str, url: str) -> bool:
    """Return whether the credentials of a request may be sent to `url`. Raises ValueError for an invalid URL."""
    return url_origin(url) == url_origin(request_url)


def redirect_target(method: str, url: str, status: int, headers: Headers) -> str | None:
    """Return the URL to which a response redirects, or None. Methods that change data are never changed to GET."""
    location = headers.get("Location")
    allowed = _REDIRECT_STATUSES if method in ("GET", "HEAD") else _METHOD_PRESERVING_STATUSES
    if not location or status not in allowed:
        return None
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise invalid_redirect_error(url, error) from error


def invalid_redirect_error(url: str, error: ValueError) -> TransferError:
    """Return a transient error, because the server may recover."""
    return TransferError(
        "service_unavailable", f"{redact_url(url)} redirects to an invalid URL ({error})", redact_url(url)
    )


def too_many_redirects_error(url: str, max_redirects: int) -> TransferError:
    return TransferError(
        "service_unavailable", f"{redact_url(url)} redirects more than {max_redirects} times", redact_url(url)
    )
