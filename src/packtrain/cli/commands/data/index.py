"""packtrain index"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from packtrain import formatting
from packtrain.cli.ui.credentials import credential_options
from packtrain.cli.ui.index_progress import RESUME_HINT, get_or_build_index
from packtrain.cli.ui.options import retry_timeout_option
from packtrain.cli.ui.output import json_option, print_result
from packtrain.cli.ui.transfer_progress import cancel_on_signal
from packtrain.data.credentials import CredentialOptions
from packtrain.data.index_options import BUILT, CACHED, PUBLISHED, Index, IndexOptions, IndexResult
from packtrain.formatting import pluralize

_ORIGIN_TEXTS = {BUILT: "indexed in {}", CACHED: "indexed before", PUBLISHED: "index found next to the data"}
_MAX_CLASSES_SHOWN = 12
_N_BINS, _MIN_POWER_OF_TWO_BINS = 10, 5
_BAR_WIDTH, _BAR_CHARS = 32, " ▏▎▍▌▋▊▉█"


@click.command(name="index")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", help="File to write (default: the user's index cache).")
@click.option("--mirror", "mirrors", metavar="URL", multiple=True, help="Another URL of the same archive.")
@click.option("--prefix", metavar="PREFIX", default="", help="Only files whose names start with this, e.g. train/")
@click.option(
    "--group/--no-group",
    default=None,
    help="Group files that differ in extension only to one sample (default: detect).",
)
@click.option("--force", is_flag=True, help="Build the index even if there is one.")
@click.option("--show", "with_details", is_flag=True, help="Show classes, counts and sizes.")
@retry_timeout_option("How long to retry when all sources fail.")
@credential_options
@json_option
def command(
    urls: tuple[str, ...],
    output: str | None,
    mirrors: tuple[str, ...],
    prefix: str,
    group: bool | None,
    force: bool,
    with_details: bool,
    retry_timeout_s: float,
    credentials: CredentialOptions,
    as_json: bool,
) -> None:
    """Index the samples of an archive, so that jobs can stream them from where the archive is stored.

    URL is a tar, a tar of tars, WebDataset shards (`train-{000..146}.tar`), an uncompressed zip, or a folder of files
    (ends in /): on a web server, in S3, in OSDF, or on this machine. Only headers are read. After Ctrl-C or a crash,
    run the same command again to resume. An index stored next to the data (URL.packtrain-index) is used as it is.
    """
    options = IndexOptions(urls, mirrors, credentials, retry_timeout_s, group, prefix)
    started_at = time.monotonic()
    named_index = options.open_named_index()
    if named_index is not None:
        result = IndexResult(named_index, CACHED)
    else:
        with cancel_on_signal(RESUME_HINT) as cancel_token:
            path = options.output_path(output)
            result = get_or_build_index(options, path, cancel_token, rebuild=force, quiet=as_json)
    data = _result_data(result, with_details)
    origin = _ORIGIN_TEXTS[result.origin].format(formatting.format_duration(time.monotonic() - started_at))
    print_result(as_json, data, lambda out: _print_index(out, options.name, result.index, origin, with_details))


def _result_data(result: IndexResult, with_details: bool) -> dict[str, Any]:
    index = result.index
    data: dict[str, Any] = {
        "path": str(index.path),
        "origin": result.origin,
        "samples": len(index),
        "classes": len(index.class_names),
        "bytes": sum(index.sizes),
        "n_skipped_files": index.n_skipped_files,
        "index_bytes": index.path.stat().st_size,
        "archives": [
            {"url": archive.url, "size": archive.size, "etag": archive.etag or None} for archive in index.archives
        ],
    }
    if with_details:
        counts = Counter(index.labels)
        data["class_counts"] = {name: counts[number] for number, name in enumerate(index.class_names)}
        data["sizes"] = [{"from": low, "to": high, "samples": n} for low, high, n in histogram(index.sizes)]
        data["extensions"] = list(index.extensions)
    return data


def _print_index(out: Console, name: str, index: Index, origin_text: str, with_details: bool) -> None:
    classes = f" of {len(index.class_names):,} classes" if len(index.class_names) > 1 else ""
    parts = f" ({' + '.join(index.extensions)})" if index.has_parts else ""
    out.print(
        f"{name}: {len(index):,} samples{parts}{classes}, {formatting.format_size(sum(index.sizes))}; {origin_text}",
    )
    if index.n_skipped_files:
        out.print(f"skipped {pluralize(index.n_skipped_files, 'file')} outside of samples")
    if with_details:
        _print_classes(out, index)
        _print_size_histogram(out, index)
    out.print(f"index: {index.path} ({formatting.format_size(index.path.stat().st_size)})", style="dim")


def _print_classes(out: Console, index: Index) -> None:
    """Print a table of classes; if there are many, only the largest and the smallest."""
    counts, sizes = Counter(index.labels), Counter[int]()
    for label, size in zip(index.labels, index.sizes, strict=True):
        sizes[label] += size
    numbers = list(range(len(index.class_names)))
    show_all = len(numbers) <= _MAX_CLASSES_SHOWN
    ranked = numbers if show_all else sorted(numbers, key=lambda number: (-counts[number], number))
    half = _MAX_CLASSES_SHOWN // 2
    table = Table(box=None, padding=(0, 2), title="classes" if show_all else "largest and smallest classes")
    for heading in ("", "class", "samples", "bytes"):
        is_name = heading == "class"
        table.add_column(heading, justify="left" if is_name else "right", no_wrap=not is_name, overflow="fold")
    max_count = max(counts.values())
    for number in ranked if show_all else [*ranked[:half], None, *ranked[-half:]]:
        if number is None:
            table.add_row("", f"… {len(numbers) - 2 * half:,} more")
            continue
        name, count = index.class_names[number] or "(no class)", counts[number]
        size_text = formatting.format_size(sizes[number])
        table.add_row(str(number), Text(name), f"{count:,}", size_text, Text(render_bar(count / max_count), "cyan"))
    out.print(table)


def _print_size_histogram(out: Console, index: Index) -> None:
    rows = histogram(index.sizes)
    max_count = max(count for _, _, count in rows)
    table = Table(box=None, padding=(0, 2), title="sample sizes", show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for low, high, count in rows:
        table.add_row(
            f"{formatting.format_size(low)} to {formatting.format_size(high)}",
            f"{count:,}",
            Text(render_bar(count / max_count), "green"),
        )
    out.print(table)


def histogram(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return bins of (from, to, count), `to` excluded: powers of two, or equal steps if the sizes are similar."""
    low, high = min(sizes), max(sizes)
    if high.bit_length() - low.bit_length() >= _MIN_POWER_OF_TWO_BINS:
        counts = Counter(size.bit_length() for size in sizes)
        bits = range(low.bit_length(), high.bit_length() + 1)
        return [(1 << bit - 1 if bit else 0, 1 << bit, counts[bit]) for bit in bits]
    step = _round_bin_width((high - low + 1) / _N_BINS)
    counts = Counter(size // step for size in sizes)
    return [(n * step, (n + 1) * step, counts[n]) for n in range(low // step, high // step + 1)]


def _round_bin_width(min_width: float) -> int:
    """Round up to 1, 2 or 5 times a power of ten."""
    power = 1
    while power * 10 < min_width:
        power *= 10
    return next(power * times for times in (1, 2, 5, 10) if power * times >= min_width)


def render_bar(share: float) -> str:
    """Return a bar in eighths of a character; it is empty only for zero."""
    eighths = max(1 if share else 0, round(share * _BAR_WIDTH * 8))
    return "█" * (eighths // 8) + (_BAR_CHARS[eighths % 8] if eighths % 8 else "")
