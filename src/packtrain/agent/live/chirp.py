"""A client of Chirp, with which a running job sets attributes of its ClassAd and writes lines to its user log.

HTCondor's starter runs a Chirp proxy for the job. Each request and each response is one line. A file that the
environment names contains the address of the proxy and the cookie that authenticates the job.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

MAX_REQUEST_BYTES = 5119  # the proxy's buffer has 5120 bytes
_CONFIG_VARIABLE = "_CONDOR_CHIRP_CONFIG"
_ERROR_TOO_BIG = -5
_ERROR_INVALID_REQUEST = -8  # the proxy also answers this if the site does not allow the request
_MAX_RESPONSE_BYTES = 1 << 12
_SAFE_VALUE = re.compile(r'(?:[^\\\x00-\x1f\x7f]|\\")*')
_NEEDS_ESCAPE = re.compile(rb"[\\\s]")


class ChirpError(Exception):
    """A request that the proxy rejected, or that it cannot accept and was not sent."""

    def __init__(self, command: str, code: int) -> None:
        super().__init__(f"Chirp request failed with code {code}: {command}")
        self.code = code

    @property
    def is_permanent(self) -> bool:
        """True if the site does not allow this request at all."""
        return self.code == _ERROR_INVALID_REQUEST


class ChirpClient:
    """One connection to the Chirp proxy.

    All methods raise OSError if the connection is lost or the proxy does not respond in time, and ChirpError if the
    proxy rejects the request.
    """

    def __init__(self, config: Path, timeout_s: float) -> None:
        host, port, cookie = _read_config(config)
        self._socket = socket.create_connection((host, port), timeout_s)
        self._buffer = b""
        try:
            self._request("cookie", cookie.encode())
        except BaseException:
            self.close()
            raise

    def set_attribute(self, name: str, expression: str) -> None:
        """Set an attribute of the job's ClassAd; queries to the schedd return it immediately."""
        self._request("set_job_attr", name.encode(), encode_value(expression))

    def set_delayed_attribute(self, name: str, expression: str) -> None:
        """Set an attribute with the starter's next periodic update. The name must begin with `Chirp`."""
        self._request("set_job_attr_delayed", name.encode(), encode_value(expression))

    def log(self, text: str) -> None:
        """Write one line of at most 1023 bytes to the user log."""
        self._request("ulog", text.encode())

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def _request(self, command: str, *arguments: bytes) -> None:
        line = b" ".join((command.encode(), *map(escape_argument, arguments))) + b"\n"
        if len(line) > MAX_REQUEST_BYTES:
            raise ChirpError(command, _ERROR_TOO_BIG)
        self._socket.sendall(line)
        code = self._read_response()
        if code < 0:
            raise ChirpError(command, code)

    def _read_response(self) -> int:
        while b"\n" not in self._buffer:
            data = self._socket.recv(_MAX_RESPONSE_BYTES)
            if not data or len(self._buffer) > _MAX_RESPONSE_BYTES:
                raise ConnectionError("the Chirp proxy closed the connection")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            return int(line)
        except ValueError:
            raise ConnectionError(f"the Chirp proxy sent an invalid response: {line[:40]!r}") from None


def find_config(environ: Mapping[str, str]) -> Path | None:
    """Return the path of the Chirp configuration, or None if the job has no proxy."""
    path = Path(environ.get(_CONFIG_VARIABLE) or ".chirp.config")
    return path if path.is_file() else None


def encode_value(expression: str) -> bytes:
    """Encode a ClassAd expression, and reject backslashes and control characters.

    The proxy parses a backslash sometimes by the old and sometimes by the new ClassAd syntax. A value that is parsed
    with a line break in it can never be committed: the shadow retries without end, and the job never ends (seen in
    HTCondor 25.14).
    """
    if not _SAFE_VALUE.fullmatch(expression):
        raise ChirpError("a value with a backslash or a control character", _ERROR_TOO_BIG)
    return expression.encode()


def escape_argument(argument: bytes) -> bytes:
    return _NEEDS_ESCAPE.sub(rb"\\\g<0>", argument)


def _read_config(config: Path) -> tuple[str, int, str]:
    try:
        host, port, cookie = config.read_text(encoding="utf-8").split()[:3]
        return host, int(port), cookie
    except ValueError as error:
        raise OSError(f"{config} does not contain the address of the Chirp proxy: {error}") from None
