"""Plots the training of a run as an image file: loss above, metric below, one line per job.

Up to eight jobs have their own color and label. Of more jobs, the color shows the rank of the final value, and only the
best, the median and the worst are labeled. matplotlib is imported when a plot is drawn.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packtrain.errors import UsageError
from packtrain.fileutil import atomic_writer
from packtrain.report.charts.smoothing import downsample, smooth_line
from packtrain.report.readers.training_curves import CurvePoint, TrainingCurve, TrainingCurves

FORMATS = (".png", ".svg", ".pdf")
_MAX_NAMED_JOBS, _MANY_JOBS = 8, 40
_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#4D4D4D")
_TEXT_COLOR, _MUTED_COLOR, _ERROR_COLOR = "#222222", "#8A8A8A", "#C62828"
_DASHED, _DOTTED = (0, (4, 2)), (0, (1, 1.5))
_CROSS_MARKER = {"marker": "X", "markersize": 8, "color": _ERROR_COLOR, "markeredgecolor": "white", "linestyle": "none"}
_RING_MARKER = {"marker": "o", "markersize": 6.5, "markerfacecolor": "white", "linestyle": "none"}
_LABEL_BOX = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1}
_SECONDARY_METRICS = ("_per_second", "_per_s", "lr", "learning_rate")  # plotted only if there is no other metric
_MAX_POINTS_WITH_MARKERS = 40  # longer lines have no markers
_MAX_POINTS_PER_LINE = 200  # if there are many lines
_COLORMAP_LIMIT = 0.87  # brighter colors are invisible on white
_MIN_LABEL_SPACING = 0.066  # fraction of the panel height
_MAX_LABEL_LENGTH = 20
_MIN_RATIO_FOR_LOG_AXIS = 40.0  # highest / lowest loss
_STYLE: dict[Any, Any] = {
    "font.size": 10.5,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#BBBBBB",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelcolor": _TEXT_COLOR,
    "grid.color": "#EBEBEB",
    "xtick.color": _MUTED_COLOR,
    "ytick.color": _MUTED_COLOR,
    "xtick.labelcolor": _TEXT_COLOR,
    "ytick.labelcolor": _TEXT_COLOR,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "text.parse_math": False,  # names may contain dollar signs
}


def save_training_plot(curves: TrainingCurves, path: Path, subtitle: str = "") -> None:
    """Write the plot to a file with one of the suffixes in FORMATS. The file is either complete or absent."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path.name} has an unknown image format; use one of {', '.join(FORMATS)}")
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it logs warnings about fonts
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10, 6.6 if len(choose_panels(curves)) > 1 else 4.2), dpi=150, facecolor="white")
        _draw_figure(figure, curves, subtitle)
        with atomic_writer(path) as file:
            figure.savefig(file, format=path.suffix[1:].lower())


@dataclass(frozen=True)
class MetricPanel:
    """One of the plots above each other."""

    title: str
    metrics: tuple[str, ...]  # the first is the main one
    is_percent: bool = False

    def format_value(self, value: float) -> str:
        return f"{value:.1%}" if self.is_percent else f"{value:.3g}"


def choose_panels(curves: TrainingCurves) -> list[MetricPanel]:
    """Choose the panels: the loss, and one metric of the quality of the model."""
    names = [name for name in curves.metrics if not name.endswith(_SECONDARY_METRICS)] or list(curves.metrics)
    losses = [name for name in names if "loss" in name]
    others = [name for name in names if name not in losses]
    metrics = [name for name in others if "acc" in name] or others[:1]
    return [_make_panel(curves, chosen) for chosen in (losses, metrics) if chosen]


def _make_panel(curves: TrainingCurves, metrics: list[str]) -> MetricPanel:
    """Make a panel with at most two metrics: one of training and one of validation."""
    tests = [name for name in metrics if name.startswith(("test", "val", "eval"))]
    trains = [name for name in metrics if name not in tests]
    chosen = (*trains[:1], *tests[:1]) if len(curves.jobs) <= _MAX_NAMED_JOBS else (trains or tests)[:1]
    best = max((curve.last_finite(name) or 0.0 for curve in curves.jobs for name in chosen), default=0.0)
    return MetricPanel(_display_name(chosen[0]), tuple(chosen), "acc" in chosen[0] and best <= 1)


