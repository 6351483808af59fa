"""Whatever the network throws leaves as a TransferError with a sentence. Here and nowhere else."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from typing import Union
from urllib.parse import urlsplit

from packtrain.errors import TransferError
from packtrain.transfer.http import connection
from packtrain.transfer.urls import redact_url

NETWORK_ERRORS = (OSError, connection.TruncatedBodyError, connection.RemoteProtocolError, ValueError)

_ErrorRule = tuple[Union[type[Exception], tuple[type[Exception], ...]], str, str]
_ERROR_RULES: tuple[_ErrorRule, ...] = (
    ((socket.gaierror, UnicodeError), "host_unknown", "the host name {host} does not resolve ({error})"),
    (ConnectionRefusedError, "network_unreachable", "{host} refused the connection"),
    (connection.TruncatedBodyError, "truncated", "the body ended before its promised end"),
    (ConnectionError, "service_unavailable", "{host} dropped the connection"),
    (connection.RemoteProtocolError, "service_unavailable", "{host} gave an answer that is not HTTP"),
    (OSError, "network_unreachable", "no connection to {host} ({error})"),
    (Exception, "unsupported", "this is not a valid address ({error})"),
)


@contextlib.contextmanager
def map_errors(url: str, connecting: bool = False, proxy: str | None = None) -> Iterator[None]:
    try:
        yield
    except NETWORK_ERRORS as error:
        raise to_transfer_error(error, url, connecting, proxy) from error


def to_transfer_error(error: Exception, url: str, connecting: bool = False, proxy: str | None = None) -> TransferError:
    rows = (_timeout_rule(connecting), *_tls_rules(), *_ERROR_RULES)
    kind, words = next((kind, words) for types, kind, words in rows if isinstance(error, types))
    host = proxy or urlsplit(url).hostname
    via = f" through the proxy {proxy}" if proxy else ""
    return TransferError(kind, f"{redact_url(url)}{via}: {words.format(host=host, error=error)}", redact_url(url))


def _tls_rules() -> tuple[_ErrorRule, ...]:
    """An ssl that nobody imported has thrown nothing."""
    if "ssl" not in sys.modules:
        return ()
    import ssl

    refused = "the certificate of {host} is not trusted: {error}"
    return (
        (ssl.SSLCertVerificationError, "certificate_invalid", refused),
        (ssl.SSLError, "service_unavailable", "TLS with {host} failed: {error}"),
    )


def _timeout_rule(connecting: bool) -> _ErrorRule:
    if connecting:
        words = f"{{host}} did not answer within {connection.CONNECT_TIMEOUT_S:.0f} s"
        return socket.timeout, "network_unreachable", words
    return socket.timeout, "service_unavailable", f"{{host}} sent nothing for {connection.READ_TIMEOUT_S:.0f} s"
