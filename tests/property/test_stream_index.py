"""Properties of indexes: they match what tarfile extracts, after any walks and kills; bad files are rejected."""

from __future__ import annotations

import io
import posixpath
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.errors import FailedError, FormatError
from packtrain.indexing import IndexRequest, build_index
from packtrain.indexing.scan_settings import ScanSettings
from packtrain.plan import Location
from packtrain.stream.index import Index, IndexedArchive
from packtrain.stream.index_writer import IndexDraft, write_index

letters = st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="/\\.")
word = st.text(letters, min_size=1, max_size=12).map(lambda text: f"f{text}")
long_word = st.builds(lambda text, count: (text * 200)[:count], word, st.integers(1, 180))
name = st.lists(word | long_word, min_size=1, max_size=3).map(lambda parts: "/".join(parts) + ".bin")
inner_tar = st.lists(st.binary(max_size=600), max_size=3)
FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def make_tar(members, tar_format=tarfile.PAX_FORMAT) -> bytes:
    """Return a tar. Members are (name, content), or (name, target name) for a hard link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format, errors="surrogateescape") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.LNKTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def make_decoy(parts) -> bytes:
    """Return a sample that contains tar headers, which mislead walks that start inside it."""
    return make_tar([(f"decoy{number}", part) for number, part in enumerate(parts)])


content = st.binary(max_size=3000) | inner_tar.map(make_decoy) | st.just(b"")


@st.composite
def archives(draw):
    names = draw(st.lists(name, min_size=1, max_size=8))
    members = []
    for member_name in names:
        targets = [target for target, data in members if isinstance(data, bytes) and target != member_name]
        is_link = targets and draw(st.integers(0, 4)) == 0
        members.append((member_name, draw(st.sampled_from(targets)) if is_link else draw(content)))
    tar_format = draw(st.sampled_from(FORMATS))
    fits = tar_format != tarfile.USTAR_FORMAT or all(_is_short(text) for member in members for text in member)
    return make_tar(members, tar_format if fits else tarfile.GNU_FORMAT)


def _is_short(text) -> bool:
    return not isinstance(text, str) or len(text.encode()) < 100


def extract(data: bytes) -> dict[str, bytes]:
    """Extract with tarfile. Of several members with the same name, the last one counts."""
    contents: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar.getmembers():
            if member.isfile() or member.islnk():
                contents[posixpath.normpath(member.name)] = tar.extractfile(member).read()
    return contents


# Walks start in the middle of small archives, too.
MANY_SHORT_WALKS = ScanSettings(min_region_bytes=512, max_chain_members=3, min_threads=6)


def index_file(path: Path) -> Index:
    request = IndexRequest([[Location(path.as_uri())]], str, group_files=False, scan=MANY_SHORT_WALKS)
    return build_index(request, path.with_suffix(".index"))


def read_samples(index: Index, path: Path) -> dict[str, bytes]:
    data, samples = path.read_bytes(), map(index.sample, range(len(index)))
    contents = {sample.name: data[sample.offset : sample.offset + sample.size] for sample in samples}
    assert len(contents) == len(index)
    return contents


@settings(max_examples=50, deadline=None)
@given(archives())
def test_samples_match_tarfile(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tar")
        path.write_bytes(data)
        assert read_samples(index_file(path), path) == extract(data)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(word, archives(), min_size=1, max_size=4), st.sampled_from(FORMATS))
def test_nested_tars_are_classes(inner, tar_format):
    data = make_tar([(f"{folder}.tar", archive) for folder, archive in inner.items()], tar_format)
    expected = {f"{folder}/{name}": data for folder, tar in inner.items() for name, data in extract(tar).items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tar")
        path.write_bytes(data)
        index = index_file(path)
        assert read_samples(index, path) == expected
        assert index.class_names == tuple(sorted(inner))
        samples = map(index.sample, range(len(index)))
        assert all(sample.name.startswith(f"{index.class_names[sample.label]}/") for sample in samples)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(name, content, min_size=1, max_size=8), st.binary(max_size=300))
def test_samples_match_zipfile(members, leading):
    """Bytes before the zip are allowed if they look like one."""
    buffer = io.BytesIO(leading)
    with zipfile.ZipFile(buffer, "a") as file:
        for member_name, data in members.items():
            info = zipfile.ZipInfo(member_name)
            info.extra = b"\x01\x99\x04\x00abcd" if len(data) % 2 else b""
            with file.open(info, "w", force_zip64=len(data) % 3 == 0) as target:
                target.write(data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.zip")
        path.write_bytes(buffer.getvalue())
        if leading and not leading.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06")):
            with pytest.raises(FailedError, match=r"neither a tar nor a zip|is compressed"):
                index_file(path)
        else:
            assert read_samples(index_file(path), path) == members


class _Killed(Exception):
    pass


@settings(max_examples=35, deadline=None)
@given(archives(), st.integers(0, 30), st.integers(0, 400), st.booleans())
def test_resume_after_a_kill(data, n_reads, n_torn_bytes, is_damaged):
    with tempfile.TemporaryDirectory() as folder:
        path, index_path, resume_path = (Path(folder, name) for name in ("a.tar", "a.index", ".a.index.scan"))
        path.write_bytes(data)
        request = IndexRequest([[Location(path.as_uri())]], str, group_files=False, scan=MANY_SHORT_WALKS)
        reads_left = n_reads

        def check_cancelled() -> None:
            nonlocal reads_left
            reads_left -= 1
            if reads_left < 0:
                raise _Killed

        try:
            build_index(request, index_path, check_cancelled=check_cancelled)
        except _Killed:
            assert not index_path.exists()
        if resume_path.exists():
            saved = bytearray(resume_path.read_bytes()[: -n_torn_bytes or None])
            if is_damaged and saved:
                saved[n_torn_bytes % len(saved)] ^= 0x55
            resume_path.write_bytes(saved)
        assert read_samples(build_index(request, index_path), path) == extract(data)
        assert not resume_path.exists()


@settings(max_examples=35, deadline=None)
@given(archives(), st.data())
def test_truncated_archive(data, choice):
    end = len(data.rstrip(b"\0")) // 512 * 512
    length = choice.draw(st.integers(1, max(1, end)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tar")
        path.write_bytes(data[:length])
        with pytest.raises(FailedError) as failure:
            index_file(path)
        assert failure.value.kind in ("truncated", "archive_broken")
        assert "a.tar" in str(failure.value)


@settings(max_examples=50, deadline=None)
@given(archives(), st.data())
def test_noise_never_crashes(data, choice):
    """An archive with random bytes is rejected, or indexed within its size."""
    noisy = bytearray(data)
    for offset in choice.draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=6)):
        noisy[offset] = choice.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tar")
        path.write_bytes(noisy)
        try:
            index = index_file(path)
        except FailedError:
            return
        assert all(offset + size <= len(noisy) for offset, size in zip(index.offsets, index.sizes, strict=True))


rows = st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 33), st.text(max_size=300)), max_size=200)


def make_draft(rows) -> IndexDraft:
    draft = IndexDraft((IndexedArchive("https://data.example/a.tar", 1 << 50, '"tag"'),), ("cat", "dög"))
    for number, (offset, size, _) in enumerate(rows):
        draft.offsets.append(offset)
        draft.sizes.append(size)
        draft.labels.append(number % 2)
        draft.archive_ids.append(0)
    draft.names = [text.encode("utf-8", "replace").decode() for _, _, text in rows]
    return draft


@settings(max_examples=40, deadline=None)
@given(rows)
def test_index_round_trip(rows):
    draft = make_draft(rows)
    with tempfile.TemporaryDirectory() as folder:
        index = write_index(draft, Path(folder, "a"))
        assert list(index.names()) == list(draft.names)
        samples = [index.sample(number) for number in range(len(index))]
        assert [(sample.offset, sample.size, sample.name) for sample in samples] == [
            (offset, size, name) for (offset, size, _), name in zip(rows, draft.names, strict=True)
        ]
        assert (index.labels.tolist(), index.archives) == (draft.labels.tolist(), draft.archives)


@settings(max_examples=60, deadline=None)
@given(rows, st.data())
def test_damaged_index(rows, choice):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        write_index(make_draft(rows), path)
        data = bytearray(path.read_bytes())
        if choice.draw(st.booleans()):
            data[choice.draw(st.integers(0, len(data) - 1))] ^= choice.draw(st.integers(1, 255))
        else:
            del data[choice.draw(st.integers(0, len(data) - 1)) :]
        path.write_bytes(data)
        with pytest.raises(FormatError) as error:
            Index.open(path)
        assert str(path) in str(error.value)


@given(st.binary(max_size=400))
def test_noise_is_not_an_index(noise):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        path.write_bytes(noise)
        with pytest.raises(FormatError):
            Index.open(path)
