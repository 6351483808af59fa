"""The training of a run as a picture: loss above, metric below, one line a job.

Few jobs have a colour and a name each. Of many jobs the colour tells how well each ended, and only the best, the
median and the worst have names. matplotlib is imported when a picture is drawn.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packtrain.errors import UsageError
from packtrain.report.charts.smoothing import smoothed, thinned
from packtrain.report.readers.training_curves import Curve, Curves, Point

FORMATS = (".png", ".svg", ".pdf")
_FEW, _CROWD = 8, 40
_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#4D4D4D")
_INK, _FAINT, _RED = "#222222", "#8A8A8A", "#C62828"
_DASHES, _DOTS = (0, (4, 2)), (0, (1, 1.5))
_CROSS = {"marker": "X", "markersize": 8, "color": _RED, "markeredgecolor": "white", "linestyle": "none"}
_RING = {"marker": "o", "markersize": 6.5, "markerfacecolor": "white", "linestyle": "none"}
_PAPER = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1}
_ASIDE = ("_per_second", "_per_s", "lr", "learning_rate")  # of no interest, if there is anything else
_SPARSE = 40  # a line of fewer points shows them
_MANY_POINTS = 200  # of each line, where there are many
_SHADES = 0.87  # the brightest tenth of the colours cannot be seen on white
_LABELS_APART = 0.066  # of the height of a panel
_LONGEST_LABEL = 20
_LOG_FROM = 40.0  # how many times the least loss the greatest is, for a logarithmic axis
_STYLE: dict[Any, Any] = {
    "font.size": 10.5,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#BBBBBB",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelcolor": _INK,
    "grid.color": "#EBEBEB",
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
}


def draw_training(curves: Curves, path: Path, subtitle: str = "") -> None:
    """Write the picture; its suffix is one of FORMATS. Complete or absent, like everything that packtrain writes."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path.name} should end in {', '.join(FORMATS)}: that says what kind of picture it is")
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it talks of its fonts
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10, 6.6 if len(panels_of(curves)) > 1 else 4.2), dpi=150, facecolor="white")
        _fill(figure, curves, subtitle)
        _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.new{path.suffix}")
    try:
        figure.savefig(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@dataclass(frozen=True)
class Panel:
    title: str
    names: tuple[str, ...]  # the first is the one that counts
    percent: bool = False


def panels_of(curves: Curves) -> list[Panel]:
    """Loss, and what else tells how good the model is."""
    names = [name for name in curves.names if not name.endswith(_ASIDE)] or list(curves.names)
    losses = [name for name in names if "loss" in name]
    others = [name for name in names if name not in losses]
    metrics = [name for name in others if "acc" in name] or others[:1]
    return [_panel(curves, chosen) for chosen in (losses, metrics) if chosen]


def _panel(curves: Curves, names: list[str]) -> Panel:
    """At most two names: what was seen in training, and what was seen in a test."""
    tests = [name for name in names if name.startswith(("test", "val", "eval"))]
    trains = [name for name in names if name not in tests]
    chosen = (*trains[:1], *tests[:1]) if len(curves.jobs) <= _FEW else (trains or tests)[:1]
    best = max((curve.last(name) or 0.0 for curve in curves.jobs for name in chosen), default=0.0)
    return Panel(_spoken(chosen[0]), tuple(chosen), "acc" in chosen[0] and best <= 1)


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _fill(figure: Any, curves: Curves, subtitle: str) -> None:
    from matplotlib.ticker import MaxNLocator

    panels = panels_of(curves)
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    height = figure.get_figheight()
    figure.subplots_adjust(left=0.085, right=0.765, top=1 - 0.86 / height, bottom=0.6 / height, hspace=0.16)
    draw = _draw_few if len(curves.jobs) <= _FEW else _draw_many
    for axis, panel in zip(axes, panels, strict=True):
        ends = draw(axis, curves, panel)
        _dress(axis, curves, panel)
        _name_ends(axis, ends)
        _explain_marks(axis, curves, panel, first=axis is axes[0])
    axes[-1].set_xlabel(curves.along)
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-1].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    figure.text(0.085, 1 - 0.36 / height, curves.run, fontsize=15, fontweight="bold", color=_INK)
    figure.text(0.085, 1 - 0.6 / height, subtitle, fontsize=10, color=_FAINT)


def _dress(axis: Any, curves: Curves, panel: Panel) -> None:
    axis.set_ylabel(panel.title)
    axis.tick_params(length=0)
    axis.margins(x=0.01)
    if panel.percent:
        axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%")
    elif _wants_log(curves, panel):
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.yaxis.set_minor_formatter(lambda value, _: "")


