"""CRC-32C without any module: published examples, and blocks as large as real ones."""

from __future__ import annotations

import pytest

from packtrain.transfer.crc32c import PureCrc32c


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
    running = PureCrc32c()
    running.update(data)
    assert running.hexdigest() == value


@pytest.mark.parametrize("step", [65_537, 1 << 20, 3 << 20])
def test_several_blocks(step):
    data, running = bytes(range(251)) * 10_000, PureCrc32c()
    for at in range(0, len(data), step):
        running.update(memoryview(data)[at : at + step])
        running.hexdigest()  # may be asked for at any time
    assert running.hexdigest() == "b6d774d5"
