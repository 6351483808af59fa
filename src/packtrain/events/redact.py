"""Replaces secret values by `***` in whatever is about to be written."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"
_SHORTEST = 4  # shorter values would blot out ordinary text


class Redactor:
    """Knows secret values in the forms in which they leak: plain, quoted for URLs or JSON, base64."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._known = frozenset(values)
        self._compile()

    def learn(self, value: str) -> None:
        """A secret that was renewed while the job runs: the old value stays known, too."""
        if value not in self._known:
            self._known |= {value}
            self._compile()

    def _compile(self) -> None:
        values = {value.strip() for value in self._known if len(value.strip()) >= _SHORTEST}
        forms = {form for value in values for form in _forms(value)}
        longest_first = sorted(forms, key=len, reverse=True)
        self.longest = max((len(_bytes(form)) for form in forms), default=0)
        self._forms = [_bytes(form) for form in longest_first]
        self._text = re.compile("|".join(map(re.escape, longest_first))) if forms else None
        self._bytes = re.compile(b"|".join(re.escape(_bytes(f)) for f in longest_first)) if forms else None

    def text(self, text: str) -> str:
        return self._text.sub(MASK, text) if self._text else text

    def data(self, data: bytes) -> bytes:
        return self._bytes.sub(MASK.encode(), data) if self._bytes else data

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """For bytes that arrive piecemeal: what can be written now, redacted, and the end that must wait for
        what follows, because it may be the beginning of a secret. The pieces add up to `data` of the whole."""
        if self._bytes is None:
            return data, b""
        ready, position, wait = [], 0, self._unfinished(data, 0)
        while (found := self._bytes.search(data, position)) and found.start() < wait:
            ready += [data[position : found.start()], MASK.encode()]
            position = found.end()
            wait = wait if position <= wait else self._unfinished(data, position)
        return b"".join([*ready, data[position:wait]]), data[wait:]

    def _unfinished(self, data: bytes, start: int) -> int:
        """Where the first secret begins that the data cuts off; the data's length if there is none."""
        return min((_cut_off(form, data, start) for form in self._forms), default=len(data))

    def value(self, value: Any) -> Any:
        """Every text inside a JSON value. Keys and numbers stay, so that a secret such as `1234` or
        `data` does not break the document that it stands in."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value


def _bytes(text: str) -> bytes:
    """Secrets are read with `surrogateescape`: bytes that are no UTF-8 come back as they were."""
    return text.encode("utf-8", "surrogateescape")


def _cut_off(form: bytes, data: bytes, start: int) -> int:
    position = max(start, len(data) - len(form) + 1)
    while (position := data.find(form[:1], position)) >= 0:
        if form.startswith(data[position:]):
            return position
        position += 1
    return len(data)


def _forms(value: str) -> set[str]:
    quoted = {quote(_bytes(value), safe=""), quote(_bytes(value)), quote_plus(_bytes(value))}
    escaped = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    return {value, *quoted, *escaped, *_base64_stems(_bytes(value))}


def _base64_stems(value: bytes) -> Iterator[str]:
    """What base64 makes of the secret wherever it stands, as in `user:secret`: three alignments, and of
    each the part that does not depend on what surrounds the secret."""
    for shift, first in enumerate((0, 2, 3)):
        text = base64.b64encode(bytes(shift) + value).decode()[first : (shift + len(value)) * 8 // 6]
        yield text
        yield text.replace("+", "-").replace("/", "_")
