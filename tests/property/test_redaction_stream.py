"""However a stream is cut into pieces, the same bytes are written, and no secret among them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.events import Redactor

# Few letters, so that secrets overlap, repeat and begin within each other.
secrets = st.lists(st.text("ab\n", min_size=4, max_size=9), min_size=1, max_size=4)
anything = st.text(st.characters(blacklist_categories=["Cs"]), min_size=4)


@st.composite
def streams(draw):
    known = draw(secrets)
    parts = draw(st.lists(st.one_of(st.sampled_from(known), st.text("abc\n", max_size=6)), max_size=10))
    data = "".join(parts).encode()
    cuts = [0, *sorted(draw(st.lists(st.integers(0, len(data)), max_size=8))), len(data)]
    return known, [data[cuts[i] : cuts[i + 1]] for i in range(len(cuts) - 1)]


def written(redactor: Redactor, chunks) -> bytes:
    out, held = b"", b""
    for chunk in chunks:
        ready, held = redactor.redact_partial(held + chunk)
        out += ready
        assert len(held) <= max(redactor.max_secret_bytes - 1, 0)
    return out + redactor.redact_bytes(held)


@settings(deadline=None)
@given(streams())
def test_pieces_are_redacted_like_the_whole(stream):
    known, chunks = stream
    redactor = Redactor(known)
    assert written(redactor, chunks) == redactor.redact_bytes(b"".join(chunks))


@settings(deadline=None)
@given(st.lists(anything, min_size=1, max_size=3), st.lists(st.binary(max_size=20)), st.data())
def test_any_secret_in_any_bytes(known, chunks, data):
    values = [value.strip() for value in known if len(value.strip()) >= 4]
    whole = b"".join(chunks) + "".join(values).encode()
    cut = data.draw(st.integers(0, len(whole)))
    redactor = Redactor(values)
    assert written(redactor, [whole[:cut], whole[cut:]]) == redactor.redact_bytes(whole)
