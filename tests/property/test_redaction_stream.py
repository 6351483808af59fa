"""Redaction of a stream gives the same bytes for any chunk boundaries."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.events import Redactor

# Few letters, so that secrets overlap and repeat.
secrets = st.lists(st.text("ab\n", min_size=4, max_size=9), min_size=1, max_size=4)
any_secrets = st.text(st.characters(blacklist_categories=["Cs"]), min_size=4)


@st.composite
def streams(draw):
    secret_values = draw(secrets)
    pieces = draw(st.lists(st.one_of(st.sampled_from(secret_values), st.text("abc\n", max_size=6)), max_size=10))
    data = "".join(pieces).encode()
    cuts = [0, *sorted(draw(st.lists(st.integers(0, len(data)), max_size=8))), len(data)]
    return secret_values, [data[cuts[i] : cuts[i + 1]] for i in range(len(cuts) - 1)]


def redact_chunks(redactor: Redactor, chunks) -> bytes:
    output, pending = b"", b""
    for chunk in chunks:
        ready, pending = redactor.redact_partial(pending + chunk)
        output += ready
        assert len(pending) <= max(redactor.max_secret_bytes - 1, 0)
    return output + redactor.redact_bytes(pending)


@settings(deadline=None)
@given(streams())
def test_chunks_match_whole(stream):
    secret_values, chunks = stream
    redactor = Redactor(secret_values)
    assert redact_chunks(redactor, chunks) == redactor.redact_bytes(b"".join(chunks))


@settings(deadline=None)
@given(st.lists(any_secrets, min_size=1, max_size=3), st.lists(st.binary(max_size=20)), st.data())
def test_any_secret(secret_values, chunks, data):
    values = [value.strip() for value in secret_values if len(value.strip()) >= 4]
    data_bytes = b"".join(chunks) + "".join(values).encode()
    cut = data.draw(st.integers(0, len(data_bytes)))
    redactor = Redactor(values)
    assert redact_chunks(redactor, [data_bytes[:cut], data_bytes[cut:]]) == redactor.redact_bytes(data_bytes)
