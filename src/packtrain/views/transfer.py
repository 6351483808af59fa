"""Transfers rendered for a terminal, as plain lines, and as a summary at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from packtrain import formatting
from packtrain.transfer.fetch import FetchResult
from packtrain.transfer.progress import SourceRate

_BAR_WIDTH = 28
_RATE_WINDOW_S = 5.0
_MIN_SAMPLE_INTERVAL_S = 0.05  # a fast transfer reports thousands of times per second
_MAX_SOURCES = 8


@dataclass(frozen=True)
class TransferView:
    """A snapshot of a transfer."""

    operation: str  # fetch, unpack, upload, checksums
    name: str
    done_bytes: int = 0
    total_bytes: int | None = None
    bytes_per_s: float | None = None  # None: not known yet
    sources: tuple[SourceRate, ...] = ()

    @property
    def remaining_s(self) -> float | None:
        """The estimated remaining time; None if not known."""
        if self.total_bytes is None or not self.bytes_per_s:
            return None
        return max(0, self.total_bytes - self.done_bytes) / self.bytes_per_s


class RateMeter:
    """Measures the average speed over the last seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now: float, done_bytes: int) -> float | None:
        """Add a sample and return the speed in bytes per second, or None if there is only one sample.

        Args:
            now: Monotonic time in seconds.
            done_bytes: Bytes transferred so far. If it decreases, the transfer was restarted.
        """
        if self._samples and done_bytes < self._samples[-1][1]:
            self._samples.clear()
        if not self._samples or now >= self._samples[-1][0] + _MIN_SAMPLE_INTERVAL_S:
            self._samples.append((now, done_bytes))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _RATE_WINDOW_S:
            self._samples.popleft()
        first_at, first_bytes = self._samples[0]
        return (done_bytes - first_bytes) / (now - first_at) if now > first_at else None


def render_transfer(view: TransferView) -> RenderableType:
    """Render a progress bar, and one line with the speed of each source below it."""
    table = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=view.total_bytes, completed=view.done_bytes, width=_BAR_WIDTH, pulse=not view.total_bytes)
    table.add_row(Text(view.name, "bold"), bar, Text(" · ".join(_format_amounts(view)), "dim"))
    return Group(table, *map(_render_source, view.sources[:_MAX_SOURCES]), *_hidden_sources_note(view))


def _render_source(source: SourceRate) -> Text:
    speed = ("backing off", "yellow") if source.is_backing_off else (formatting.format_rate(source.bytes_per_s), "cyan")
    connections = "" if source.is_backing_off else f"  {_count_noun(source.connections, 'connection')}"
    return Text.assemble("  ", source.label, "  ", speed, (connections, "dim"))


def _hidden_sources_note(view: TransferView) -> list[Text]:
    more = len(view.sources) - _MAX_SOURCES
    return [Text(f"  … and {_count_noun(more, 'more source')}", "dim")] if more > 0 else []


def format_transfer(view: TransferView) -> str:
    """Return one line: `data.tar: fetch 1.2 GB of 5 GB · 24% · 112 MB/s · 34 s left · from a.example 80 MB/s`."""
    sources = ", ".join(
        f"{source.label} {'backing off' if source.is_backing_off else formatting.format_rate(source.bytes_per_s)}"
        for source in view.sources
    )
    parts = [*_format_amounts(view), f"from {sources}" if sources else ""]
    return f"{view.name}: {view.operation} {' · '.join(part for part in parts if part)}"


def _format_amounts(view: TransferView) -> list[str]:
    parts = [formatting.format_size(view.done_bytes)]
    if view.total_bytes:
        parts = [
            f"{parts[0]} of {formatting.format_size(view.total_bytes)}",
            formatting.format_percent(view.done_bytes / view.total_bytes),
        ]
    if view.bytes_per_s is not None:
        parts.append(formatting.format_rate(view.bytes_per_s))
    if view.remaining_s is not None:
        parts.append(f"{formatting.format_duration(view.remaining_s)} left")
    return parts


@dataclass(frozen=True)
class TransferTotals:
    """The totals of a finished transfer."""

    size_bytes: int
    duration_s: float
    bytes_by_source: tuple[tuple[str, int], ...] = ()
    retries: int = 0
    stalls: int = 0
    hedges: int = 0  # blocks that were requested twice
    wasted_bytes: int = 0


def fetch_totals(result: FetchResult) -> TransferTotals:
    """Return the totals of a download."""
    return TransferTotals(
        result.bytes,
        result.duration_s,
        tuple(result.bytes_by_source.items()),
        result.retries,
        result.stalls,
        result.hedges,
        result.wasted_bytes,
    )


def format_totals(totals: TransferTotals) -> str:
    """Return one line: `5 GB in 44 s (113 MB/s) from a.example · 2 retries, 1 stall recovered, 3.1 MB wasted`."""
    speed = (
        f" ({formatting.format_rate(totals.size_bytes / totals.duration_s)})"
        if totals.duration_s > 0 and totals.size_bytes
        else ""
    )
    amount = f"{formatting.format_size(totals.size_bytes)} in {formatting.format_duration(totals.duration_s)}{speed}"
    return " · ".join(
        part for part in (amount + _format_sources(totals.bytes_by_source), _format_problems(totals)) if part
    )


def _format_sources(bytes_by_source: Iterable[tuple[str, int]]) -> str:
    sources = sorted(((count, label) for label, count in bytes_by_source if count), reverse=True)
    if not sources:
        return ""
    if len(sources) == 1:
        return f" from {sources[0][1]}"
    amounts = ", ".join(f"{label} {formatting.format_size(count)}" for count, label in sources[:_MAX_SOURCES])
    return f" from {_count_noun(len(sources), 'source')} ({amounts})"


def _format_problems(totals: TransferTotals) -> str:
    problems = (
        (totals.retries, f"{totals.retries} {'retry' if totals.retries == 1 else 'retries'}"),
        (totals.stalls, f"{_count_noun(totals.stalls, 'stall')} recovered"),
        (totals.hedges, f"{_count_noun(totals.hedges, 'block')} requested twice"),
        (totals.wasted_bytes, f"{formatting.format_size(totals.wasted_bytes)} wasted"),
    )
    return ", ".join(text for count, text in problems if count)


def _count_noun(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
