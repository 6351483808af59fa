"""Replacing the placeholder of conda packages gives the same bytes however the file is cut into chunks."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from packtrain.pixi.prefix_replacement import replace_in_binary, replace_in_text
from packtrain.transfer.archive.byte_stream import ByteStream

PLACEHOLDERS = st.sampled_from([b"/opt/build/placehold", b"/aa/aa", b"aba", b"/"])
CUTS = st.lists(st.integers(1, 40), min_size=1, max_size=20)


@st.composite
def contents(draw, placeholder):
    pieces = st.sampled_from([placeholder, placeholder[:-1], placeholder[1:], b"\0", b"\n", b"/", b"a", b" x", b"\xff"])
    return b"".join(draw(st.lists(pieces, max_size=30)))


def stream(data, cuts):
    """Return the data in chunks of the given lengths, repeated."""
    chunks, start = [], 0
    while start < len(data):
        chunks.append(data[start : start + cuts[len(chunks) % len(cuts)]])
        start += len(chunks[-1])
    chunks.reverse()
    return ByteStream(lambda: chunks.pop() if chunks else b"")


def read_all(byte_stream):
    return b"".join(bytes(chunk) for chunk in iter(byte_stream.read_chunk, memoryview(b"")))


def replace_at_once(data, placeholder, prefix):
    """What rattler does with a whole binary file."""

    def replace(match):
        text = match.group()
        return text.replace(placeholder, prefix).ljust(len(text), b"\0")

    return re.sub(re.escape(placeholder) + rb"[^\0]*", replace, data, flags=re.DOTALL)


@given(st.data(), PLACEHOLDERS, CUTS)
def test_binary(data, placeholder, cuts):
    content = data.draw(contents(placeholder))
    prefix = data.draw(st.binary(max_size=len(placeholder)).filter(lambda text: b"\0" not in text))
    replaced = read_all(replace_in_binary(stream(content, cuts), placeholder, prefix))
    assert replaced == replace_at_once(content, placeholder, prefix)
    assert len(replaced) == len(content)


@given(st.data(), PLACEHOLDERS, CUTS, st.sampled_from([b"/p", b"/env/of/a/job", b""]))
def test_text(data, placeholder, cuts, prefix):
    content = data.draw(contents(placeholder))
    replaced = read_all(replace_in_text(stream(b"." + content, cuts), placeholder, prefix))
    assert replaced == (b"." + content).replace(placeholder, prefix)
