"""Checks of the first bytes of a download: error pages that pose as data, and wrong file formats."""

from __future__ import annotations

import re

from packtrain.transfer.archive.formats import ARCHIVE_MAGIC, ARCHIVE_SUFFIXES

SNIFF_BYTES = 1024  # bytes from the start of a file that the checks need
_BINARY_SUFFIXES = (
    *ARCHIVE_SUFFIXES, ".npz", ".npy", ".pt", ".pth", ".bin", ".h5", ".hdf5", ".parquet", ".safetensors", ".sif",
    ".png", ".jpg", ".jpeg", ".pkl", ".onnx",
)  # fmt: skip
# Old pickles are text, and a .bin file may hold anything.
_NEVER_TEXT_SUFFIXES = tuple(suffix for suffix in _BINARY_SUFFIXES if suffix not in (".pt", ".pth", ".bin", ".pkl"))
# compress, split zips, and Windows self-extracting archives have other suffixes; a tar is recognized by its header.
_ARCHIVE_MAGIC = (*ARCHIVE_MAGIC, b"\x1f\x9d", b"PK\x07\x08", b"MZ")
_CONTROL_CHARS = re.compile("[\0-\x08\x0e-\x1a\x1c-\x1f]")
_MARKUP_SUFFIXES = (".html", ".htm", ".xhtml", ".xml", ".svg", ".txt", ".md", ".php")
_HTML_PATTERN = re.compile(rb"\s*(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body|title)\b", re.IGNORECASE | re.DOTALL)
_XML_PATTERN = re.compile(rb"\s*<(\?xml|Error|[A-Za-z]+Response)\b")
_JSON_PATTERN = re.compile(rb"\s*[{\[]\s*([\"{\[]|[}\]]\s*$)")
_TITLE_PATTERN = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_TAG_PATTERN = re.compile(r"<(script|style).*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_MAX_EXCERPT_CHARS = 80


def detect_error_page(name: str, head: bytes, content_type: str | None) -> str | None:
    """Return why a download is an error page instead of the file, or None.

    The content decides, not the Content-Type: servers label data as HTML and pages as data.

    Args:
        name: The name of the file that was requested.
        head: Its first bytes.
        content_type: The Content-Type of the response.
    """
    suffix = name.lower()
    if suffix.endswith(ARCHIVE_SUFFIXES) and not head:
        return f"received an empty body instead of {name}"
    document_type = _detect_document_type(head)
    if document_type is None or suffix.endswith(_MARKUP_SUFFIXES):
        return None
    if suffix.endswith(_BINARY_SUFFIXES) or (document_type == "an HTML page" and "html" in (content_type or "")):
        return f'received {document_type} instead of {name}: "{extract_excerpt(head)}"'
    return None


def detect_wrong_format(name: str, head: bytes, has_trusted_digest: bool) -> str | None:
    """Return why the content does not match the suffix of the file, or None.

    An archive of a different type than the suffix is accepted; the unpacker detects the type itself.

    Args:
        name: The name of the file that was requested.
        head: Its first bytes.
        has_trusted_digest: A digest will verify the complete file, so unknown content is accepted.
    """
    suffix = name.lower()
    if head and suffix.endswith(_NEVER_TEXT_SUFFIXES) and _is_text(head):
        return f'received text instead of {name}: "{extract_excerpt(head)}"'
    if has_trusted_digest or not suffix.endswith(ARCHIVE_SUFFIXES) or head.startswith(_ARCHIVE_MAGIC):
        return None
    if _is_tar(head, allow_empty=suffix.endswith(".tar")):
        return None
    return (
        f"received data that is not an archive instead of {name}: it begins with {head[:8]!r}; "
        "if the data is right, state its sha256"
    )


def _is_text(head: bytes) -> bool:
    """Return whether the bytes are UTF-8 without control characters; the last character may be incomplete."""
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
    for pattern, document_type in (
        (_HTML_PATTERN, "an HTML page"),
        (_XML_PATTERN, "an XML document"),
        (_JSON_PATTERN, "a JSON document"),
    ):
        if pattern.match(head):
            return document_type
    return None


def extract_excerpt(head: bytes) -> str:
    """Return the title of a page, or the start of its text without tags."""
    from html import unescape

    text = head.decode("utf-8", "replace")
    title = _TITLE_PATTERN.search(text)
    body = title.group(1) if title else _TAG_PATTERN.sub(" ", text)
    plain = " ".join(unescape(body).split())
    return plain if len(plain) <= _MAX_EXCERPT_CHARS else plain[: _MAX_EXCERPT_CHARS - 1] + "…"
