"""Map network exceptions to TransferErrors, in one place."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from http.client import HTTPException, IncompleteRead, InvalidURL
from typing import Union
from urllib.parse import urlsplit

from packtrain.errors import TransferError
from packtrain.formatting import format_duration
from packtrain.transfer.http import socket_stream
from packtrain.transfer.tasks.cancellation import TimeLimitError
from packtrain.transfer.urls import redact_url

NETWORK_ERRORS = (OSError, HTTPException, ValueError)

_ErrorRule = tuple[Union[type[Exception], tuple[type[Exception], ...]], str, str]
_ERROR_RULES: tuple[_ErrorRule, ...] = (
    ((socket.gaierror, UnicodeError), "host_unknown", "the host name {host} does not resolve ({error})"),
    (TimeLimitError, "service_unavailable", "{host} did not complete its response within the retry timeout"),
    (ConnectionRefusedError, "network_unreachable", "{host} refused the connection"),
    (InvalidURL, "unsupported", "this is not a valid URL"),
    (IncompleteRead, "truncated", "the body is shorter than declared"),
    (ConnectionError, "service_unavailable", "{host} dropped the connection"),
    (socket_stream.RemoteProtocolError, "service_unavailable", "the response of {host} is not valid HTTP: {error}"),
    (HTTPException, "service_unavailable", "the response of {host} is not HTTP"),
    (OSError, "network_unreachable", "no connection to {host} ({error})"),
    (Exception, "unsupported", "this is not a valid URL ({error})"),
)


@contextlib.contextmanager
def map_errors(url: str, connect_timeout_s: float | None = None, proxy: str | None = None) -> Iterator[None]:
    """Raise network errors as TransferError; while connecting, a timeout means that there is no connection."""
    try:
        yield
    except NETWORK_ERRORS as error:
        raise to_transfer_error(error, url, connect_timeout_s, proxy) from error


def to_transfer_error(
    error: Exception, url: str, connect_timeout_s: float | None = None, proxy: str | None = None
) -> TransferError:
    """Return the TransferError for a network exception."""
    rules = (_timeout_rule(connect_timeout_s), *_tls_rules(), *_ERROR_RULES)
    kind, template = next((kind, template) for types, kind, template in rules if isinstance(error, types))
    host = proxy or urlsplit(url).hostname
    via = f" through the proxy {proxy}" if proxy else ""
    return TransferError(kind, f"{redact_url(url)}{via}: {template.format(host=host, error=error)}", redact_url(url))


def _tls_rules() -> tuple[_ErrorRule, ...]:
    """Return the rules for TLS errors, if ssl is loaded at all."""
    if "ssl" not in sys.modules:
        return ()
    import ssl

    untrusted = "the certificate of {host} is not trusted: {error}"
    return (
        (ssl.SSLCertVerificationError, "certificate_invalid", untrusted),
        (ssl.SSLError, "service_unavailable", "TLS with {host} failed: {error}"),
    )


def _timeout_rule(connect_timeout_s: float | None) -> _ErrorRule:
    if connect_timeout_s is not None:
        return (
            socket.timeout,
            "network_unreachable",
            f"no connection to {{host}} within {format_duration(connect_timeout_s)}",
        )
    return (
        socket.timeout,
        "service_unavailable",
        f"{{host}} sent nothing for {format_duration(socket_stream.READ_TIMEOUT_S)}",
    )
