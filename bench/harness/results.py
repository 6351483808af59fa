"""How benches begin and end: which parts are asked for; the figures beside their bounds; the JSON line."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Collection, Mapping

from harness.measure import print_progress, to_json_number

Metrics = dict[str, float]
Bounds = Mapping[str, tuple[str, float]]  # at least (+) or at most (-)


def make_parser(description: str, parts: Collection[str] = ()) -> argparse.ArgumentParser:
    """With --json, and with --only if there are parts."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--json", action="store_true", help="the JSON line on stdout (the table is always on stderr)")
    made.set_defaults(load_before=round(os.getloadavg()[0], 2))

    def parse_parts(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in parts]:
            raise argparse.ArgumentTypeError(f"no part {', '.join(unknown)}; there are {', '.join(parts)}")
        return names

    if parts:
        made.add_argument("--only", type=parse_parts, default=list(parts), metavar="PART,…", help=", ".join(parts))
    return made


def report_results(
    benchmark: str, args: argparse.Namespace, metrics: Mapping[str, float], bounds: Bounds, **metadata: object
) -> None:
    """The table, and the JSON line if it is asked for."""
    print_progress(f"\n{'figure':<32} {'seen':>10}   bound")
    for name, seen in metrics.items():
        print_progress(f"{name:<32} {seen:>10.3f}   {_format_bound(seen, *bounds.get(name, ('', 0.0)))}")
    if args.json:
        seen = {name: to_json_number(figure) for name, figure in metrics.items()}
        print(json.dumps({"bench": benchmark, **metadata, "load_before": args.load_before, **seen}))


def _format_bound(value: float, sign: str, bound: float) -> str:
    short = (sign == "+" and value < bound) or (sign == "-" and value > bound)
    return f"{'≥' if sign == '+' else '≤'} {bound:g}{'   FALLS SHORT' if short else ''}" if sign else ""
