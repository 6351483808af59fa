"""Spans that follow each other."""

from __future__ import annotations

from collections.abc import Iterable

from packtrain.report.history import PhaseSpan


def merge_spans(spans: Iterable[PhaseSpan]) -> tuple[PhaseSpan, ...]:
    """Without empty ones; neighbours of one kind are one. If all are empty, the last one is left."""
    made: list[PhaseSpan] = []
    last: PhaseSpan | None = None
    for span in spans:
        last = span
        if span.end <= span.start:
            continue
        if made and made[-1].phase is span.phase:
            made[-1] = PhaseSpan(span.phase, made[-1].start, span.end)
        else:
            made.append(span)
    return tuple(made) or ((PhaseSpan(last.phase, last.end, last.end),) if last else ())
