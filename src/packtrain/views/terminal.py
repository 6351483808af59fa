"""Text from outside on a terminal: servers, logs, file names and programs must not control it.

`make_console` creates every console of packtrain: nothing is markup, and control characters are shown as escapes.
`ColorFilter` passes the colors of a program's own output and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from packtrain.formatting import CONTROL_CHARS, replace_control_chars

_STRING_START = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*"  # OSC, DCS, …
_TOKEN = re.compile(
    r"(?P<color>(?:\x1b\[|\x9b)(?P<parameters>[0-9;:]*)m)"
    r"|(?P<unfinished>(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*|" + _STRING_START + r"\x1b?|\x1b[ -/]*)\Z)"
    r"|(?P<dropped>(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|" + _STRING_START + r"(?:\x07|\x9c|\x1b\\|(?=[\n\x1b]))"
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~])"
    r"|" + CONTROL_CHARS.pattern
)


class _SafeConsole(Console):
    """A console whose output controls the terminal only as rich intends."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        return map(_show_control_chars, super().render(renderable, options))


def _show_control_chars(segment: Segment) -> Segment:
    if segment.control:  # by rich itself, to update a live display
        return segment
    text = replace_control_chars(segment.text, keep="\n\t")
    return segment if text == segment.text else Segment(text, segment.style)


def make_console(**options: Any) -> Console:
    """Return a console; `options` are those of rich."""
    return _SafeConsole(markup=False, emoji=False, highlight=False, **options)


class SafeView:
    """A view whose text is safe on consoles that packtrain did not create."""

    def __init__(self, view: RenderableType) -> None:
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        yield from map(_show_control_chars, console.render(self._view, options))


class ColorFilter:
    """Filters a stream of text: keeps colors, drops other escape sequences, and shows other control characters.

    A sequence may be split over several calls; the result is the same as for the whole text.
    """

    def __init__(self) -> None:
        self._pending = ""
        self.is_colored = False  # whether a color is still in effect at the end of the text

    def feed(self, text: str) -> str:
        """Return the filtered text, without a sequence at its end that the next call may complete."""
        text, self._pending = self._pending + text, ""
        return _TOKEN.sub(self._replace_token, text)

    def finish(self) -> str:
        """Return the rest at the end of the stream, and end its color."""
        rest, self._pending = replace_control_chars(self._pending), ""
        return rest + ("\x1b[0m" if self.is_colored else "")

    def _replace_token(self, match: re.Match[str]) -> str:
        if match["color"]:
            self.is_colored = match["parameters"].strip("0") != ""
            return f"\x1b[{match['parameters']}m"
        if match["unfinished"]:
            self._pending = match["unfinished"]
            return ""
        return "" if match["dropped"] else replace_control_chars(match[0], keep="\n\t")
