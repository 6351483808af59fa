"""Replaces secret values by `***` in whatever is about to be written."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"
_MIN_SECRET_CHARS = 4  # shorter values would blot out ordinary text


class Redactor:
    """Knows secret values in the forms in which they leak: plain, quoted for URLs or JSON, base64."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._secrets = frozenset(values)
        self._compile()

    def add_secret(self, value: str) -> None:
        """A secret that was renewed while the job runs: the old value stays known, too."""
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
        """For bytes that arrive piecemeal: what can be written now, redacted, and the end that must wait for
        what follows, because it may be the beginning of a secret. The pieces add up to `data` of the whole."""
        if self._bytes_pattern is None:
            return data, b""
        ready, position, wait = [], 0, self._partial_secret_start(data, 0)
        while (found := self._bytes_pattern.search(data, position)) and found.start() < wait:
            ready += [data[position : found.start()], MASK.encode()]
            position = found.end()
            wait = wait if position <= wait else self._partial_secret_start(data, position)
        return b"".join([*ready, data[position:wait]]), data[wait:]

    def _partial_secret_start(self, data: bytes, start: int) -> int:
        """Where the first secret begins that the data cuts off; the data's length if there is none."""
        return min((_find_partial_match(form, data, start) for form in self._encoded_secrets), default=len(data))

    def redact_value(self, value: Any) -> Any:
        """Every text inside a JSON value. Keys and numbers stay, so that a secret such as `1234` or
        `data` does not break the document that it stands in."""
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, dict):
            return {key: self.redact_value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.redact_value(item) for item in value]
        return value


def _to_bytes(text: str) -> bytes:
    """Secrets are read with `surrogateescape`: bytes that are no UTF-8 come back as they were."""
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
    """What base64 makes of the secret wherever it stands, as in `user:secret`: three alignments, and of
    each the part that does not depend on what surrounds the secret."""
    for shift, first in enumerate((0, 2, 3)):
        text = base64.b64encode(bytes(shift) + value).decode()[first : (shift + len(value)) * 8 // 6]
        yield text
        yield text.replace("+", "-").replace("/", "_")
