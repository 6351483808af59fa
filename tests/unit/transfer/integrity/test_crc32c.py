"""CRC-32C in pure Python: published examples, and blocks of the real size."""

from __future__ import annotations

import pytest

from packtrain.transfer.integrity.crc32c import PureCrc32c


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
    hasher = PureCrc32c()
    hasher.update(data)
    assert hasher.hexdigest() == value


@pytest.mark.parametrize("step", [65_537, 1 << 20, 3 << 20])
def test_several_blocks(step):
    data, hasher = bytes(range(251)) * 10_000, PureCrc32c()
    for start in range(0, len(data), step):
        hasher.update(memoryview(data)[start : start + step])
        hasher.hexdigest()  # may be called at any time
    assert hasher.hexdigest() == "b6d774d5"
