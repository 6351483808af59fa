"""The command line of a benchmark, and its results: a table of metrics and bounds, and a JSON line."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Collection, Mapping

from harness.measure import print_progress, to_json_number

Metrics = dict[str, float]
Bounds = Mapping[str, tuple[str, float]]  # minimum (+) or maximum (-)


def make_parser(description: str, parts: Collection[str] = ()) -> argparse.ArgumentParser:
    """Return a parser with --json, and with --only if there are parts."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--json", action="store_true", help="print the JSON line to stdout (the table is always on stderr)"
    )
    parser.set_defaults(load_before=round(os.getloadavg()[0], 2))

    def parse_parts(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in parts]:
            raise argparse.ArgumentTypeError(f"there is no part {', '.join(unknown)}; available are {', '.join(parts)}")
        return names

    if parts:
        parser.add_argument("--only", type=parse_parts, default=list(parts), metavar="PART,…", help=", ".join(parts))
    return parser


def report_results(
    benchmark: str, args: argparse.Namespace, metrics: Mapping[str, float], bounds: Bounds, **metadata: object
) -> None:
    """Print the table, and the JSON line with --json."""
    print_progress(f"\n{'metric':<32} {'value':>10}   bound")
    for name, value in metrics.items():
        print_progress(f"{name:<32} {value:>10.3f}   {_format_bound(value, *bounds.get(name, ('', 0.0)))}")
    if args.json:
        values = {name: to_json_number(value) for name, value in metrics.items()}
        print(json.dumps({"bench": benchmark, **metadata, "load_before": args.load_before, **values}))


def _format_bound(value: float, sign: str, bound: float) -> str:
    is_missed = (sign == "+" and value < bound) or (sign == "-" and value > bound)
    return f"{'≥' if sign == '+' else '≤'} {bound:g}{'   MISSED' if is_missed else ''}" if sign else ""