def _display_name(name: str) -> str:
    return name.replace("_", " ")


def _draw_figure(figure: Any, curves: TrainingCurves, subtitle: str) -> None:
    from matplotlib.ticker import MaxNLocator

    panels = choose_panels(curves)
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    height = figure.get_figheight()
    figure.subplots_adjust(left=0.085, right=0.765, top=1 - 0.86 / height, bottom=0.6 / height, hspace=0.16)
    draw = _draw_named_jobs if len(curves.jobs) <= _MAX_NAMED_JOBS else _draw_ranked_jobs
    for axis, panel in zip(axes, panels, strict=True):
        ends = draw(axis, curves, panel)
        _format_axis(axis, curves, panel)
        _draw_line_labels(axis, ends)
        _draw_legend(axis, curves, panel, first=axis is axes[0])
    axes[-1].set_xlabel(curves.x_axis)
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-1].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    figure.text(0.085, 1 - 0.36 / height, curves.run, fontsize=15, fontweight="bold", color=_TEXT_COLOR)
    figure.text(0.085, 1 - 0.6 / height, subtitle, fontsize=10, color=_MUTED_COLOR)


def _format_axis(axis: Any, curves: TrainingCurves, panel: MetricPanel) -> None:
    axis.set_ylabel(panel.title)
    axis.tick_params(length=0)
    axis.margins(x=0.01)
    if panel.is_percent:
        axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%")
    elif _needs_log_axis(curves, panel):
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.yaxis.set_minor_formatter(lambda value, _: "")


def _needs_log_axis(curves: TrainingCurves, panel: MetricPanel) -> bool:
    lines = (smooth_line(curve.series.get(panel.metrics[0], ())) for curve in curves.jobs)
    values = [value for line in lines for _, value in line if math.isfinite(value)]
    return (
        "loss" in panel.metrics[0]
        and bool(values)
        and min(values) > 0
        and max(values) / min(values) > _MIN_RATIO_FOR_LOG_AXIS
    )


@dataclass(frozen=True)
class LineLabel:
    """The label at the end of a line."""

    value: float
    text: str
    color: Any
    subtext: str = ""  # a second row in a smaller font


# Few jobs: a color and a label each


def _draw_named_jobs(axis: Any, curves: TrainingCurves, panel: MetricPanel) -> list[LineLabel]:
    single = len(curves.jobs) == 1
    ends = []
    for number, curve in enumerate(curves.jobs):
        for second, name in enumerate(panel.metrics):
            color = _PALETTE[second if single else number]
            _draw_line(axis, curve, name, color, dashed=bool(second) and not single)
            if single or not second:
                _draw_markers(axis, curve, name, color)
                ends += _line_label(curve, name, panel, color, _display_name(name) if single else curve.label)
    return ends


def _line_label(curve: TrainingCurve, metric: str, panel: MetricPanel, color: str, label: str) -> list[LineLabel]:
    finite = _finite_points(smooth_line(downsample(curve.series.get(metric, ()))))
    if not finite:
        return []
    value = finite[-1][1]
    value_text = "nan" if curve.nonfinite_from(metric) is not None else panel.format_value(value)
    return [LineLabel(value, f"{_shorten(label)}  {value_text}", color)]


def _draw_line(axis: Any, curve: TrainingCurve, metric: str, color: str, dashed: bool) -> None:
    line = downsample(curve.series.get(metric, ()))
    smooth = smooth_line(line)
    for segment in curve.discarded.get(metric, ()):
        axis.plot(
            *_to_xy(smooth_line(downsample(segment))), color=_MUTED_COLOR, linewidth=1.1, linestyle=_DOTTED, zorder=2
        )
    if smooth != line:
        axis.plot(*_to_xy(line), color=color, linewidth=0.7, alpha=0.25, zorder=2)
    style = {"linestyle": _DASHED, "linewidth": 1.3} if dashed else {"linewidth": 1.9}
    marker = "o" if len(line) <= _MAX_POINTS_WITH_MARKERS else None
    axis.plot(*_to_xy(smooth), color=color, marker=marker, markersize=3.2, zorder=3, **style)


