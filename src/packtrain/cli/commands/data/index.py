"""packtrain index"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from packtrain import formatting
from packtrain.cli.ui.credentials import CredentialOptions, credential_options
from packtrain.cli.ui.index_progress import RESUME_HINT, IndexOptions
from packtrain.cli.ui.options import retry_timeout_option
from packtrain.cli.ui.output import json_option, pluralize, print_result
from packtrain.cli.ui.transfer_progress import cancel_on_signal
from packtrain.errors import UsageError
from packtrain.indexing import IndexResult
from packtrain.stream.index import INDEX_SUFFIX, Index

_ORIGIN_TEXTS = {"made": "made in {}", "kept": "kept from before", "shared": "found beside the data"}
_MAX_CLASSES_SHOWN = 12
_N_BINS, _MIN_POWER_OF_TWO_BINS = 10, 5
_BAR_WIDTH, _BAR_CHARS = 32, " ▏▎▍▌▋▊▉█"


@click.command(name="index")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", help="Where to; by default it is kept for this user.")
@click.option("--mirror", "mirrors", metavar="URL", multiple=True, help="Another address of the same archive.")
@click.option("--prefix", metavar="PREFIX", default="", help="Only files whose names begin so, e.g. train/")
@click.option("--group/--no-group", default=None, help="Files of one name are one sample; by default as it seems.")
@click.option("--force", is_flag=True, help="Make it anew, even if there is one.")
@click.option("--show", "shows", is_flag=True, help="Show classes, counts and sizes.")
@retry_timeout_option("How long failing sources are asked again.")
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
    """List every sample of an archive, so that training reads them where they are.

    URL is a tar, a tar of tars, WebDataset shards (`train-{000..146}.tar`), a zip without compression, or a folder of
    files (it ends in /): on a web server, in S3, in OSDF, or on this machine. Only headers are read. After Ctrl-C or a
    crash the same command goes on. An index that lies beside the data (URL.packtrain-index) is used as it is.
    """
    asked = IndexOptions(urls, mirrors, credentials, retry_timeout_s, group, prefix)
    began = time.monotonic()
    found = asked.open_named_index()
    if found is not None:
        got = IndexResult(found, "kept")
    else:
        with cancel_on_signal(RESUME_HINT) as stop:
            got = asked.get_or_build(_output_path(output, asked), stop, rebuild=force, quiet=as_json)
    data = _result_data(got, with_details)
    how = _ORIGIN_TEXTS[got.origin].format(formatting.format_duration(time.monotonic() - began))
    print_result(as_json, data, lambda out: _print_index(out, asked.name, got.index, how, with_details))


def _output_path(output: str | None, index_options: IndexOptions) -> Path | None:
    if output is None:
        return None
    path = Path(output)
    if path.is_dir() or output.endswith("/"):
        path = path / f"{index_options.name}{INDEX_SUFFIX}"
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}; make it, or choose another place with -o")
    return path


def _result_data(result: IndexResult, with_details: bool) -> dict[str, Any]:
    index = result.index
    data: dict[str, Any] = {
        "path": str(index.path),
        "how": result.origin,
        "samples": len(index),
        "classes": len(index.class_names),
        "bytes": sum(index.sizes),
        "left_out": index.n_skipped_files,
        "index_bytes": index.path.stat().st_size,
        "archives": [{"url": one.url, "size": one.size, "etag": one.etag or None} for one in index.archives],
    }
    if with_details:
        counts = Counter(index.labels)
        data["class_counts"] = {name: counts[number] for number, name in enumerate(index.class_names)}
        data["sizes"] = [{"from": low, "to": high, "samples": n} for low, high, n in histogram(index.sizes)]
        data["kinds"] = list(index.extensions)
    return data


def _print_index(out: Console, name: str, index: Index, origin_text: str, with_details: bool) -> None:
    classes = f" of {len(index.class_names):,} classes" if len(index.class_names) > 1 else ""
    parts = f" ({' + '.join(index.extensions)})" if index.has_parts else ""
    out.print(
        f"{name}: {len(index):,} samples{parts}{classes}, {formatting.format_size(sum(index.sizes))}; {origin_text}",
        markup=False,
    )
    if index.n_skipped_files:
        out.print(f"left out, for they are no samples: {pluralize(index.n_skipped_files, 'file')}")
    if with_details:
        _print_classes(out, index)
        _print_size_histogram(out, index)
    out.print(f"index: {index.path} ({formatting.format_size(index.path.stat().st_size)})", markup=False, style="dim")


def _print_classes(out: Console, index: Index) -> None:
    """The largest and the smallest, where there are many."""
    counts, sizes = Counter(index.labels), Counter[int]()
    for label, size in zip(index.labels, index.sizes, strict=True):
        sizes[label] += size
    numbers = list(range(len(index.class_names)))
    few = len(numbers) <= _MAX_CLASSES_SHOWN
    ranked = numbers if few else sorted(numbers, key=lambda number: (-counts[number], number))
    half = _MAX_CLASSES_SHOWN // 2
    table = Table(box=None, padding=(0, 2), title="classes" if few else "classes, the largest and the smallest")
    for heading in ("", "class", "samples", "bytes"):
        table.add_column(heading, justify="left" if heading == "class" else "right", no_wrap=True)
    most = max(counts.values())
    for number in ranked if few else [*ranked[:half], None, *ranked[-half:]]:
        if number is None:
            table.add_row("", f"… {len(numbers) - 2 * half:,} more")
            continue
        name, found = index.class_names[number] or "(no class)", counts[number]
        room = formatting.format_size(sizes[number])
        table.add_row(str(number), Text(name), f"{found:,}", room, Text(render_bar(found / most), "cyan"))
    out.print(table)


def _print_size_histogram(out: Console, index: Index) -> None:
    rows = histogram(index.sizes)
    most = max(found for _, _, found in rows)
    table = Table(box=None, padding=(0, 2), title="sizes of samples", show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for low, high, found in rows:
        table.add_row(
            f"{formatting.format_size(low)} to {formatting.format_size(high)}",
            f"{found:,}",
            Text(render_bar(found / most), "green"),
        )
    out.print(table)


def histogram(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """From, to (not included) and how many: in powers of two, or in equal steps where all are of about one size."""
    low, high = min(sizes), max(sizes)
    if high.bit_length() - low.bit_length() >= _MIN_POWER_OF_TWO_BINS:
        found = Counter(size.bit_length() for size in sizes)
        bits = range(low.bit_length(), high.bit_length() + 1)
        return [(1 << bit - 1 if bit else 0, 1 << bit, found[bit]) for bit in bits]
    step = _round_bin_width((high - low + 1) / _N_BINS)
    found = Counter(size // step for size in sizes)
    return [(at * step, (at + 1) * step, found[at]) for at in range(low // step, high // step + 1)]


def _round_bin_width(min_width: float) -> int:
    """1, 2 or 5 times a power of ten."""
    power = 1
    while power * 10 < min_width:
        power *= 10
    return next(power * times for times in (1, 2, 5, 10) if power * times >= min_width)


def render_bar(share: float) -> str:
    """In eighths of a character; never nothing for something."""
    eighths = max(1 if share else 0, round(share * _BAR_WIDTH * 8))
    return "█" * (eighths // 8) + (_BAR_CHARS[eighths % 8] if eighths % 8 else "")
