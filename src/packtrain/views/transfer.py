"""A transfer drawn for a terminal, told in plain lines, and summed up at its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from packtrain import formatting
from packtrain.transfer.progress import SourceRate

_BAR = 28
_WINDOW_S = 5.0
_STEP_S = 0.05  # moments closer than this are not kept: a fast transfer has thousands a second
_SOURCES_SHOWN = 8


@dataclass(frozen=True)
class Picture:
    """A transfer at one moment."""

    verb: str  # fetch, unpack, upload, checksums
    name: str
    done: int = 0
    total: int | None = None
    rate: float | None = None  # bytes a second; None: not known yet
    lanes: tuple[SourceRate, ...] = ()

    @property
    def left_s(self) -> float | None:
        if self.total is None or not self.rate:
            return None
        return max(0, self.total - self.done) / self.rate


class Meter:
    """The speed of the last seconds, from the bytes done at moments that grow."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, now: float, done: int) -> float | None:
        """The rate with this moment counted; None until there are two."""
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()  # begun anew
        if not self._seen or now >= self._seen[-1][0] + _STEP_S:
            self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW_S:
            self._seen.popleft()
        then, before = self._seen[0]
        return (done - before) / (now - then) if now > then else None


def draw(picture: Picture) -> RenderableType:
    """A bar with its figures, and below it every source with its rate."""
    table = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=picture.total, completed=picture.done, width=_BAR, pulse=not picture.total)
    table.add_row(Text(picture.name, "bold"), bar, Text(" · ".join(_figures(picture)), "dim"))
    return Group(table, *(_lane(lane) for lane in picture.lanes[:_SOURCES_SHOWN]), *_more(picture))


def _lane(lane: SourceRate) -> Text:
    speed = ("rests", "yellow") if lane.resting else (_speed(lane.rate), "cyan")
    connections = "" if lane.resting else f"  {_count(lane.connections, 'connection')}"
    return Text.assemble("  ", lane.label, "  ", speed, (connections, "dim"))


def _more(picture: Picture) -> list[Text]:
    more = len(picture.lanes) - _SOURCES_SHOWN
    return [Text(f"  … and {_count(more, 'more source')}", "dim")] if more > 0 else []


def line(picture: Picture) -> str:
    """data.tar: fetch 1.2 GB of 5.0 GB · 24% · 112 MB/s · 34 s left · from a.example 80 MB/s"""
    lanes = ", ".join(f"{lane.label} {'rests' if lane.resting else _speed(lane.rate)}" for lane in picture.lanes)
    parts = [*_figures(picture), f"from {lanes}" if lanes else ""]
    return f"{picture.name}: {picture.verb} {' · '.join(part for part in parts if part)}"


def _figures(picture: Picture) -> list[str]:
    parts = [formatting.size(picture.done)]
    if picture.total:
        parts = [f"{parts[0]} of {formatting.size(picture.total)}", f"{picture.done / picture.total:.0%}"]
    if picture.rate is not None:
        parts.append(_speed(picture.rate))
    if picture.left_s is not None:
        parts.append(f"{formatting.duration(picture.left_s)} left")
    return parts


@dataclass(frozen=True)
class Account:
    """What a transfer cost."""

    bytes: int
    seconds: float
    by_source: tuple[tuple[str, int], ...] = ()
    retries: int = 0
    stalls: int = 0
    hedges: int = 0
    wasted_bytes: int = 0


def account_line(account: Account) -> str:
    """5.0 GB in 44 s (113 MB/s) from a.example · 2 retries, 1 stall survived, 3.1 MB wasted"""
    speed = f" ({_speed(account.bytes / account.seconds)})" if account.seconds > 0 and account.bytes else ""
    taken = f"{formatting.size(account.bytes)} in {formatting.duration(account.seconds)}{speed}"
    return " · ".join(part for part in (taken + _origin(account.by_source), _troubles(account)) if part)


def _origin(by_source: Iterable[tuple[str, int]]) -> str:
    sources = sorted(((count, label) for label, count in by_source if count), reverse=True)
    if not sources:
        return ""
    if len(sources) == 1:
        return f" from {sources[0][1]}"
    told = ", ".join(f"{label} {formatting.size(count)}" for count, label in sources[:_SOURCES_SHOWN])
    return f" from {_count(len(sources), 'source')} ({told})"


def _troubles(account: Account) -> str:
    troubles = (
        (account.retries, f"{account.retries} {'retry' if account.retries == 1 else 'retries'}"),
        (account.stalls, f"{_count(account.stalls, 'stall')} survived"),
        (account.hedges, f"{_count(account.hedges, 'block')} asked for twice"),
        (account.wasted_bytes, f"{formatting.size(account.wasted_bytes)} wasted"),
    )
    return ", ".join(words for count, words in troubles if count)


def _speed(rate: float) -> str:
    return f"{formatting.size(rate)}/s"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