def _draw_markers(axis: Any, curve: TrainingCurve, metric: str, color: str) -> None:
    """Mark where the job resumed, and where the metric became NaN."""
    smooth = _finite_points(smooth_line(downsample(curve.series.get(metric, ()))))
    for step in curve.resume_steps if smooth and "loss" in metric else ():
        at = min(smooth, key=lambda point: abs(point[0] - step))
        axis.plot(*at, marker="o", markersize=6.5, markerfacecolor="white", markeredgecolor=color, zorder=4)
    nonfinite_step = curve.nonfinite_from(metric)
    if nonfinite_step is not None and smooth:
        _mark_nonfinite(axis, smooth[-1])
        text = f"{_display_name(metric)} is not finite from {nonfinite_step:,.0f} on"
        style = {"color": _ERROR_COLOR, "fontsize": 9, "zorder": 5, "bbox": _LABEL_BOX}
        axis.annotate(text, smooth[-1], (8, 8), textcoords="offset points", **style)


def _draw_legend(axis: Any, curves: TrainingCurves, panel: MetricPanel, first: bool) -> None:
    """Explain markers and line styles other than plain lines, once per figure."""
    jobs, few = curves.jobs, len(curves.jobs) <= _MAX_NAMED_JOBS
    two = few and len(panel.metrics) > 1 and len(jobs) > 1
    rows: dict[str, tuple[bool, dict[str, Any]]] = {
        _display_name(panel.metrics[0]): (two, {"linewidth": 1.9}),
        _display_name(panel.metrics[-1]): (two, {"linewidth": 1.3, "linestyle": _DASHED}),
        "discarded, repeated": (
            first and few and any(job.discarded for job in jobs),
            {"color": _MUTED_COLOR, "linestyle": _DOTTED},
        ),
        "resumed": (first and few and any(job.resume_steps for job in jobs), _RING_MARKER),
        f"{panel.title} not finite": (not few and _has_nonfinite(curves, panel), _CROSS_MARKER),
    }
    for label, style in ((label, style) for label, (is_shown, style) in rows.items() if is_shown):
        axis.plot([], [], **{"color": _TEXT_COLOR, "label": label, **style})
    if any(is_shown for is_shown, _ in rows.values()):
        axis.legend(loc="best", frameon=False, fontsize=9, handlelength=2.2, labelcolor=_TEXT_COLOR)


def _has_nonfinite(curves: TrainingCurves, panel: MetricPanel) -> bool:
    return any(curve.nonfinite_from(panel.metrics[0]) is not None for curve in curves.jobs)


# Many jobs: the color shows the rank


def _draw_ranked_jobs(axis: Any, curves: TrainingCurves, panel: MetricPanel) -> list[LineLabel]:
    from matplotlib import colormaps

    name, shades = panel.metrics[0], colormaps["viridis"]
    ranked = _rank_curves(curves.jobs, name)
    colors = {
        curve.job_id: shades(_COLORMAP_LIMIT * rank / max(1, len(ranked) - 1)) for rank, (curve, _) in enumerate(ranked)
    }
    width, alpha = (0.9, 0.55) if len(curves.jobs) > _MANY_JOBS else (1.4, 0.85)
    for curve in curves.jobs:
        line = smooth_line(downsample(curve.series.get(name, ()), _MAX_POINTS_PER_LINE))
        axis.plot(*_to_xy(line), color=colors.get(curve.job_id, _ERROR_COLOR), linewidth=width, alpha=alpha)
        if curve.nonfinite_from(name) is not None and _finite_points(line):
            _mark_nonfinite(axis, _finite_points(line)[-1])
    return list(_ranked_labels(ranked, panel, colors))


