"""A picture as plain marks on a sheet: what `svg` writes for the page and `png` for slides. Pure.

Colours are meanings (`colours.Paint`), never values, so that a page's theme can choose them. How wide words are is
taken from DejaVu Sans, which is wider than what browsers use: words that have room here have room there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from packtrain.report.charts.palette import FAINT, GRID, INK, Paint

Box = tuple[float, float, float, float]  # left, top, width, height
Spot = tuple[float, float]

# In hundredths of the size.
_PLAIN = {
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
_BOLD = {
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
_WIDTH_OF = tuple(
    {letter: width / 100 for width, letters in widths.items() for letter in letters} for widths in (_PLAIN, _BOLD)
)
_UNKNOWN_WIDTH = 1.1


@dataclass(frozen=True)
class Tiles:
    """Boxes of one colour; `title` shows when one points at them."""

    boxes: tuple[Box, ...]
    paint: Paint
    title: str = ""
    opacity: float = 1.0
    rounded: float = 0.0


@dataclass(frozen=True)
class Line:
    spots: tuple[Spot, ...]
    paint: Paint
    width: float = 1.0
    dashed: bool = False
    opacity: float = 1.0


@dataclass(frozen=True)
class Dots:
    spots: tuple[Spot, ...]
    radius: float
    paint: Paint
    title: str = ""
    opacity: float = 1.0


@dataclass(frozen=True)
class Words:
    text: str
    x: float
    y: float  # of the line that letters stand on
    size: float = 12.0
    anchor: str = "start"  # start, middle, end
    paint: Paint = INK
    bold: bool = False

    @property
    def box(self) -> Box:
        width = width_of(self.text, self.size, self.bold)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return (left, self.y - 0.8 * self.size, width, self.size)


Mark = Tiles | Line | Dots | Words


@dataclass
class Drawing:
    width: float
    height: float
    marks: list[Mark] = field(default_factory=list)

    def tile(self, box: Box, paint: Paint, title: str = "", rounded: float = 0.0, opacity: float = 1.0) -> None:
        self.marks.append(Tiles((box,), paint, title, opacity, rounded))

    def tiles(self, boxes: Iterable[Box], paint: Paint) -> None:
        found = tuple(boxes)
        self.marks += [Tiles(found, paint)] if found else []

    def line(
        self, spots: Iterable[Spot], paint: Paint = GRID, width: float = 1.0, dashed: bool = False, opacity: float = 1.0
    ) -> None:
        self.marks.append(Line(tuple(spots), paint, width, dashed, opacity))

    def dots(self, spots: Iterable[Spot], radius: float, paint: Paint, title: str = "", opacity: float = 1.0) -> None:
        found = tuple(spots)
        self.marks += [Dots(found, radius, paint, title, opacity)] if found else []

    def words(
        self, text: str, x: float, y: float, *, size: float = 12.0, anchor: str = "start", paint: Paint = INK,
        bold: bool = False,
    ) -> None:  # fmt: skip
        self.marks.append(Words(text, x, y, size, anchor, paint, bold))

    def note(self, text: str, x: float, y: float, anchor: str = "start", size: float = 11.5) -> None:
        """Words of less weight."""
        self.words(text, x, y, size=size, anchor=anchor, paint=FAINT)


def width_of(text: str, size: float = 12.0, bold: bool = False) -> float:
    """How much room words need."""
    widths = _WIDTH_OF[bold]
    return size * sum(widths.get(letter, _UNKNOWN_WIDTH) for letter in text)


def fitted(text: str, room: float, size: float = 12.0, bold: bool = False) -> str:
    """The words, cut where the room ends; the end of a name often tells most, so the middle goes."""
    text = " ".join(text.split())
    if width_of(text, size, bold) <= room:
        return text
    keep = len(text) - 1
    while keep > 0 and width_of(_cut(text, keep), size, bold) > room:
        keep -= 1
    return _cut(text, keep) if keep else ""


def _cut(text: str, keep: int) -> str:
    tail = keep // 2
    return f"{text[: keep - tail]}…{text[len(text) - tail :] if tail else ''}"
