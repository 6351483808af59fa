"""Chirp, by which a job speaks with its submit side while it runs: attributes of its ad, lines of the user log.

One line a request, one line an answer, to the proxy that HTCondor's starter runs for the job. A file that the
environment names says where it is and what lets us in.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

MAX_REQUEST_BYTES = 5119  # the proxy takes 5120 bytes
_CONFIG_VARIABLE = "_CONDOR_CHIRP_CONFIG"
_ERROR_TOO_BIG = -5
_ERROR_INVALID_REQUEST = -8  # of a request that the site does not allow: the proxy then does not know it
_MAX_RESPONSE_BYTES = 1 << 12
_SAFE_VALUE = re.compile(r'(?:[^\\\x00-\x1f\x7f]|\\")*')
_NEEDS_ESCAPE = re.compile(rb"[\\\s]")


class ChirpError(Exception):
    """The proxy answered that it will not."""

    def __init__(self, command: str, code: int) -> None:
        super().__init__(f"{command} was answered with {code}")
        self.code = code

    @property
    def is_permanent(self) -> bool:
        return self.code == _ERROR_INVALID_REQUEST


class ChirpClient:
    """One connection. Everything raises OSError when it is gone or silent for too long, and RefusedError."""

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
        """An attribute of the job's ad, seen by whoever asks the schedd from now on."""
        self._request("set_job_attr", name.encode(), encode_value(expression))

    def set_delayed_attribute(self, name: str, expression: str) -> None:
        """With the next update that the starter sends anyway; names begin with `Chirp`."""
        self._request("set_job_attr_delayed", name.encode(), encode_value(expression))

    def log(self, text: str) -> None:
        """One line of the user log, of at most 1023 bytes."""
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
                raise ConnectionError("the Chirp proxy ended the connection")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            return int(line)
        except ValueError:
            raise ConnectionError(f"the Chirp proxy answered {line[:40]!r}") from None


def find_config(environ: Mapping[str, str]) -> Path | None:
    """None where the job has no proxy."""
    path = Path(environ.get(_CONFIG_VARIABLE) or ".chirp.config")
    return path if path.is_file() else None


def encode_value(expression: str) -> bytes:
    """The proxy reads a backslash now as the old form of ClassAds does, now as the new. A value that comes out with the
    end of a line in it can never be committed: the shadow tries for ever, and the job never ends (seen in 25.14)."""
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
        raise OSError(f"{config} does not say where the Chirp proxy is: {error}") from None