def _rank_curves(jobs: Sequence[TrainingCurve], metric: str) -> list[tuple[TrainingCurve, float]]:
    """Sort from the best to the worst: losses ascending, other metrics descending."""
    ended = [(curve, value) for curve in jobs if (value := _final_value(curve, metric)) is not None]
    return sorted(ended, key=lambda end: end[1], reverse="loss" not in metric)


def _final_value(curve: TrainingCurve, metric: str) -> float | None:
    finite = _finite_points(smooth_line(downsample(curve.series.get(metric, ()), _MAX_POINTS_PER_LINE)))
    return finite[-1][1] if finite and curve.nonfinite_from(metric) is None else None


def _ranked_labels(
    ranked: list[tuple[TrainingCurve, float]], panel: MetricPanel, colors: dict[str, Any]
) -> Iterator[LineLabel]:
    ranks = {"best": 0, "median": len(ranked) // 2, "worst": len(ranked) - 1}
    for name, rank in ranks.items() if ranked else ():
        curve, value = ranked[rank]
        yield LineLabel(
            value, f"{name}  {panel.format_value(value)}", colors[curve.job_id], subtext=_shorten(curve.label)
        )


def _mark_nonfinite(axis: Any, point: CurvePoint) -> None:
    axis.plot(*point, zorder=5, **_CROSS_MARKER)


# Labels at the ends of lines


def _draw_line_labels(axis: Any, labels: list[LineLabel]) -> None:
    """Draw the labels to the right of the panel, as close to the ends of their lines as possible."""
    axis.autoscale_view()
    to_panel = axis.transData + axis.transAxes.inverted()
    positions = [float(to_panel.transform((axis.get_xlim()[1], end.value))[1]) for end in labels]
    min_spacing = _MIN_LABEL_SPACING * (2.2 if any(end.subtext for end in labels) else 1)
    where = {"xycoords": axis.transAxes, "textcoords": "offset points", "va": "center_baseline"}
    for end, y in zip(labels, spread_labels(positions, min_spacing), strict=True):
        axis.plot([1.013], [y], "o", transform=axis.transAxes, color=end.color, markersize=4, clip_on=False)
        color = _TEXT_COLOR if end.subtext else end.color
        axis.annotate(end.text, (1.013, y), (8, 0), color=color, fontsize=9.5, **where)
        axis.annotate(end.subtext, (1.013, y), (8, -12), color=_MUTED_COLOR, fontsize=8.5, **where)


def spread_labels(positions: Sequence[float], min_spacing: float) -> list[float]:
    """Move positions until neighbors are `min_spacing` away. Their order and the mean of each group are preserved."""
    order = sorted(range(len(positions)), key=lambda number: positions[number])
    blocks: list[list[float]] = []  # [sum of positions, count]: labels that touch form a block around their mean
    for number in order:
        blocks.append([positions[number], 1])
        while len(blocks) > 1 and _top(blocks[-2], min_spacing) + min_spacing > _bottom(blocks[-1], min_spacing):
            total, count = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + count]
    spread = [_bottom(block, min_spacing) + min_spacing * row for block in blocks for row in range(int(block[1]))]
    return [position for _, position in sorted(zip(order, spread, strict=True))]


def _bottom(block: list[float], min_spacing: float) -> float:
    return block[0] / block[1] - min_spacing * (block[1] - 1) / 2


def _top(block: list[float], min_spacing: float) -> float:
    return block[0] / block[1] + min_spacing * (block[1] - 1) / 2


def _finite_points(line: Sequence[CurvePoint]) -> list[CurvePoint]:
    return [point for point in line if math.isfinite(point[1])]


def _shorten(label: str) -> str:
    return label if len(label) <= _MAX_LABEL_LENGTH else label[: _MAX_LABEL_LENGTH - 1] + "…"


def _to_xy(line: Sequence[CurvePoint]) -> tuple[list[float], list[float]]:
    """Return x and y values for matplotlib. Values that are not finite become NaN and leave a gap."""
    values = [value if math.isfinite(value) else math.nan for _, value in line]
    return [step for step, _ in line], values
