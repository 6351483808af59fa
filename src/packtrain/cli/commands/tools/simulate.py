"""packtrain simulate"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from packtrain.cli.commands.results.report import history_of
from packtrain.cli.ui.output import count, error_console, json_option, show
from packtrain.errors import UsageError
from packtrain.report.analysis.statistics import Figures
from packtrain.report.analysis.time_accounting import Share
from packtrain.report.build import report_on, write_report
from packtrain.simulate import whatif
from packtrain.simulate.calibrate import calibrate
from packtrain.simulate.pool_model import World
from packtrain.simulate.scenario_result import Estimate, Result, result_data, results_of, runs_of
from packtrain.simulate.scenarios import Policy, policy_of
from packtrain.simulate.simulate_run import play

_MOST_SEEDS = 100_000
_USUAL = ("plain", "adopted", "packtrain")


@click.command(name="simulate")
@click.option(
    "--from", "sources", multiple=True, required=True, metavar="CSV|LOG|RUN", help="What happened; several logs too."
)
@click.option("--policy", "policies", multiple=True, metavar="NAME|FILE", help="plain, adopted, packtrain or a file.")
@click.option(
    "--seeds", type=click.IntRange(1, _MOST_SEEDS), default=10, show_default=True, help="Runs of each policy."
)
@click.option("--seed", "first", type=click.IntRange(0), default=0, show_default=True, help="The first of them.")
@click.option("--jobs", metavar="N|10x", default="1x", show_default=True, help="How many jobs; 10x: of those seen.")
@click.option("--slots", metavar="N|2x", help="How many slots there are altogether; 2x: of those seen.")
@click.option("--mix", multiple=True, metavar="SITE=SHARE", help="Another mix of sites; those not named get nothing.")
@click.option("--without", "sites", multiple=True, metavar="SITE", help="Without a site.")
@click.option("--without-cache", "caches", multiple=True, metavar="SITE", help="A site's cache is gone.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Write a report of one run of each policy."
)
@json_option
def command(
    sources: tuple[str, ...],
    policies: tuple[str, ...],
    seeds: int,
    first: int,
    jobs: str,
    output: Path | None,
    as_json: bool,
    **changes: Any,
) -> None:
    """Play runs in a pool like the one that was seen, and compare what policies make of it.

    The pool is calibrated from what happened: a table of jobs (CSV), user logs of HTCondor, or a run of packtrain.
    Policies: `plain` is HTCondor alone, as in the published week; `adopted` is packtrain with a program that saves no
    checkpoints; `packtrain` is all of it; a file changes `recovery`, `limits` and `checkpoint` as a workflow does.
    Figures are means over the seeds, ± what the mean may be off by (95%).

    The exit code is 0 if runs were played, 2 if what was asked cannot be read or done, 4 if there is no such thing.
    """
    chosen = [policy_of(name) for name in policies or _USUAL]
    if len({policy.name for policy in chosen}) < len(chosen):
        raise UsageError("two policies have the same name; give the file a `name`")
    world = _world(calibrate(history_of(sources)), **changes)
    many = whatif.amount(jobs, world.jobs, "jobs")
    results = [_played(world, policy, many, range(first, first + seeds)) for policy in chosen]
    pages = {p.name: str(_page(world, p, many, first, output)) for p in chosen} if output else {}
    show(as_json, _data(world, many, results, pages), lambda out: _show(out, world, many, results, pages))


def _world(seen: World, slots: str | None, mix: Sequence[str], sites: Sequence[str], caches: Sequence[str]) -> World:
    world = whatif.with_mix(seen, mix) if mix else seen
    for name in caches:
        world = whatif.without_cache(world, name)
    for name in sites:
        world = whatif.without_site(world, name)
    return whatif.with_slots(world, whatif.amount(slots, world.slots, "slots")) if slots else world


def _played(world: World, policy: Policy, jobs: int, seeds: range) -> Result:
    with _progress(policy.name, len(seeds)) as seen:
        return results_of(policy, seen(runs_of(world, policy, jobs, seeds)))


@contextmanager
def _progress(name: str, seeds: int) -> Iterator[Callable[[Iterator[Figures]], Iterator[Figures]]]:
    """How many runs were played, for those who wait at a terminal."""
    status = Status(f"{name}: run 1 of {seeds}", console=error_console())

    def watched(runs: Iterator[Figures]) -> Iterator[Figures]:
        for number, figures in enumerate(runs, 2):
            status.update(f"{name}: run {number} of {seeds}")
            yield figures

    if not error_console().is_terminal:
        yield lambda runs: runs
        return
    with status:
        yield watched


def _page(world: World, policy: Policy, jobs: int, seed: int, folder: Path) -> Path:
    name = re.sub(r"[^\w.-]+", "-", policy.name).strip("-.") or "policy"
    return write_report(report_on(play(world, policy, jobs, seed)), folder / name)


# What is told


def _data(world: World, jobs: int, results: Sequence[Result], pages: Mapping[str, str]) -> dict[str, Any]:
    sites = {site.name: {"slots": site.slots, "stalls": round(site.stalls, 6)} for site in world.sites}
    told = {result.policy: result_data(result) for result in results}
    pool = {"from": world.name, "unknown": round(world.lost, 6), "slots": world.slots, "sites": sites}
    return {**pool, "jobs": jobs, "policies": told, "pages": pages}


def _show(out: Console, world: World, jobs: int, results: Sequence[Result], pages: Mapping[str, str]) -> None:
    sites = ", ".join(f"{site.name} ({site.slots})" for site in world.sites)
    head = f"{count(jobs, 'job')} in a pool as of {world.name}: {count(world.slots, 'slot')} at {sites}"
    out.print(head, markup=False, style="dim")
    if world.lost:
        out.print(f"{world.lost:.0%} of the jobs seen have not ended: nothing is learned of them", style="yellow")
    out.print(_table(results))
    for name, page in pages.items():
        out.print(f"report of one run, {name}: {page}", markup=False)


def _table(results: Sequence[Result]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    for result in results:
        table.add_column(Text(result.policy), justify="right", no_wrap=True)
    time, unit = _unit(results)
    for words, name, scale, digits in _ROWS:
        if any(name in result.figures for result in results):
            cells = (_cell(result.figures.get(name), scale or time, digits) for result in results)
            table.add_row(words.format(unit=unit), *cells)
    table.add_row(Text(f"slot time of no use, {unit}:", "dim"))
    for share in (share for share in Share if any(share in result.waste for result in results)):
        table.add_row(f"  {share.value}", *(_cell(result.waste.get(share), time, 1) for result in results))
    return table


def _unit(results: Sequence[Result]) -> tuple[float, str]:
    """In which times are told: hours, unless jobs take minutes."""
    medians = [result.figures[_MEDIAN].mean for result in results if _MEDIAN in result.figures]
    return (60.0, "min") if medians and max(medians) < 3600 else (3600.0, "h")


def _cell(estimate: Estimate | None, unit: float, digits: int) -> Text:
    """8.6 ± 0.4"""
    if estimate is None:
        return Text("–", "dim")
    off = (estimate.high - estimate.mean) / unit
    return Text(f"{estimate.mean / unit:.{digits}f}").append(f" ± {off:.{digits}f}" if off else "", "dim")


_MEDIAN = "completion_median_s"
_ROWS: Sequence[tuple[str, str, float, int]] = (  # words, name, unit (0: that of times), digits
    ("jobs that succeed, %", "success", 1.0, 1),
    ("useful, % of slot time", "useful_fraction", 0.01, 1),
    ("useful compute, %", "compute_share", 0.01, 1),
    ("completion, median, {unit}", _MEDIAN, 0, 2),
    ("completion, mean, {unit}", "completion_mean_s", 0, 2),
    ("completion, p95 / median", "p95_over_median", 1.0, 2),
    ("completion, longest / median", "max_over_median", 1.0, 2),
    ("makespan, {unit}", "makespan_s", 0, 1),
    ("slot time, {unit}", "slot_s", 0, 0),
    ("stays on slots", "attempts", 1.0, 0),
)
