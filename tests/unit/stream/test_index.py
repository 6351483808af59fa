"""The index as a file: how large, how it is read, what is said of one that is none."""

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
from packtrain.stream.index import LAYOUT_FILES, Index, IndexDraft, IndexedArchive, write_index, write_relocated_index

ARCHIVE = IndexedArchive("https://data.example/train.tar", 137_853_803_520, '"5f3c-1"')


def like_imagenet(classes: int, per_class: int) -> IndexDraft:
    """Names and sizes as ImageNet has them, offsets as far into the archive as its own."""
    dice, offset = random.Random(1), 1 << 36
    draft = IndexDraft((ARCHIVE,), tuple(f"n{1440764 + 3001 * number:08d}" for number in range(classes)))
    names = []
    for label, name in enumerate(draft.class_names):
        for number in sorted(dice.sample(range(30_000), per_class), key=str):
            size = dice.randint(5_000, 210_000)
            draft.offsets.append(offset + 512)
            draft.sizes.append(size)
            draft.labels.append(label)
            draft.archive_ids.append(0)
            names.append(f"{name}/{name}_{number}.JPEG")
            offset += 512 + size + -size % 512
    draft.names = names
    return draft


def test_a_sample_of_imagenet_takes_less_than_30_bytes(tmp_path):
    draft = like_imagenet(classes=40, per_class=1281)
    index = write_index(draft, tmp_path / "index")
    assert (tmp_path / "index").stat().st_size < 24 * len(index)
    assert list(index.names()) == list(draft.names)
    columns = index.offsets, index.sizes, index.labels, index.archive_ids
    assert [column.itemsize for column in columns] == [8, 4, 1, 1]


def test_columns_are_numbers_as_they_stand_in_the_file(tmp_path):
    draft = like_imagenet(3, 10)
    index = write_index(draft, tmp_path / "index")
    assert index.offsets.tolist() == draft.offsets.tolist()
    assert index.labels.tolist() == draft.labels.tolist()
    assert index.sample(-1) == index.sample(29)
    assert index.parts(4) == [("JPEG", draft.offsets[4], draft.sizes[4])]
    with pytest.raises(IndexError, match="sample 30 of 30"):
        index.sample(30)


def test_an_index_goes_to_other_processes_by_its_path(tmp_path):
    index = write_index(like_imagenet(2, 5), tmp_path / "index")
    other = pickle.loads(pickle.dumps(index))
    assert (other.samples_fingerprint, list(other.names())) == (index.samples_fingerprint, list(index.names()))


def test_the_mark_tells_indexes_apart(tmp_path):
    draft = like_imagenet(2, 5)
    marks = [write_index(draft, tmp_path / name).samples_fingerprint for name in "ab"]
    draft.sizes[3] += 1
    marks.append(write_index(draft, tmp_path / "c").samples_fingerprint)
    assert marks[0] == marks[1] != marks[2]


def test_the_mark_is_of_the_samples_and_the_stamp_of_where_they_are(tmp_path):
    index = write_index(like_imagenet(2, 5), tmp_path / "index")
    for changed in ({"mirrors": ("https://m/t.tar",)}, {"url": "https://b/t.tar"}, {"etag": '"new"'}):
        other = write_relocated_index(
            index, tuple(replace(one, **changed) for one in index.archives), tmp_path / "other"
        )
        assert other.samples_fingerprint == index.samples_fingerprint and other.fingerprint != index.fingerprint


def test_bound_to_another_place(tmp_path):
    index = write_index(like_imagenet(2, 5), tmp_path / "index")
    elsewhere = IndexedArchive("s3://bucket/train.tar", ARCHIVE.size)
    moved = write_relocated_index(index, (elsewhere,), tmp_path / "moved")
    assert (moved.archives, list(moved.names())) == ((elsewhere,), list(index.names()))
    assert Index.open(tmp_path / "moved").sizes.tolist() == index.sizes.tolist()


def test_addresses_of_files(tmp_path):
    draft = like_imagenet(1, 2)
    draft.layout, draft.archives = LAYOUT_FILES, (IndexedArchive("https://data.example/train/", 5),)
    draft.names = ["cat/1 ü.jpg", "cat/2.jpg"]
    assert write_index(draft, tmp_path / "index").sample_url(0) == "https://data.example/train/cat/1%20%C3%BC.jpg"


def test_nothing_is_left_when_it_cannot_be_written(tmp_path):
    (tmp_path / "index").mkdir()
    with pytest.raises(OSError):
        write_index(like_imagenet(1, 2), tmp_path / "index")
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it has 0 bytes only"),
        (b"x" * 100, "is no index of packtrain; `packtrain index` makes one"),
        (b"PACKTRAIN-INDEX\n" + bytes(40), "is damaged"),
    ],
)
def test_what_is_no_index(tmp_path, data, said):
    path = tmp_path / "foreign"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=said):
        Index.open(path)


def rewritten(path: Path, **changes: object) -> None:
    """The same file with another document, whose checksum is right."""
    data = path.read_bytes()
    length = struct.unpack_from("<I", data, 16)[0]
    document = {**json.loads(data[24 : 24 + length]), **changes}
    text = json.dumps(document).encode()
    path.write_bytes(data[:16] + struct.pack("<II", len(text), zlib.crc32(text)) + text + data[24 + length :])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 2}, "version 2; this packtrain reads 1"),
        ({"samples": 11}, "not as long as it should be"),
        ({"layout": "other"}, "incomplete"),
        ({"columns": []}, "damaged"),
        ({"columns": [{"name": "offset", "type": "Q", "at": 1 << 40, "count": 10}]}, "not inside of it"),
        ({"columns": [{"name": "offset", "type": "q", "at": 0, "count": 10}]}, "not inside of it"),
        ({"surprise": 1}, "unknown key 'surprise'"),
    ],
)
def test_documents_that_promise_what_is_not_there(tmp_path, changes, said):
    path = tmp_path / "index"
    write_index(like_imagenet(2, 5), path)
    rewritten(path, **changes)
    with pytest.raises(FormatError, match=said):
        Index.open(path)
