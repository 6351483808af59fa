"""CRC-32C: ours and that of the modules say what the definition says, however the bytes are cut."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.transfer import crc32c
from packtrain.transfer.crc32c import PureCrc32c

REAL_BLOCK = 1 << 20
cuts = st.lists(st.integers(0, 10**9), max_size=6)


def bit_by_bit(data: bytes) -> str:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return f"{value ^ 0xFFFFFFFF:08x}"


def fed(running, data: bytes, at: list[int]) -> str:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in at)})
    for begin, end in pairwise(edges):
        running.update(memoryview(data)[begin:end])
    return running.hexdigest()


@pytest.fixture
def small_blocks(monkeypatch):
    """So that a few hundred bytes are many blocks."""
    monkeypatch.setattr(crc32c, "_COLUMNS", 5)
    monkeypatch.setattr(crc32c, "_BLOCK_BYTES", 40)
    monkeypatch.setattr(crc32c, "_MIN_VECTORIZED_BYTES", 15)
    crc32c._row_shift_tables.cache_clear()
    yield
    crc32c._row_shift_tables.cache_clear()


@pytest.mark.usefixtures("small_blocks")
def test_ours_in_small_blocks():
    @settings(max_examples=300, deadline=None)
    @given(data=st.binary(max_size=300), at=cuts)
    def holds(data, at):
        assert fed(PureCrc32c(), data, at) == bit_by_bit(data)

    holds()


@settings(max_examples=20, deadline=None)
@given(beyond=st.integers(-3, 3), blocks=st.integers(1, 2), at=cuts)
def test_ours_and_a_modules_agree_on_real_blocks(beyond, blocks, at):
    data = os.urandom(blocks * REAL_BLOCK + beyond)
    assert fed(PureCrc32c(), data, at) == fed(
        crc32c._NativeCrc32c(crc32c._load_native_extend("google_crc32c")), data, []
    )


@pytest.mark.parametrize("name", ["google_crc32c", "crc32c"])
@settings(max_examples=50, deadline=None)
@given(data=st.binary(max_size=300), at=cuts)
def test_modules(name, data, at):
    assert fed(crc32c._NativeCrc32c(crc32c._load_native_extend(name)), data, at) == bit_by_bit(data)


def test_the_fastest_is_taken():
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
def test_a_module_that_is_of_no_use_is_not_used(source, tmp_path, monkeypatch):
    """Something else may have the name, or Google's may have come without its compiled part."""
    (tmp_path / "useless_crc32c.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    read = crc32c._NATIVE_MODULES["google_crc32c" if "implementation" in source else "crc32c"]
    monkeypatch.setattr(crc32c, "_NATIVE_MODULES", {"useless_crc32c": read, "no_such_module": read})
    monkeypatch.delitem(__import__("sys").modules, "useless_crc32c", raising=False)
    crc32c._find_native_extend.cache_clear()
    try:
        assert isinstance(crc32c.new_crc32c(), PureCrc32c)
    finally:
        crc32c._find_native_extend.cache_clear()
