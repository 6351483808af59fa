"""How benches begin and end: which parts are asked for; the figures beside their bounds; the JSON line."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Collection, Mapping

from harness.measure import plain, tell

Figures = dict[str, float]
Bounds = Mapping[str, tuple[str, float]]  # at least (+) or at most (-)


def parser(description: str, parts: Collection[str] = ()) -> argparse.ArgumentParser:
    """With --json, and with --only if there are parts."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--json", action="store_true", help="the JSON line on stdout (the table is always on stderr)")
    made.set_defaults(load_before=round(os.getloadavg()[0], 2))

    def chosen(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in parts]:
            raise argparse.ArgumentTypeError(f"no part {', '.join(unknown)}; there are {', '.join(parts)}")
        return names

    if parts:
        made.add_argument("--only", type=chosen, default=list(parts), metavar="PART,…", help=", ".join(parts))
    return made


def give(bench: str, given: argparse.Namespace, figures: Mapping[str, float], bounds: Bounds, **about: object) -> None:
    """The table, and the JSON line if it is asked for."""
    tell(f"\n{'figure':<32} {'seen':>10}   bound")
    for name, seen in figures.items():
        tell(f"{name:<32} {seen:>10.3f}   {_beside(seen, *bounds.get(name, ('', 0.0)))}")
    if given.json:
        seen = {name: plain(figure) for name, figure in figures.items()}
        print(json.dumps({"bench": bench, **about, "load_before": given.load_before, **seen}))


def _beside(seen: float, sign: str, bound: float) -> str:
    short = (sign == "+" and seen < bound) or (sign == "-" and seen > bound)
    return f"{'≥' if sign == '+' else '≤'} {bound:g}{'   FALLS SHORT' if short else ''}" if sign else ""
