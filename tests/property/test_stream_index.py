"""Any archive: the index leads to the bytes that tarfile extracts, however many walks drew it and whenever it was
killed; what is no index, or no archive, is said to be none."""

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
from packtrain.indexing import IndexRequest, build_index, tar_scanner
from packtrain.indexing import builder as building
from packtrain.plan import Location
from packtrain.stream.index import Index, IndexDraft, IndexedArchive, write_index

letters = st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="/\\.")
word = st.text(letters, min_size=1, max_size=12).map(lambda text: f"f{text}")
long_word = st.builds(lambda text, count: (text * 200)[:count], word, st.integers(1, 180))
name = st.lists(word | long_word, min_size=1, max_size=3).map(lambda parts: "/".join(parts) + ".bin")
inner_tar = st.lists(st.binary(max_size=600), max_size=3)
FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def tarred(members, form=tarfile.PAX_FORMAT) -> bytes:
    """Members: (name, bytes), or (name, the name that it is a hard link to)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, errors="surrogateescape") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.LNKTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def looks_like_a_tar(parts) -> bytes:
    """A sample whose bytes are headers: walks that begin inside of it are led astray."""
    return tarred([(f"decoy{at}", part) for at, part in enumerate(parts)])


content = st.binary(max_size=3000) | inner_tar.map(looks_like_a_tar) | st.just(b"")


@st.composite
def archives(draw):
    names = draw(st.lists(name, min_size=1, max_size=8))
    members = []
    for one in names:
        earlier = [known for known, data in members if isinstance(data, bytes) and known != one]
        linked = earlier and draw(st.integers(0, 4)) == 0
        members.append((one, draw(st.sampled_from(earlier)) if linked else draw(content)))
    form = draw(st.sampled_from(FORMATS))
    fits = form != tarfile.USTAR_FORMAT or all(_is_short(text) for pair in members for text in (pair[0], pair[1]))
    return tarred(members, form if fits else tarfile.GNU_FORMAT)


def _is_short(text) -> bool:
    return not isinstance(text, str) or len(text.encode()) < 100


def extracted(data: bytes) -> dict[str, bytes]:
    """As tarfile has it; the last of several that have one name stays."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar.getmembers():
            if member.isfile() or member.islnk():
                found[posixpath.normpath(member.name)] = tar.extractfile(member).read()
    return found


def indexed(path: Path, **options) -> Index:
    return build_index(
        IndexRequest([[Location(path.as_uri())]], str, group_files=False, **options), path.with_suffix(".index")
    )


def samples(index: Index, path: Path) -> dict[str, bytes]:
    data = path.read_bytes()
    found = {one.name: data[one.offset : one.offset + one.size] for one in map(index.sample, range(len(index)))}
    assert len(found) == len(index)
    return found


