"""Digests of data: sha256, md5, crc32c, crc32 and adler32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packtrain.errors import FailedError
from packtrain.plan import Digest
from packtrain.transfer.integrity import crc32c

# They detect accidental damage, but are too short to identify an object.
WEAK_ALGORITHMS = frozenset({"crc32c", "crc32", "adler32"})
_READ_BYTES = 1 << 20
_ZLIB_INITIAL_VALUES = {"adler32": 1, "crc32": 0}


class Digests:
    """Several digests of one stream of bytes, computed together.

    Args:
        *expected: Digests whose algorithms are computed; None is ignored.
        sha256: Whether to compute a sha256 as well.
    """

    def __init__(self, *expected: Digest | None, sha256: bool = True) -> None:
        names = {digest.algorithm for digest in expected if digest is not None} | ({"sha256"} if sha256 else set())
        self._hashers = {name: _new_hasher(name) for name in names}

    def update(self, data: bytes | memoryview) -> None:
        """Add the next bytes."""
        for hasher in self._hashers.values():
            hasher.update(data)

    def has(self, algorithm: str) -> bool:
        """Return whether the algorithm is computed."""
        return algorithm in self._hashers

    def hexdigest(self, algorithm: str) -> str:
        """Return the digest of the bytes so far, in lower-case hex."""
        return str(self._hashers[algorithm].hexdigest())


def _new_hasher(algorithm: str) -> Any:
    import hashlib

    if algorithm == "crc32c" and can_compute(algorithm):
        return crc32c.Crc32c()
    if algorithm in _ZLIB_INITIAL_VALUES:
        return _ZlibHasher(algorithm)
    if algorithm not in ("sha256", "md5"):
        raise FailedError(
            "unsupported",
            f"the digest {algorithm!r} is not one of sha256, md5, crc32, adler32, or crc32c where a module computes it",
        )
    return hashlib.new(algorithm, usedforsecurity=False)


class _ZlibHasher:
    """A checksum of zlib with the interface of hashlib."""

    def __init__(self, name: str) -> None:
        self._name, self._value = name, _ZLIB_INITIAL_VALUES[name]

    def update(self, data: bytes | memoryview) -> None:
        import zlib

        self._value = getattr(zlib, self._name)(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def can_compute(algorithm: str) -> bool:
    """Return whether this machine can compute a digest; Python has no crc32c."""
    return algorithm != "crc32c" or crc32c.find_extend() is not None


def check_digest_computable(name: str, digest: Digest | None) -> None:
    """Raise FailedError ("unsupported") if a digest that the user stated cannot be computed; it is never ignored."""
    if digest is not None and not can_compute(digest.algorithm):
        raise FailedError(
            "unsupported",
            f"the crc32c of {name} cannot be checked: Python has no crc32c, and no module such as google-crc32c is "
            "installed; state its sha256 or md5 instead",
        )


def sha256_file(path: Path) -> str:
    """Return the sha256 of a file in lower-case hex."""
    return hash_file(path, "sha256")


def hash_file(path: Path, algorithm: str) -> str:
    """Return a digest of a file in lower-case hex."""
    digests = Digests(Digest(algorithm, ""))
    with open(path, "rb") as file:
        while True:
            block = file.read(_READ_BYTES)
            if not block:
                return digests.hexdigest(algorithm)
            digests.update(block)
