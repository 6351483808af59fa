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

LONGEST_LINE = 5119  # the proxy takes 5120 bytes
_CONFIG = "_CONDOR_CHIRP_CONFIG"
_TOO_BIG = -5
_INVALID = -8  # of a request that the site does not allow: the proxy then does not know it
_LONGEST_ANSWER = 1 << 12
_FIT = re.compile(r'(?:[^\\\x00-\x1f\x7f]|\\")*')
_BLANK = re.compile(rb"[\\\s]")


class RefusedError(Exception):
    """The proxy answered that it will not."""

    def __init__(self, request: str, code: int) -> None:
        super().__init__(f"{request} was answered with {code}")
        self.code = code

    @property
    def for_good(self) -> bool:
        return self.code == _INVALID


class Chirp:
    """One connection. Everything raises OSError when it is gone or silent for too long, and RefusedError."""

    def __init__(self, config: Path, timeout_s: float) -> None:
        host, port, cookie = _read(config)
        self._socket = socket.create_connection((host, port), timeout_s)
        self._rest = b""
        try:
            self._ask("cookie", cookie.encode())
        except BaseException:
            self.close()
            raise

    def set(self, name: str, expression: str) -> None:
        """An attribute of the job's ad, seen by whoever asks the schedd from now on."""
        self._ask("set_job_attr", name.encode(), fit(expression))

    def set_later(self, name: str, expression: str) -> None:
        """With the next update that the starter sends anyway; names begin with `Chirp`."""
        self._ask("set_job_attr_delayed", name.encode(), fit(expression))

    def log(self, text: str) -> None:
        """One line of the user log, of at most 1023 bytes."""
        self._ask("ulog", text.encode())

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def _ask(self, request: str, *words: bytes) -> None:
        line = b" ".join((request.encode(), *map(quoted, words))) + b"\n"
        if len(line) > LONGEST_LINE:
            raise RefusedError(request, _TOO_BIG)
        self._socket.sendall(line)
        code = self._answer()
        if code < 0:
            raise RefusedError(request, code)

    def _answer(self) -> int:
        while b"\n" not in self._rest:
            data = self._socket.recv(_LONGEST_ANSWER)
            if not data or len(self._rest) > _LONGEST_ANSWER:
                raise ConnectionError("the Chirp proxy ended the connection")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            return int(line)
        except ValueError:
            raise ConnectionError(f"the Chirp proxy answered {line[:40]!r}") from None


def config_of(environ: Mapping[str, str]) -> Path | None:
    """None where the job has no proxy."""
    path = Path(environ.get(_CONFIG) or ".chirp.config")
    return path if path.is_file() else None


def fit(expression: str) -> bytes:
    """The proxy reads a backslash now as the old form of ClassAds does, now as the new. A value that comes out with the
    end of a line in it can never be committed: the shadow tries for ever, and the job never ends (seen in 25.14)."""
    if not _FIT.fullmatch(expression):
        raise RefusedError("a value with a backslash or a control character", _TOO_BIG)
    return expression.encode()


def quoted(word: bytes) -> bytes:
    return _BLANK.sub(rb"\\\g<0>", word)


def _read(config: Path) -> tuple[str, int, str]:
    try:
        host, port, cookie = config.read_text(encoding="utf-8").split()[:3]
        return host, int(port), cookie
    except ValueError as error:
        raise OSError(f"{config} does not say where the Chirp proxy is: {error}") from None