@pytest.fixture(autouse=True, scope="module")
def _many_short_walks():
    """So that small archives, too, are drawn by walks that begin in their middle."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tar_scanner, "_MIN_REGION_BYTES", 512)
        patch.setattr(tar_scanner, "_MAX_CHAIN_MEMBERS", 3)
        patch.setattr(building, "_MIN_THREADS", 6)
        yield


@settings(max_examples=50, deadline=None)
@given(archives())
def test_every_sample_is_what_tarfile_extracts(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tar")
        path.write_bytes(data)
        assert samples(indexed(path), path) == extracted(data)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(word, archives(), min_size=1, max_size=4), st.sampled_from(FORMATS))
def test_tars_in_a_tar_are_the_folders_of_their_files(inner, form):
    data = tarred([(f"{folder}.tar", archive) for folder, archive in inner.items()], form)
    wanted = {f"{folder}/{name}": data for folder, tar in inner.items() for name, data in extracted(tar).items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tar")
        path.write_bytes(data)
        index = indexed(path)
        assert samples(index, path) == wanted
        assert index.class_names == tuple(sorted(inner))
        named = [(index.class_names[one.label], one.name) for one in map(index.sample, range(len(index)))]
        assert all(name.startswith(f"{label}/") for label, name in named)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(name, content, min_size=1, max_size=8), st.binary(max_size=300))
def test_every_sample_of_a_zip(members, before):
    buffer = io.BytesIO(before)
    with zipfile.ZipFile(buffer, "a") as file:
        for one, data in members.items():
            info = zipfile.ZipInfo(one)
            info.extra = b"\x01\x99\x04\x00abcd" if len(data) % 2 else b""
            with file.open(info, "w", force_zip64=len(data) % 3 == 0) as target:
                target.write(data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.zip")
        path.write_bytes(buffer.getvalue())
        if before and not before.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06")):
            with pytest.raises(FailedError, match=r"no tar and no zip|is compressed"):
                indexed(path)
        else:
            assert samples(indexed(path), path) == members


class _Killed(Exception):
    pass


@settings(max_examples=35, deadline=None)
@given(archives(), st.integers(0, 30), st.integers(0, 400), st.booleans())
def test_killed_anywhere_it_goes_on_to_the_same_index(data, reads, torn, damaged):
    with tempfile.TemporaryDirectory() as folder:
        path, target, part = (Path(folder, name) for name in ("a.tar", "a.index", ".a.index.part"))
        path.write_bytes(data)
        wish, left = IndexRequest([[Location(path.as_uri())]], str, group_files=False), [reads]

        def stop() -> None:
            left[0] -= 1
            if left[0] < 0:
                raise _Killed

        try:
            build_index(wish, target, check_cancelled=stop)
        except _Killed:
            assert not target.exists()
        if part.exists():
            kept = bytearray(part.read_bytes()[: -torn or None])
            if damaged and kept:
                kept[torn % len(kept)] ^= 0x55
            part.write_bytes(kept)
        assert samples(build_index(wish, target), path) == extracted(data)
        assert not part.exists()


@settings(max_examples=35, deadline=None)
@given(archives(), st.data())
def test_a_cut_archive_is_said_to_be_cut(data, choice):
    end = len(data.rstrip(b"\0")) // 512 * 512
    cut = choice.draw(st.integers(1, max(1, end)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tar")
        path.write_bytes(data[:cut])
        with pytest.raises(FailedError) as failure:
            indexed(path)
        assert failure.value.kind in ("truncated", "archive_broken")
        assert "a.tar" in str(failure.value)


@settings(max_examples=50, deadline=None)
@given(archives(), st.data())
def test_noise_is_refused_or_indexed_but_never_crashes(data, choice):
    noisy = bytearray(data)
    for at in choice.draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=6)):
        noisy[at] = choice.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tar")
        path.write_bytes(noisy)
        try:
            index = indexed(path)
        except FailedError:
            return
        assert all(index.offsets[at] + index.sizes[at] <= len(noisy) for at in range(len(index)))


rows = st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 33), st.text(max_size=300)), max_size=200)


def drafted(rows) -> IndexDraft:
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
def test_what_is_written_is_read(rows):
    draft = drafted(rows)
    with tempfile.TemporaryDirectory() as folder:
        index = write_index(draft, Path(folder, "a"))
        assert list(index.names()) == list(draft.names)
        read = [index.sample(number) for number in range(len(index))]
        assert [(one.offset, one.size, one.name) for one in read] == [
            (offset, size, name) for (offset, size, _), name in zip(rows, draft.names, strict=True)
        ]
        assert (index.labels.tolist(), index.archives) == (draft.labels.tolist(), draft.archives)


@settings(max_examples=60, deadline=None)
@given(rows, st.data())
def test_a_damaged_index_is_said_to_be_damaged(rows, choice):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        write_index(drafted(rows), path)
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
def test_noise_is_no_index(noise):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        path.write_bytes(noise)
        with pytest.raises(FormatError):
            Index.open(path)
