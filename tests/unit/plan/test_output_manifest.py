"""Manifests of outputs: any name survives, and nothing else than a complete manifest is read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packtrain.errors import FormatError
from packtrain.plan import ManifestEntry, OutputManifest

names = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1).filter(
    lambda name: not name.startswith("/") and name.strip("./") and ".." not in name.split("/")
)
manifests = st.builds(
    OutputManifest,
    st.text(),
    st.text(),
    st.text(),
    st.lists(st.builds(ManifestEntry, names, st.integers(0), st.text())).map(tuple),
)
MANIFEST = OutputManifest("r", "0", "agent-1", (ManifestEntry("a", 1, "0"), ManifestEntry("b/c", 2, "1")))


@given(manifests)
def test_round_trip(manifest):
    assert OutputManifest.from_text(manifest.to_text()) == manifest


def test_unknown_keys_are_ignored():
    lines = [json.dumps({**json.loads(line), "later": 1}) for line in MANIFEST.to_text().splitlines()]
    assert OutputManifest.from_text("\n".join(lines)) == MANIFEST


@pytest.mark.parametrize("n_bytes", [0, 1, 60, len(MANIFEST.to_text()) - 5])
def test_truncated_manifest_is_rejected(n_bytes):
    with pytest.raises(FormatError, match="not a manifest of outputs"):
        OutputManifest.from_text(MANIFEST.to_text()[:n_bytes])


def test_missing_line_is_rejected():
    with pytest.raises(FormatError, match="it lists 1 of 2 outputs"):
        OutputManifest.from_text("\n".join(MANIFEST.to_text().splitlines()[:2]))


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a\0b", "."])
def test_path_outside_of_the_destination_is_rejected(path):
    text = OutputManifest("r", "0", "e", (ManifestEntry(path, 1, "0"),)).to_text()
    with pytest.raises(FormatError, match="is not a name below the output folder"):
        OutputManifest.from_text(text)


@pytest.mark.parametrize("change", [{"version": 2}, {"outputs": "2"}])
def test_other_header_is_rejected(change):
    header, *lines = MANIFEST.to_text().splitlines()
    with pytest.raises(FormatError):
        OutputManifest.from_text("\n".join([json.dumps({**json.loads(header), **change}), *lines]))