def _wants_log(curves: Curves, panel: Panel) -> bool:
    lines = (smoothed(curve.lines.get(panel.names[0], ())) for curve in curves.jobs)
    values = [value for line in lines for _, value in line if math.isfinite(value)]
    return "loss" in panel.names[0] and bool(values) and min(values) > 0 and max(values) / min(values) > _LOG_FROM


@dataclass(frozen=True)
class End:
    """The end of a line, and its name."""

    value: float
    words: str
    colour: Any
    below: str = ""  # a second row, smaller


# Few jobs: a colour and a name each


def _draw_few(axis: Any, curves: Curves, panel: Panel) -> list[End]:
    alone = len(curves.jobs) == 1
    ends = []
    for number, curve in enumerate(curves.jobs):
        for second, name in enumerate(panel.names):
            colour = _PALETTE[second if alone else number]
            _draw_line(axis, curve, name, colour, dashed=bool(second) and not alone)
            if alone or not second:
                _draw_events(axis, curve, name, colour)
                ends += _end(curve, name, panel, colour, _spoken(name) if alone else curve.label)
    return ends


def _end(curve: Curve, name: str, panel: Panel, colour: str, label: str) -> list[End]:
    finite = _finite(smoothed(thinned(curve.lines.get(name, ()))))
    if not finite:
        return []
    value = finite[-1][1]
    figure = "nan" if curve.broken_at(name) is not None else _figure(value, panel)
    return [End(value, f"{_short(label)}  {figure}", colour)]


def _draw_line(axis: Any, curve: Curve, name: str, colour: str, dashed: bool) -> None:
    line = thinned(curve.lines.get(name, ()))
    smooth = smoothed(line)
    for piece in curve.lost.get(name, ()):
        axis.plot(*_columns(smoothed(thinned(piece))), color=_FAINT, linewidth=1.1, linestyle=_DOTS, zorder=2)
    if smooth != line:
        axis.plot(*_columns(line), color=colour, linewidth=0.7, alpha=0.25, zorder=2)
    style = {"linestyle": _DASHES, "linewidth": 1.3} if dashed else {"linewidth": 1.9}
    marker = "o" if len(line) <= _SPARSE else None
    axis.plot(*_columns(smooth), color=colour, marker=marker, markersize=3.2, zorder=3, **style)


def _draw_events(axis: Any, curve: Curve, name: str, colour: str) -> None:
    """Where it went on, and where it ended in NaN."""
    smooth = _finite(smoothed(thinned(curve.lines.get(name, ()))))
    for step in curve.resumed if smooth and "loss" in name else ():
        at = min(smooth, key=lambda point: abs(point[0] - step))
        axis.plot(*at, marker="o", markersize=6.5, markerfacecolor="white", markeredgecolor=colour, zorder=4)
    broken = curve.broken_at(name)
    if broken is not None and smooth:
        _mark_broken(axis, smooth[-1])
        words = f"{_spoken(name)} is not finite from {broken:,.0f} on"
        style = {"color": _RED, "fontsize": 9, "zorder": 5, "bbox": _PAPER}
        axis.annotate(words, smooth[-1], (8, 8), textcoords="offset points", **style)


def _explain_marks(axis: Any, curves: Curves, panel: Panel, first: bool) -> None:
    """What is drawn beside plain lines has a row of its own, once."""
    jobs, few = curves.jobs, len(curves.jobs) <= _FEW
    two = few and len(panel.names) > 1 and len(jobs) > 1
    rows: dict[str, tuple[bool, dict[str, Any]]] = {
        _spoken(panel.names[0]): (two, {"linewidth": 1.9}),
        _spoken(panel.names[-1]): (two, {"linewidth": 1.3, "linestyle": _DASHES}),
        "lost, done again": (first and few and any(job.lost for job in jobs), {"color": _FAINT, "linestyle": _DOTS}),
        "went on here": (first and few and any(job.resumed for job in jobs), _RING),
        f"{panel.title} not finite": (not few and _any_broken(curves, panel), _CROSS),
    }
    for label, style in ((label, style) for label, (wanted, style) in rows.items() if wanted):
        axis.plot([], [], **{"color": _INK, "label": label, **style})
    if any(wanted for wanted, _ in rows.values()):
        axis.legend(loc="best", frameon=False, fontsize=9, handlelength=2.2, labelcolor=_INK)


def _any_broken(curves: Curves, panel: Panel) -> bool:
    return any(curve.broken_at(panel.names[0]) is not None for curve in curves.jobs)


