"""Replaces secret values by `***` in whatever is about to be written."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from urllib.parse import quote

MASK = "***"
_SHORTEST = 4  # shorter values would blot out ordinary text


class Redactor:
    """Knows secret values in the forms in which they leak: plain, URL-quoted, base64."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        forms = {form for value in values if len(value.strip()) >= _SHORTEST for form in _forms(value.strip())}
        longest_first = sorted(forms, key=len, reverse=True)
        self.longest = len(longest_first[0].encode()) if longest_first else 0
        self._text = re.compile("|".join(map(re.escape, longest_first))) if forms else None
        self._bytes = re.compile(b"|".join(re.escape(f.encode()) for f in longest_first)) if forms else None

    def text(self, text: str) -> str:
        return self._text.sub(MASK, text) if self._text else text

    def data(self, data: bytes) -> bytes:
        return self._bytes.sub(MASK.encode(), data) if self._bytes else data


def _forms(value: str) -> set[str]:
    encoded = base64.b64encode(value.encode()).decode()
    # The end of a base64 text depends on what follows the secret; its stem does not.
    return {value, quote(value, safe=""), encoded[: len(encoded) // 4 * 4 - 4] if len(value) > 8 else encoded}
