"""Whether what arrived is the data: digests while reading, and error pages that pose as files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from packtrain.errors import FailedError
from packtrain.plan import Digest
from packtrain.transfer import crc32c

HEAD_BYTES = 1024  # enough to tell what a file is
# They tell an accident, but not whether two files of somebody's are the same.
WEAK = frozenset({"crc32c", "crc32", "adler32"})
_BLOCK = 1 << 20
_OF_ZLIB = {"adler32": 1, "crc32": 0}  # and what they begin with
_ARCHIVES = (".tar", ".gz", ".tgz", ".bz2", ".tbz", ".tbz2", ".xz", ".txz", ".zip", ".7z", ".rar", ".zst")
_BINARY = (
    *_ARCHIVES, ".npz", ".npy", ".pt", ".pth", ".bin", ".h5", ".hdf5", ".parquet", ".safetensors", ".sif",
    ".png", ".jpg", ".jpeg", ".pkl", ".onnx",
)  # fmt: skip
# The oldest pickles are text, and a .bin is whatever its maker likes.
_NEVER_TEXT = tuple(suffix for suffix in _BINARY if suffix not in (".pt", ".pth", ".bin", ".pkl"))
# gzip, compress, bzip2, xz, zip (with files, empty, in parts), 7z, rar, zstd and its frames to be skipped, lz4, and
# what unpacks itself. A tar is known by its header.
_BEGINNINGS = (
    b"\x1f\x8b", b"\x1f\x9d", b"BZh", b"\xfd7zXZ\0", b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08", b"7z\xbc\xaf\x27\x1c",
    b"Rar!\x1a\x07", b"\x28\xb5\x2f\xfd", *(bytes((at, 0x2A, 0x4D, 0x18)) for at in range(0x50, 0x60)),
    b"\x04\x22\x4d\x18", b"MZ",
)  # fmt: skip
_NO_TEXT = re.compile("[\0-\x08\x0e-\x1a\x1c-\x1f]")
_MARKUP = (".html", ".htm", ".xhtml", ".xml", ".svg", ".txt", ".md", ".php")
_HTML = re.compile(rb"\s*(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body|title)\b", re.IGNORECASE | re.DOTALL)
_XML = re.compile(rb"\s*<(\?xml|Error|[A-Za-z]+Response)\b")
_JSON = re.compile(rb"\s*[{\[]\s*([\"{\[]|[}\]]\s*$)")
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<(script|style).*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_QUOTE_LENGTH = 80


class Digests:
    """sha256 of what passes by (unless it would be in vain), and another algorithm where one is demanded."""

    def __init__(self, *wanted: Digest | None, sha256: bool = True) -> None:
        names = {digest.algorithm for digest in wanted if digest is not None} | ({"sha256"} if sha256 else set())
        self._running = {name: _algorithm(name) for name in names}

    def update(self, data: bytes | memoryview) -> None:
        for running in self._running.values():
            running.update(data)

    def has(self, algorithm: str) -> bool:
        return algorithm in self._running

    def value(self, algorithm: str) -> str:
        return str(self._running[algorithm].hexdigest())


def _algorithm(name: str) -> Any:
    import hashlib

    if name == "crc32c":
        return crc32c.begun()
    if name in _OF_ZLIB:
        return _OfZlib(name)
    if name not in ("sha256", "md5"):
        raise FailedError("unsupported", f"the digest {name!r} is not one of sha256, md5, crc32c, crc32, adler32")
    return hashlib.new(name, usedforsecurity=False)


class _OfZlib:
    """As of hashlib."""

    def __init__(self, name: str) -> None:
        self._name, self._value = name, _OF_ZLIB[name]

    def update(self, data: bytes | memoryview) -> None:
        import zlib

        self._value = getattr(zlib, self._name)(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def affordable(algorithm: str, size: int | None, unasked: bool = False) -> bool:
    """Whether so many bytes can be digested without anybody waiting for it; `unasked`: only a server stated it."""
    most = crc32c.MOST_UNASKED if unasked else crc32c.MOST_BYTES
    return algorithm != "crc32c" or crc32c.is_fast() or (size is not None and size <= most)


def refuse_unaffordable(name: str, digest: Digest | None, size: int) -> None:
    """A digest that the user states is computed, or it is an error; never left out."""
    if digest is not None and not affordable(digest.algorithm, size):
        most = crc32c.MOST_BYTES >> 30
        words = f"{name} has {size} bytes, and to compute a crc32c of more than {most} GiB would take too long"
        raise FailedError("unsupported", f"{words} without a module such as google-crc32c: give its sha256 or md5")


def sha256_of(path: Path) -> str:
    return digest_of_file(path, "sha256")


def digest_of_file(path: Path, algorithm: str) -> str:
    digests = Digests(Digest(algorithm, ""))
    with open(path, "rb") as file:
        while True:
            block = file.read(_BLOCK)
            if not block:
                return digests.value(algorithm)
            digests.update(block)


def why_not_the_data(name: str, head: bytes, content_type: str | None) -> str | None:
    """What is wrong with a file of this name that begins so; None if nothing is.

    Judged by content: a page is a page only if its bytes are one, whatever the server calls it.
    """
    suffix = name.lower()
    if suffix.endswith(_ARCHIVES) and not head:
        return f"nothing came instead of {name}: the body is empty"
    page = _page(head)
    if page is None or suffix.endswith(_MARKUP):
        return None
    if suffix.endswith(_BINARY) or (page == "an HTML page" and "html" in (content_type or "")):
        return f'{page} came instead of {name}: "{quoted(head)}"'
    return None


def why_not_of_its_form(name: str, head: bytes, proven: bool) -> str | None:
    """Of what is no page: what else is wrong with it. `proven`: a digest will tell whether it is right.

    An archive of another form than its name says is as good: whoever unpacks it looks for himself."""
    suffix = name.lower()
    if head and suffix.endswith(_NEVER_TEXT) and _is_text(head):
        return f'a text came instead of {name}: "{quoted(head)}"'
    if proven or not suffix.endswith(_ARCHIVES) or head.startswith(_BEGINNINGS):
        return None
    if _is_tar(head, empty=suffix.endswith(".tar")):
        return None
    words = f"what came instead of {name} is no archive: it begins with {head[:8]!r}"
    return f"{words}; if it is right nevertheless, state its sha256"


def _is_text(head: bytes) -> bool:
    """The last character may be cut."""
    text = head.decode("utf-8", "ignore")
    return len(text.encode()) > len(head) - 4 and not _NO_TEXT.search(text)


def _is_tar(head: bytes, empty: bool) -> bool:
    from packtrain.transfer.archive.tar_header import END, HeaderError, parse

    block = head[: len(END)]
    if len(block) < len(END) or not block.strip(b"\0"):
        return empty and len(block) == len(END)
    try:
        return block[257:262] == b"ustar" or bool(parse(block))
    except HeaderError:
        return False


def _page(head: bytes) -> str | None:
    for pattern, words in ((_HTML, "an HTML page"), (_XML, "an XML document"), (_JSON, "a JSON document")):
        if pattern.match(head):
            return words
    return None


def quoted(head: bytes) -> str:
    """A page's title, or its first words."""
    from html import unescape

    text = head.decode("utf-8", "replace")
    title = _TITLE.search(text)
    words = title.group(1) if title else _TAG.sub(" ", text)
    plain = " ".join(unescape(words).split())
    return plain if len(plain) <= _QUOTE_LENGTH else plain[: _QUOTE_LENGTH - 1] + "…"