# Many jobs: the colour tells how each ended


def _draw_many(axis: Any, curves: Curves, panel: Panel) -> list[End]:
    from matplotlib import colormaps

    name, shades = panel.names[0], colormaps["viridis"]
    ranked = _ranked(curves.jobs, name)
    colours = {curve.job: shades(_SHADES * rank / max(1, len(ranked) - 1)) for rank, (curve, _) in enumerate(ranked)}
    width, alpha = (0.9, 0.55) if len(curves.jobs) > _CROWD else (1.4, 0.85)
    for curve in curves.jobs:
        line = smoothed(thinned(curve.lines.get(name, ()), _MANY_POINTS))
        axis.plot(*_columns(line), color=colours.get(curve.job, _RED), linewidth=width, alpha=alpha)
        if curve.broken_at(name) is not None and _finite(line):
            _mark_broken(axis, _finite(line)[-1])
    return list(_notable(ranked, panel, colours))


def _ranked(jobs: Sequence[Curve], name: str) -> list[tuple[Curve, float]]:
    """From the best to the worst: of losses the least is the best."""
    ended = [(curve, value) for curve in jobs if (value := _settled(curve, name)) is not None]
    return sorted(ended, key=lambda end: end[1], reverse="loss" not in name)


def _settled(curve: Curve, name: str) -> float | None:
    finite = _finite(smoothed(thinned(curve.lines.get(name, ()), _MANY_POINTS)))
    return finite[-1][1] if finite and curve.broken_at(name) is None else None


def _notable(ranked: list[tuple[Curve, float]], panel: Panel, colours: dict[str, Any]) -> Iterator[End]:
    places = {"best": 0, "median": len(ranked) // 2, "worst": len(ranked) - 1}
    for word, place in places.items() if ranked else ():
        curve, value = ranked[place]
        yield End(value, f"{word}  {_figure(value, panel)}", colours[curve.job], below=_short(curve.label))


def _mark_broken(axis: Any, at: Point) -> None:
    axis.plot(*at, zorder=5, **_CROSS)


# Names at the ends of lines


def _name_ends(axis: Any, ends: list[End]) -> None:
    """To the right of the panel, each as near to the end of its line as the others allow."""
    axis.autoscale_view()
    to_panel = axis.transData + axis.transAxes.inverted()
    places = [float(to_panel.transform((axis.get_xlim()[1], end.value))[1]) for end in ends]
    apart = _LABELS_APART * (2.2 if any(end.below for end in ends) else 1)
    where = {"xycoords": axis.transAxes, "textcoords": "offset points", "va": "center_baseline"}
    for end, place in zip(ends, spread(places, apart), strict=True):
        axis.plot([1.013], [place], "o", transform=axis.transAxes, color=end.colour, markersize=4, clip_on=False)
        ink = _INK if end.below else end.colour
        axis.annotate(end.words, (1.013, place), (8, 0), color=ink, fontsize=9.5, **where)
        axis.annotate(end.below, (1.013, place), (8, -12), color=_FAINT, fontsize=8.5, **where)


def spread(places: Sequence[float], apart: float) -> list[float]:
    """The same places, moved until neighbours are so far apart; the order stays, and so does their middle."""
    order = sorted(range(len(places)), key=lambda number: places[number])
    blocks: list[list[float]] = []  # [sum of wishes, how many]: names that touch share their middle
    for number in order:
        blocks.append([places[number], 1])
        while len(blocks) > 1 and _top(blocks[-2], apart) + apart > _bottom(blocks[-1], apart):
            total, count = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + count]
    spots = [_bottom(block, apart) + apart * row for block in blocks for row in range(int(block[1]))]
    return [spot for _, spot in sorted(zip(order, spots, strict=True))]


def _bottom(block: list[float], apart: float) -> float:
    return block[0] / block[1] - apart * (block[1] - 1) / 2


def _top(block: list[float], apart: float) -> float:
    return block[0] / block[1] + apart * (block[1] - 1) / 2


def _finite(line: Sequence[Point]) -> list[Point]:
    return [point for point in line if math.isfinite(point[1])]


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…"


def _figure(value: float, panel: Panel) -> str:
    return f"{value:.1%}" if panel.percent else f"{value:.3g}"


def _columns(line: Sequence[Point]) -> tuple[list[float], list[float]]:
    """As matplotlib has it; what is not finite leaves a gap."""
    values = [value if math.isfinite(value) else math.nan for _, value in line]
    return [step for step, _ in line], values
