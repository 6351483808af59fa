"""CRC-32C by compiled modules matches the definition, however the bytes are split."""

from __future__ import annotations

from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.transfer.integrity import crc32c

cut_lists = st.lists(st.integers(0, 10**9), max_size=6)


def reference_crc32c(data: bytes) -> str:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return f"{value ^ 0xFFFFFFFF:08x}"


def hash_in_parts(hasher, data: bytes, cuts: list[int]) -> str:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, stop in pairwise(edges):
        hasher.update(memoryview(data)[start:stop])
    return hasher.hexdigest()


@pytest.mark.parametrize("name", ["google_crc32c", "crc32c"])
@settings(max_examples=50, deadline=None)
@given(data=st.binary(max_size=300), cuts=cut_lists)
def test_modules(name, data, cuts):
    with mock.patch.object(crc32c, "find_extend", lambda: crc32c._load_extend(name)):
        assert hash_in_parts(crc32c.Crc32c(), data, cuts) == reference_crc32c(data)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", "00000000"),
        (b"123456789", "e3069283"),
        (bytes(32), "8a9136aa"),  # this and the following from RFC 3720, B.4
        (b"\xff" * 32, "62a8ab43"),
        (bytes(range(32)), "46dd794e"),
        (bytes(range(31, -1, -1)), "113fdb5c"),
    ],
)
def test_published_examples(data, value):
    assert hash_in_parts(crc32c.Crc32c(), data, []) == reference_crc32c(data) == value


@pytest.mark.parametrize(
    "source",
    [
        "raise RuntimeError('broken')",
        "",
        "def crc32c(data, value): return 1",
        "def crc32c(data): return 0xe3069283",
        "implementation = 'python'\ndef extend(value, data): return 0xe3069283",
    ],
)
def test_useless_module_is_ignored(source, tmp_path, monkeypatch):
    """Another module may have the name, or google_crc32c may lack its compiled part."""
    (tmp_path / "useless_crc32c.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    load_extend = crc32c._MODULES["google_crc32c" if "implementation" in source else "crc32c"]
    monkeypatch.setattr(crc32c, "_MODULES", {"useless_crc32c": load_extend, "no_such_module": load_extend})
    monkeypatch.delitem(__import__("sys").modules, "useless_crc32c", raising=False)
    assert crc32c.find_extend.__wrapped__() is None
