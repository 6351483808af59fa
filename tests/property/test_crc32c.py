"""CRC-32C in pure Python and by modules matches the definition, however the bytes are split."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.transfer.integrity import crc32c
from packtrain.transfer.integrity.crc32c import PureCrc32c

REAL_BLOCK = 1 << 20
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


@pytest.fixture
def small_blocks(monkeypatch):
    """Make blocks so small that a few hundred bytes are many blocks."""
    monkeypatch.setattr(crc32c, "_COLUMNS", 5)
    monkeypatch.setattr(crc32c, "_BLOCK_BYTES", 40)
    monkeypatch.setattr(crc32c, "_MIN_VECTORIZED_BYTES", 15)
    crc32c._row_shift_tables.cache_clear()
    yield
    crc32c._row_shift_tables.cache_clear()


@pytest.mark.usefixtures("small_blocks")
def test_pure_python_small_blocks():
    @settings(max_examples=300, deadline=None)
    @given(data=st.binary(max_size=300), cuts=cut_lists)
    def holds(data, cuts):
        assert hash_in_parts(PureCrc32c(), data, cuts) == reference_crc32c(data)

    holds()


@settings(max_examples=20, deadline=None)
@given(beyond=st.integers(-3, 3), blocks=st.integers(1, 2), cuts=cut_lists)
def test_pure_python_real_blocks(beyond, blocks, cuts):
    data = os.urandom(blocks * REAL_BLOCK + beyond)
    assert hash_in_parts(PureCrc32c(), data, cuts) == hash_in_parts(
        crc32c._NativeCrc32c(crc32c._load_native_extend("google_crc32c")), data, []
    )


@pytest.mark.parametrize("name", ["google_crc32c", "crc32c"])
@settings(max_examples=50, deadline=None)
@given(data=st.binary(max_size=300), cuts=cut_lists)
def test_native_modules(name, data, cuts):
    assert hash_in_parts(crc32c._NativeCrc32c(crc32c._load_native_extend(name)), data, cuts) == reference_crc32c(data)


def test_native_module_is_preferred():
    assert crc32c.has_native_module()
    assert not isinstance(crc32c.new_crc32c(), PureCrc32c)


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
    load_extend = crc32c._NATIVE_MODULES["google_crc32c" if "implementation" in source else "crc32c"]
    monkeypatch.setattr(crc32c, "_NATIVE_MODULES", {"useless_crc32c": load_extend, "no_such_module": load_extend})
    monkeypatch.delitem(__import__("sys").modules, "useless_crc32c", raising=False)
    crc32c._find_native_extend.cache_clear()
    try:
        assert isinstance(crc32c.new_crc32c(), PureCrc32c)
    finally:
        crc32c._find_native_extend.cache_clear()
