"""CRC-32C (Castagnoli), the checksum of S3 and XRootD that Python's library lacks: computed by a compiled module."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

ExtendCrc = Callable[[int, bytes], int]
"""Returns the checksum after more bytes, given the checksum before them."""

_TEST_INPUT, _TEST_CRC = b"123456789", 0xE3069283


class Crc32c:
    """CRC-32C with the interface of hashlib. Only if `find_extend` finds a module."""

    def __init__(self) -> None:
        extend = find_extend()
        assert extend is not None
        self._extend, self._value = extend, 0

    def update(self, data: bytes | memoryview) -> None:
        self._value = self._extend(self._value, bytes(data))  # google_crc32c accepts bytes only

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


@cache
def find_extend() -> ExtendCrc | None:
    """Return the function of a compiled module, or None if none is installed."""
    return next(filter(None, map(_load_extend, _MODULES)), None)


def _load_extend(module_name: str) -> ExtendCrc | None:
    try:
        extend = _MODULES[module_name](import_module(module_name))
        return extend if extend(0, _TEST_INPUT) == _TEST_CRC else None
    except Exception:  # an unrelated or broken module of this name
        return None


def _load_google_extend(module: Any) -> ExtendCrc:
    """Reject the fallback of the module in pure Python, which is slower than any download."""
    if module.implementation != "c":
        raise ImportError("not compiled")
    extend: ExtendCrc = module.extend
    return extend


def _load_generic_extend(module: Any) -> ExtendCrc:
    return lambda value, data: int(module.crc32c(data, value))


_MODULES: dict[str, Callable[[Any], ExtendCrc]] = {
    "google_crc32c": _load_google_extend,
    "crc32c": _load_generic_extend,
    "awscrt.checksums": _load_generic_extend,
}
