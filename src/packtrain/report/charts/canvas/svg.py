"""Writes a drawing as SVG for a page that defines the colors as CSS variables: `var(--name)`.

Marks of one color are one path, so that a page with a thousand jobs is small.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from packtrain.formatting import replace_control_chars
from packtrain.report.charts.canvas.drawing import (
    XY,
    Box,
    DotMarks,
    Drawing,
    DrawingMark,
    LineMark,
    RectMarks,
    TextMark,
)
from packtrain.report.charts.palette import TEXT

# XML does not allow these, not even escaped; nor control characters, which are shown as escapes.
_INVALID_XML_CHARS = re.compile("[\ufffe\uffff]")


def to_svg(drawing: Drawing, label: str = "", css_class: str = "") -> str:
    """Return an svg element. `label` describes the drawing for screen readers."""
    width, height = _format_number(drawing.width), _format_number(drawing.height)
    size = f'viewBox="0 0 {width} {height}" width="{width}"'
    role = f'role="img" aria-label="{escape_xml(label)}"' if label else 'aria-hidden="true"'
    body = "".join(text for mark in drawing.marks for text in _render_mark(mark))
    return f'<svg xmlns="http://www.w3.org/2000/svg" class="{escape_xml(css_class)}" {size} {role}>{body}</svg>'


def escape_xml(text: str) -> str:
    """Escape a text for use between tags or inside quotes."""
    return escape(_INVALID_XML_CHARS.sub("\ufffd", replace_control_chars(text, keep="\n\t")), quote=True)


def _render_mark(mark: DrawingMark) -> Iterator[str]:
    if isinstance(mark, RectMarks):
        yield from _render_rects(mark)
    elif isinstance(mark, DotMarks):
        yield _render_dots(mark)
    elif isinstance(mark, LineMark):
        yield _render_line(mark)
    else:
        yield _render_text(mark)


def _render_rects(mark: RectMarks) -> Iterator[str]:
    css_color = f"var(--{mark.color.name})"
    if mark.rounded:
        for x, y, width, height in mark.boxes:
            shape = f'x="{x:.5g}" y="{y:.5g}" width="{width:.5g}" height="{height:.5g}"'
            yield _with_title(f'rect {shape} rx="{mark.rounded:.5g}" fill="{css_color}"{_opacity(mark)}', mark.title)
    else:
        yield _with_title(f"path {_rect_path(mark.boxes, css_color)}{_opacity(mark)}", mark.title)


def _rect_path(boxes: Sequence[Box], css_color: str) -> str:
    """Return a path. Boxes of equal height or width are written as strokes, which are half as long."""
    _, _, width, height = boxes[0]
    if len(boxes) > 1 and all(box[3] == height for box in boxes):
        path = "".join(f"M{x:.5g} {y + height / 2:.5g}h{length:.4g}" for x, y, length, _ in boxes)
        return f'd="{path}" stroke="{css_color}" stroke-width="{height:.5g}"'
    if len(boxes) > 1 and all(box[2] == width for box in boxes):
        path = "".join(f"M{x + width / 2:.5g} {y:.5g}v{length:.4g}" for x, y, _, length in boxes)
        return f'd="{path}" stroke="{css_color}" stroke-width="{width:.5g}"'
    path = "".join(f"M{x:.5g} {y:.5g}h{wide:.5g}v{high:.5g}h-{wide:.5g}z" for x, y, wide, high in boxes)
    return f'd="{path}" fill="{css_color}"'


def _render_dots(mark: DotMarks) -> str:
    """Render dots as strokes of length zero with round ends."""
    path = "".join(f"M{x:.5g} {y:.5g}h0" for x, y in mark.points)
    style = f'stroke="var(--{mark.color.name})" stroke-width="{2 * mark.radius:.5g}" stroke-linecap="round"'
    return _with_title(f'path d="{path}" {style}{_opacity(mark)}', mark.title)


def _render_line(mark: LineMark) -> str:
    style = f'stroke="var(--{mark.color.name})" stroke-width="{_format_number(mark.width)}"{_opacity(mark)}'
    dashes = ' stroke-dasharray="4 3"' if mark.dashed else ""
    return (
        f'<path d="M{"L".join(map(_format_point, mark.points))}" fill="none" {style}{dashes} stroke-linejoin="round"/>'
    )


def _format_point(point: XY) -> str:
    return f"{_format_number(point[0])} {_format_number(point[1])}"


def _render_text(mark: TextMark) -> str:
    css_color = "" if mark.color is TEXT else f' fill="var(--{mark.color.name})"'
    anchor = "" if mark.anchor == "start" else f' text-anchor="{mark.anchor}"'
    bold = ' font-weight="600"' if mark.bold else ""
    position = f'x="{_format_number(mark.x)}" y="{_format_number(mark.y)}" font-size="{_format_number(mark.size)}"'
    return f"<text {position}{anchor}{bold}{css_color}>{escape_xml(mark.text)}</text>"


def _with_title(element: str, title: str) -> str:
    name = element.split(" ", 1)[0]
    return f"<{element}><title>{escape_xml(title)}</title></{name}>" if title else f"<{element}/>"


def _opacity(mark: RectMarks | DotMarks | LineMark) -> str:
    return "" if mark.opacity == 1.0 else f' opacity="{_format_number(mark.opacity)}"'


def _format_number(number: float) -> str:
    """Format with five digits, which is a tenth of a pixel in the largest chart."""
    return f"{number:.5g}"
