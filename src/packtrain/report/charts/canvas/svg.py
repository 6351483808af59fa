"""A drawing as SVG for a page that has the colours as CSS variables: `var(--name)`. Pure.

Marks of one colour are one path, so that a thousand jobs make a small page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from packtrain.report.charts.canvas.drawing import Box, Dots, Drawing, Line, Mark, Spot, Tiles, Words
from packtrain.report.charts.palette import INK

# XML has no place for these, not even escaped.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def svg_of(drawing: Drawing, label: str = "", css: str = "") -> str:
    """One element. `label` tells in words what there is to see; the classes are those of the page's style sheet."""
    size = f'viewBox="0 0 {_short(drawing.width)} {_short(drawing.height)}" width="{_short(drawing.width)}"'
    told = f'role="img" aria-label="{clean(label)}"' if label else 'aria-hidden="true"'
    body = "".join(text for mark in drawing.marks for text in _mark(mark))
    return f'<svg xmlns="http://www.w3.org/2000/svg" class="{clean(css)}" {size} {told}>{body}</svg>'


def clean(text: str) -> str:
    """Fit for any place between tags or quotes."""
    return escape(_FORBIDDEN.sub("\ufffd", text), quote=True)


def _mark(mark: Mark) -> Iterator[str]:
    if isinstance(mark, Tiles):
        yield from _tiles(mark)
    elif isinstance(mark, Dots):
        yield _dots(mark)
    elif isinstance(mark, Line):
        yield _line(mark)
    else:
        yield _words(mark)


def _tiles(mark: Tiles) -> Iterator[str]:
    paint = f"var(--{mark.paint.name})"
    if mark.rounded:
        for x, y, width, height in mark.boxes:
            shape = f'x="{x:.5g}" y="{y:.5g}" width="{width:.5g}" height="{height:.5g}"'
            yield _titled(f'rect {shape} rx="{mark.rounded:.5g}" fill="{paint}"{_opacity(mark)}', mark.title)
    else:
        yield _titled(f"path {_boxes(mark.boxes, paint)}{_opacity(mark)}", mark.title)


def _boxes(boxes: Sequence[Box], paint: str) -> str:
    """Many of one height, or of one width, are strokes: half as long as rectangles."""
    _, _, width, height = boxes[0]
    if len(boxes) > 1 and all(box[3] == height for box in boxes):
        path = "".join(f"M{x:.5g} {y + height / 2:.5g}h{length:.4g}" for x, y, length, _ in boxes)
        return f'd="{path}" stroke="{paint}" stroke-width="{height:.5g}"'
    if len(boxes) > 1 and all(box[2] == width for box in boxes):
        path = "".join(f"M{x + width / 2:.5g} {y:.5g}v{length:.4g}" for x, y, _, length in boxes)
        return f'd="{path}" stroke="{paint}" stroke-width="{width:.5g}"'
    path = "".join(f"M{x:.5g} {y:.5g}h{wide:.5g}v{high:.5g}h-{wide:.5g}z" for x, y, wide, high in boxes)
    return f'd="{path}" fill="{paint}"'


def _dots(mark: Dots) -> str:
    """Strokes without length, which have round ends."""
    path = "".join(f"M{x:.5g} {y:.5g}h0" for x, y in mark.spots)
    style = f'stroke="var(--{mark.paint.name})" stroke-width="{2 * mark.radius:.5g}" stroke-linecap="round"'
    return _titled(f'path d="{path}" {style}{_opacity(mark)}', mark.title)


def _line(mark: Line) -> str:
    style = f'stroke="var(--{mark.paint.name})" stroke-width="{_short(mark.width)}"{_opacity(mark)}'
    dashes = ' stroke-dasharray="4 3"' if mark.dashed else ""
    return f'<path d="M{"L".join(map(_spot, mark.spots))}" fill="none" {style}{dashes} stroke-linejoin="round"/>'


def _spot(spot: Spot) -> str:
    return f"{_short(spot[0])} {_short(spot[1])}"


def _words(mark: Words) -> str:
    paint = "" if mark.paint is INK else f' fill="var(--{mark.paint.name})"'
    anchor = "" if mark.anchor == "start" else f' text-anchor="{mark.anchor}"'
    bold = ' font-weight="600"' if mark.bold else ""
    place = f'x="{_short(mark.x)}" y="{_short(mark.y)}" font-size="{_short(mark.size)}"'
    return f"<text {place}{anchor}{bold}{paint}>{clean(mark.text)}</text>"


def _titled(element: str, title: str) -> str:
    name = element.split(" ", 1)[0]
    return f"<{element}><title>{clean(title)}</title></{name}>" if title else f"<{element}/>"


def _opacity(mark: Tiles | Dots | Line) -> str:
    return "" if mark.opacity == 1.0 else f' opacity="{_short(mark.opacity)}"'


def _short(number: float) -> str:
    """Five digits: a tenth of a pixel of the largest picture."""
    return f"{number:.5g}"
