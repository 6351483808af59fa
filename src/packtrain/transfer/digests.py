"""Whether what arrived is the data: digests while reading, and error pages that pose as files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from packtrain.errors import FailedError
from packtrain.plan import Digest
from packtrain.transfer import crc32c

SNIFF_BYTES = 1024  # enough to tell what a file is
# They tell an accident, but not whether two files of somebody's are the same.
WEAK_ALGORITHMS = frozenset({"crc32c", "crc32", "adler32"})
_READ_BYTES = 1 << 20
_ZLIB_INITIAL_VALUES = {"adler32": 1, "crc32": 0}  # and what they begin with
_ARCHIVE_SUFFIXES = (".tar", ".gz", ".tgz", ".bz2", ".tbz", ".tbz2", ".xz", ".txz", ".zip", ".7z", ".rar", ".zst")
_BINARY_SUFFIXES = (
    *_ARCHIVE_SUFFIXES, ".npz", ".npy", ".pt", ".pth", ".bin", ".h5", ".hdf5", ".parquet", ".safetensors", ".sif",
    ".png", ".jpg", ".jpeg", ".pkl", ".onnx",
)  # fmt: skip
# The oldest pickles are text, and a .bin is whatever its maker likes.
_NEVER_TEXT_SUFFIXES = tuple(suffix for suffix in _BINARY_SUFFIXES if suffix not in (".pt", ".pth", ".bin", ".pkl"))
# gzip, compress, bzip2, xz, zip (with files, empty, in parts), 7z, rar, zstd and its frames to be skipped, lz4, and
# what unpacks itself. A tar is known by its header.
_ARCHIVE_MAGIC = (
    b"\x1f\x8b", b"\x1f\x9d", b"BZh", b"\xfd7zXZ\0", b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08", b"7z\xbc\xaf\x27\x1c",
    b"Rar!\x1a\x07", b"\x28\xb5\x2f\xfd", *(bytes((at, 0x2A, 0x4D, 0x18)) for at in range(0x50, 0x60)),
    b"\x04\x22\x4d\x18", b"MZ",
)  # fmt: skip
_CONTROL_CHARS = re.compile("[\0-\x08\x0e-\x1a\x1c-\x1f]")
_MARKUP_SUFFIXES = (".html", ".htm", ".xhtml", ".xml", ".svg", ".txt", ".md", ".php")
_HTML_PATTERN = re.compile(rb"\s*(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body|title)\b", re.IGNORECASE | re.DOTALL)
_XML_PATTERN = re.compile(rb"\s*<(\?xml|Error|[A-Za-z]+Response)\b")
_JSON_PATTERN = re.compile(rb"\s*[{\[]\s*([\"{\[]|[}\]]\s*$)")
_TITLE_PATTERN = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_TAG_PATTERN = re.compile(r"<(script|style).*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_MAX_EXCERPT_CHARS = 80


class Digests:
    """sha256 of what passes by (unless it would be in vain), and another algorithm where one is demanded."""

    def __init__(self, *expected: Digest | None, sha256: bool = True) -> None:
        names = {digest.algorithm for digest in expected if digest is not None} | ({"sha256"} if sha256 else set())
        self._hashers = {name: _new_hasher(name) for name in names}

    def update(self, data: bytes | memoryview) -> None:
        for running in self._hashers.values():
            running.update(data)

    def has(self, algorithm: str) -> bool:
        return algorithm in self._hashers

    def hexdigest(self, algorithm: str) -> str:
        return str(self._hashers[algorithm].hexdigest())


def _new_hasher(algorithm: str) -> Any:
    import hashlib

    if algorithm == "crc32c":
        return crc32c.new_crc32c()
    if algorithm in _ZLIB_INITIAL_VALUES:
        return _ZlibHasher(algorithm)
    if algorithm not in ("sha256", "md5"):
        raise FailedError("unsupported", f"the digest {algorithm!r} is not one of sha256, md5, crc32c, crc32, adler32")
    return hashlib.new(algorithm, usedforsecurity=False)


class _ZlibHasher:
    """As of hashlib."""

    def __init__(self, name: str) -> None:
        self._name, self._value = name, _ZLIB_INITIAL_VALUES[name]

    def update(self, data: bytes | memoryview) -> None:
        import zlib

        self._value = getattr(zlib, self._name)(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def is_digest_affordable(algorithm: str, size: int | None, from_server: bool = False) -> bool:
    """Whether so many bytes can be digested without anybody waiting for it; `unasked`: only a server stated it."""
    most = crc32c.MAX_PURE_PYTHON_UNREQUESTED_BYTES if from_server else crc32c.MAX_PURE_PYTHON_BYTES
    return algorithm != "crc32c" or crc32c.has_native_module() or (size is not None and size <= most)


def check_digest_affordable(name: str, digest: Digest | None, size: int) -> None:
    """A digest that the user states is computed, or it is an error; never left out."""
    if digest is not None and not is_digest_affordable(digest.algorithm, size):
        most = crc32c.MAX_PURE_PYTHON_BYTES >> 30
        words = f"{name} has {size} bytes, and to compute a crc32c of more than {most} GiB would take too long"
        raise FailedError("unsupported", f"{words} without a module such as google-crc32c: give its sha256 or md5")


def sha256_file(path: Path) -> str:
    return hash_file(path, "sha256")


def hash_file(path: Path, algorithm: str) -> str:
    digests = Digests(Digest(algorithm, ""))
    with open(path, "rb") as file:
        while True:
            block = file.read(_READ_BYTES)
            if not block:
                return digests.hexdigest(algorithm)
            digests.update(block)


def detect_error_page(name: str, head: bytes, content_type: str | None) -> str | None:
    """What is wrong with a file of this name that begins so; None if nothing is.

    Judged by content: a page is a page only if its bytes are one, whatever the server calls it.
    """
    suffix = name.lower()
    if suffix.endswith(_ARCHIVE_SUFFIXES) and not head:
        return f"nothing came instead of {name}: the body is empty"
    page = _detect_document_type(head)
    if page is None or suffix.endswith(_MARKUP_SUFFIXES):
        return None
    if suffix.endswith(_BINARY_SUFFIXES) or (page == "an HTML page" and "html" in (content_type or "")):
        return f'{page} came instead of {name}: "{extract_excerpt(head)}"'
    return None


def detect_wrong_format(name: str, head: bytes, has_trusted_digest: bool) -> str | None:
    """Of what is no page: what else is wrong with it. `proven`: a digest will tell whether it is right.

    An archive of another form than its name says is as good: whoever unpacks it looks for himself."""
    suffix = name.lower()
    if head and suffix.endswith(_NEVER_TEXT_SUFFIXES) and _is_text(head):
        return f'a text came instead of {name}: "{extract_excerpt(head)}"'
    if has_trusted_digest or not suffix.endswith(_ARCHIVE_SUFFIXES) or head.startswith(_ARCHIVE_MAGIC):
        return None
    if _is_tar(head, allow_empty=suffix.endswith(".tar")):
        return None
    words = f"what came instead of {name} is no archive: it begins with {head[:8]!r}"
    return f"{words}; if it is right nevertheless, state its sha256"


def _is_text(head: bytes) -> bool:
    """The last character may be cut."""
    text = head.decode("utf-8", "ignore")
    return len(text.encode()) > len(head) - 4 and not _CONTROL_CHARS.search(text)


def _is_tar(head: bytes, allow_empty: bool) -> bool:
    from packtrain.transfer.archive.tar_header import END_BLOCK, TarHeaderError, parse_header

    block = head[: len(END_BLOCK)]
    if len(block) < len(END_BLOCK) or not block.strip(b"\0"):
        return allow_empty and len(block) == len(END_BLOCK)
    try:
        return block[257:262] == b"ustar" or bool(parse_header(block))
    except TarHeaderError:
        return False


def _detect_document_type(head: bytes) -> str | None:
    for pattern, words in (
        (_HTML_PATTERN, "an HTML page"),
        (_XML_PATTERN, "an XML document"),
        (_JSON_PATTERN, "a JSON document"),
    ):
        if pattern.match(head):
            return words
    return None


def extract_excerpt(head: bytes) -> str:
    """A page's title, or its first words."""
    from html import unescape

    text = head.decode("utf-8", "replace")
    title = _TITLE_PATTERN.search(text)
    words = title.group(1) if title else _TAG_PATTERN.sub(" ", text)
    plain = " ".join(unescape(words).split())
    return plain if len(plain) <= _MAX_EXCERPT_CHARS else plain[: _MAX_EXCERPT_CHARS - 1] + "…"
