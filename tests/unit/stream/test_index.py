"""Tests of the index file: its size, its columns, and errors of damaged files."""

from __future__ import annotations

import json
import pickle
import random
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from packtrain.errors import FormatError
from packtrain.stream.index import LAYOUT_FILES, Index, IndexedArchive
from packtrain.stream.index_checksums import checksums_from_index, pack_checksums
from packtrain.stream.index_writer import IndexDraft, write_index, write_relocated_index
from packtrain.transfer.integrity.block_checksums import make_checksums

ARCHIVE = IndexedArchive("https://data.example/train.tar", 137_853_803_520, '"5f3c-1"')


def make_draft(n_classes: int, per_class: int) -> IndexDraft:
    """Return names, sizes and offsets like those of ImageNet."""
    rng, offset = random.Random(1), 1 << 36
    draft = IndexDraft((ARCHIVE,), tuple(f"n{1440764 + 3001 * number:08d}" for number in range(n_classes)))
    names = []
    for label, name in enumerate(draft.class_names):
        for number in sorted(rng.sample(range(30_000), per_class), key=str):
            size = rng.randint(5_000, 210_000)
            draft.offsets.append(offset + 512)
            draft.sizes.append(size)
            draft.labels.append(label)
            draft.archive_ids.append(0)
            names.append(f"{name}/{name}_{number}.JPEG")
            offset += 512 + size + -size % 512
    draft.names = names
    return draft


def test_sample_takes_less_than_30_bytes(tmp_path):
    draft = make_draft(n_classes=40, per_class=1281)
    index = write_index(draft, tmp_path / "index")
    assert (tmp_path / "index").stat().st_size < 24 * len(index)
    assert list(index.names()) == list(draft.names)
    columns = index.offsets, index.sizes, index.labels, index.archive_ids
    assert [column.itemsize for column in columns] == [8, 4, 1, 1]


def test_columns(tmp_path):
    draft = make_draft(3, 10)
    index = write_index(draft, tmp_path / "index")
    assert index.offsets.tolist() == draft.offsets.tolist()
    assert index.labels.tolist() == draft.labels.tolist()
    assert index.sample(-1) == index.sample(29)
    assert index.parts(4) == [("JPEG", draft.offsets[4], draft.sizes[4])]
    with pytest.raises(IndexError, match="sample 30 of 30"):
        index.sample(30)


def test_index_is_pickled_by_path(tmp_path):
    index = write_index(make_draft(2, 5), tmp_path / "index")
    other = pickle.loads(pickle.dumps(index))
    assert (other.samples_fingerprint, list(other.names())) == (index.samples_fingerprint, list(index.names()))


def test_samples_fingerprint(tmp_path):
    draft = make_draft(2, 5)
    fingerprints = [write_index(draft, tmp_path / name).samples_fingerprint for name in "ab"]
    draft.sizes[3] += 1
    fingerprints.append(write_index(draft, tmp_path / "c").samples_fingerprint)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_fingerprint_depends_on_the_urls(tmp_path):
    """`samples_fingerprint` does not."""
    index = write_index(make_draft(2, 5), tmp_path / "index")
    for changed in ({"mirrors": ("https://m/t.tar",)}, {"url": "https://b/t.tar"}, {"etag": '"new"'}):
        archives = tuple(replace(archive, **changed) for archive in index.archives)
        other = write_relocated_index(index, archives, tmp_path / "other")
        assert other.samples_fingerprint == index.samples_fingerprint and other.fingerprint != index.fingerprint


def test_relocated_index(tmp_path):
    index = write_index(make_draft(2, 5), tmp_path / "index")
    elsewhere = IndexedArchive("s3://bucket/train.tar", ARCHIVE.size)
    moved = write_relocated_index(index, (elsewhere,), tmp_path / "moved")
    assert (moved.archives, list(moved.names())) == ((elsewhere,), list(index.names()))
    assert Index.open(tmp_path / "moved").sizes.tolist() == index.sizes.tolist()


def test_checksums_round_trip(tmp_path):
    (tmp_path / "data.tar").write_bytes(bytes(10_000))
    checksums = make_checksums(tmp_path / "data.tar", 4096)
    draft = make_draft(1, 2)
    draft.archives = (replace(ARCHIVE, size=10_000),)
    assert write_index(draft, tmp_path / "without").block_sizes.tolist() == []
    draft.block_sizes, draft.digests = pack_checksums([checksums])
    stored = checksums_from_index(write_index(draft, tmp_path / "index"))
    assert stored == (replace(checksums, file_sha256=None, name=""),)


def test_urls_of_files(tmp_path):
    draft = make_draft(1, 2)
    draft.layout, draft.archives = LAYOUT_FILES, (IndexedArchive("https://data.example/train/", 5),)
    draft.names = ["cat/1 ü.jpg", "cat/2.jpg"]
    assert write_index(draft, tmp_path / "index").sample_url(0) == "https://data.example/train/cat/1%20%C3%BC.jpg"


def test_failed_write_leaves_nothing(tmp_path):
    (tmp_path / "index").mkdir()
    with pytest.raises(OSError):
        write_index(make_draft(1, 2), tmp_path / "index")
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it has only 0 bytes"),
        (b"x" * 100, "is not an index of packtrain; create one with `packtrain index`"),
        (b"PACKTRAIN-INDEX\n" + bytes(40), "is damaged"),
    ],
)
def test_file_that_is_not_an_index(tmp_path, data, message):
    path = tmp_path / "foreign"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message):
        Index.open(path)


def rewrite_header(path: Path, **changes: object) -> None:
    """Change keys of the header, and correct its checksum."""
    data = path.read_bytes()
    length = struct.unpack_from("<I", data, 16)[0]
    header = {**json.loads(data[24 : 24 + length]), **changes}
    text = json.dumps(header).encode()
    path.write_bytes(data[:16] + struct.pack("<II", len(text), zlib.crc32(text)) + text + data[24 + length :])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 1}, "version 1, and this packtrain reads 2"),
        ({"n_samples": 11}, "has the wrong length"),
        ({"layout": "other"}, "incomplete"),
        ({"columns": []}, "damaged"),
        ({"columns": [{"name": "offset", "type": "Q", "offset": 1 << 40, "count": 10}]}, "not inside the file"),
        ({"columns": [{"name": "offset", "type": "q", "offset": 0, "count": 10}]}, "not inside the file"),
        ({"surprise": 1}, "unknown key 'surprise'"),
    ],
)
def test_inconsistent_header(tmp_path, changes, message):
    path = tmp_path / "index"
    write_index(make_draft(2, 5), path)
    rewrite_header(path, **changes)
    with pytest.raises(FormatError, match=message):
        Index.open(path)
