"""Replace secret values by `***` in text, bytes and JSON values before they are written."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"
_MIN_SECRET_CHARS = 4  # redacting shorter values would mask ordinary text


class Redactor:
    """Masks secret values in the forms in which they leak: plain, quoted for URLs or JSON, and base64."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._secrets = frozenset(values)
        self._compile()

    def add_secret(self, value: str) -> None:
        """Also mask this value, for example a renewed token; earlier values stay masked."""
        if value not in self._secrets:
            self._secrets |= {value}
            self._compile()

    def _compile(self) -> None:
        values = {value.strip() for value in self._secrets if len(value.strip()) >= _MIN_SECRET_CHARS}
        forms = {form for value in values for form in _encodings(value)}
        longest_first = sorted(forms, key=len, reverse=True)
        self.max_secret_bytes = max((len(_to_bytes(form)) for form in forms), default=0)
        self._encoded_secrets = [_to_bytes(form) for form in longest_first]
        self._text_pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None
        self._bytes_pattern = re.compile(b"|".join(re.escape(_to_bytes(f)) for f in longest_first)) if forms else None

    def redact_text(self, text: str) -> str:
        return self._text_pattern.sub(MASK, text) if self._text_pattern else text

    def redact_bytes(self, data: bytes) -> bytes:
        return self._bytes_pattern.sub(MASK.encode(), data) if self._bytes_pattern else data

    def redact_partial(self, data: bytes) -> tuple[bytes, bytes]:
        """Redact a chunk of a byte stream.

        Returns:
            The redacted bytes that can be written now, and the unredacted rest, which may be the beginning of a
            secret and has to be prepended to the next chunk.
        """
        if self._bytes_pattern is None:
            return data, b""
        ready, position, rest = [], 0, self._partial_secret_start(data, 0)
        while (match := self._bytes_pattern.search(data, position)) and match.start() < rest:
            ready += [data[position : match.start()], MASK.encode()]
            position = match.end()
            rest = rest if position <= rest else self._partial_secret_start(data, position)
        return b"".join([*ready, data[position:rest]]), data[rest:]

    def _partial_secret_start(self, data: bytes, start: int) -> int:
        """Return where the first secret starts that the end of the data cuts off, or `len(data)`."""
        return min((_find_partial_match(form, data, start) for form in self._encoded_secrets), default=len(data))

    def redact_value(self, value: Any) -> Any:
        """Redact every string inside a JSON value.

        Keys and numbers are unchanged, so that a secret such as `1234` or `data` does not break the document.
        """
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, dict):
            return {key: self.redact_value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.redact_value(item) for item in value]
        return value


def _to_bytes(text: str) -> bytes:
    """Encode a secret. Secrets are read with `surrogateescape`, so bytes that are not UTF-8 are restored."""
    return text.encode("utf-8", "surrogateescape")


def _find_partial_match(form: bytes, data: bytes, start: int) -> int:
    position = max(start, len(data) - len(form) + 1)
    while (position := data.find(form[:1], position)) >= 0:
        if form.startswith(data[position:]):
            return position
        position += 1
    return len(data)


def _encodings(value: str) -> set[str]:
    quoted = {quote(_to_bytes(value), safe=""), quote(_to_bytes(value)), quote_plus(_to_bytes(value))}
    escaped = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    return {value, *quoted, *escaped, *_base64_stems(_to_bytes(value))}


def _base64_stems(value: bytes) -> Iterator[str]:
    """Yield the base64 forms of a secret inside longer text such as `user:secret`.

    There are three alignments; of each, the part that does not depend on the surrounding text.
    """
    for shift, first in enumerate((0, 2, 3)):
        text = base64.b64encode(bytes(shift) + value).decode()[first : (shift + len(value)) * 8 // 6]
        yield text
        yield text.replace("+", "-").replace("/", "_")
