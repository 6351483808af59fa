"""A drawing as a list of marks, which `svg` writes for the page and `png` for slides.

Colors are `ThemeColor`s, so that the theme of the page can choose their values. Text widths are those of DejaVu Sans,
which is wider than the fonts of browsers: text that fits here also fits there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from packtrain.report.charts.palette import GRID, MUTED, TEXT, ThemeColor

Box = tuple[float, float, float, float]  # left, top, width, height
XY = tuple[float, float]

# Widths of characters in hundredths of the font size.
_REGULAR_WIDTHS = {
    30: "'IJijl",
    35: " ,./:;\\|·",
    40: "()-[]ft",
    45: "!r",
    50: '"*_`–',
    55: "?csz",
    60: "FLkvxy",
    65: "$0123456789EPSTYabdeghnopqu{}",
    70: "ABCKRVXZ",
    75: "NU",
    80: "&DGHOQ",
    85: "#+<=>^w~×→≥",
    90: "M",
    100: "%@Wm…—",
}
_BOLD_WIDTHS = {
    35: " 'ijl",
    40: ",./:;IJ\\|·",
    45: "-f",
    50: "!()[]_`rt–",
    60: '"*?csz',
    70: "$0123456789EFLTaekovxy",
    80: "CPSYZbdghnpqu{}ABKRVX",
    90: "#+<=>DGHNU^~&OQ×→≥",
    100: "w@M…—",
    110: "%m",
    115: "W",
}
_CHAR_WIDTHS = tuple(
    {letter: width / 100 for width, letters in widths.items() for letter in letters}
    for widths in (_REGULAR_WIDTHS, _BOLD_WIDTHS)
)
_DEFAULT_CHAR_WIDTH = 1.1


@dataclass(frozen=True)
class RectMarks:
    """Rectangles of one color; `title` is their tooltip."""

    boxes: tuple[Box, ...]
    color: ThemeColor
    title: str = ""
    opacity: float = 1.0
    rounded: float = 0.0


@dataclass(frozen=True)
class LineMark:
    """A line through points."""

    points: tuple[XY, ...]
    color: ThemeColor
    width: float = 1.0
    dashed: bool = False
    opacity: float = 1.0


@dataclass(frozen=True)
class DotMarks:
    """Dots of one color; `title` is their tooltip."""

    points: tuple[XY, ...]
    radius: float
    color: ThemeColor
    title: str = ""
    opacity: float = 1.0


@dataclass(frozen=True)
class TextMark:
    """A line of text."""

    text: str
    x: float
    y: float  # of the baseline
    size: float = 12.0
    anchor: str = "start"  # start, middle, end
    color: ThemeColor = TEXT
    bold: bool = False

    @property
    def box(self) -> Box:
        width = text_width(self.text, self.size, self.bold)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return (left, self.y - 0.8 * self.size, width, self.size)


DrawingMark = RectMarks | LineMark | DotMarks | TextMark


@dataclass
class Drawing:
    """A list of marks with the size of the canvas."""

    width: float
    height: float
    marks: list[DrawingMark] = field(default_factory=list)

    def rect(self, box: Box, color: ThemeColor, title: str = "", rounded: float = 0.0, opacity: float = 1.0) -> None:
        self.marks.append(RectMarks((box,), color, title, opacity, rounded))

    def rects(self, boxes: Iterable[Box], color: ThemeColor) -> None:
        rects = tuple(boxes)
        self.marks += [RectMarks(rects, color)] if rects else []

    def line(
        self,
        points: Iterable[XY],
        color: ThemeColor = GRID,
        width: float = 1.0,
        dashed: bool = False,
        opacity: float = 1.0,
    ) -> None:
        self.marks.append(LineMark(tuple(points), color, width, dashed, opacity))

    def dots(
        self, points: Iterable[XY], radius: float, color: ThemeColor, title: str = "", opacity: float = 1.0
    ) -> None:
        dots = tuple(points)
        self.marks += [DotMarks(dots, radius, color, title, opacity)] if dots else []

    def text(
        self, text: str, x: float, y: float, *, size: float = 12.0, anchor: str = "start", color: ThemeColor = TEXT,
        bold: bool = False,
    ) -> None:  # fmt: skip
        self.marks.append(TextMark(text, x, y, size, anchor, color, bold))

    def muted_text(self, text: str, x: float, y: float, anchor: str = "start", size: float = 11.5) -> None:
        """Add text in a muted color."""
        self.text(text, x, y, size=size, anchor=anchor, color=MUTED)


def text_width(text: str, size: float = 12.0, bold: bool = False) -> float:
    """Estimate the width of a text."""
    widths = _CHAR_WIDTHS[bold]
    return size * sum(widths.get(letter, _DEFAULT_CHAR_WIDTH) for letter in text)


def shorten_to_width(text: str, max_width: float, size: float = 12.0, bold: bool = False) -> str:
    """Shorten a text to a width. The middle is cut, because the ends of names are the most distinctive."""
    text = " ".join(text.split())
    if text_width(text, size, bold) <= max_width:
        return text
    keep = len(text) - 1
    while keep > 0 and text_width(_cut_middle(text, keep), size, bold) > max_width:
        keep -= 1
    return _cut_middle(text, keep) if keep else ""


def _cut_middle(text: str, keep: int) -> str:
    tail = keep // 2
    return f"{text[: keep - tail]}…{text[len(text) - tail :] if tail else ''}"
