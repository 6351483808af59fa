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

from packtrain.cli.commands.results.report import load_history
from packtrain.cli.ui.output import error_console, json_option, pluralize, print_result
from packtrain.errors import UsageError
from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.build import build_report, write_report
from packtrain.simulate import whatif
from packtrain.simulate.calibrate import calibrate
from packtrain.simulate.pool_model import PoolModel
from packtrain.simulate.scenario_result import Estimate, ScenarioResult, result_to_json, simulate_runs, summarize_runs
from packtrain.simulate.scenarios import Scenario, load_scenario
from packtrain.simulate.simulate_run import simulate_run

_MAX_SEEDS = 100_000
_DEFAULT_SCENARIOS = ("plain", "adopted", "packtrain")


@click.command(name="simulate")
@click.option(
    "--from", "sources", multiple=True, required=True, metavar="CSV|LOG|RUN", help="What happened; several logs too."
)
@click.option("--policy", "policies", multiple=True, metavar="NAME|FILE", help="plain, adopted, packtrain or a file.")
@click.option("--seeds", type=click.IntRange(1, _MAX_SEEDS), default=10, show_default=True, help="Runs of each policy.")
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
    scenarios: tuple[str, ...],
    seeds: int,
    first_seed: int,
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
    chosen = [load_scenario(name) for name in scenarios or _DEFAULT_SCENARIOS]
    if len({policy.name for policy in chosen}) < len(chosen):
        raise UsageError("two policies have the same name; give the file a `name`")
    world = _apply_changes(calibrate(load_history(sources)), **changes)
    many = whatif.parse_amount(jobs, world.n_observed_jobs, "jobs")
    results = [_simulate_scenario(world, policy, many, range(first_seed, first_seed + seeds)) for policy in chosen]
    pages = {p.name: str(_write_report_page(world, p, many, first_seed, output)) for p in chosen} if output else {}
    print_result(
        as_json,
        _results_data(world, many, results, pages),
        lambda out: _print_results(out, world, many, results, pages),
    )


def _apply_changes(
    observed_model: PoolModel,
    slots: str | None,
    mix: Sequence[str],
    without_sites: Sequence[str],
    without_caches: Sequence[str],
) -> PoolModel:
    world = whatif.with_site_mix(observed_model, mix) if mix else observed_model
    for name in without_caches:
        world = whatif.without_cache(world, name)
    for name in without_sites:
        world = whatif.without_site(world, name)
    return whatif.with_slots(world, whatif.parse_amount(slots, world.n_slots, "slots")) if slots else world


def _simulate_scenario(model: PoolModel, scenario: Scenario, n_jobs: int, seeds: range) -> ScenarioResult:
    with _simulation_progress(scenario.name, len(seeds)) as seen:
        return summarize_runs(scenario, seen(simulate_runs(model, scenario, n_jobs, seeds)))


@contextmanager
def _simulation_progress(name: str, n_runs: int) -> Iterator[Callable[[Iterator[ReportStats]], Iterator[ReportStats]]]:
    """How many runs were played, for those who wait at a terminal."""
    status = Status(f"{name}: run 1 of {n_runs}", console=error_console())

    def count_runs(runs: Iterator[ReportStats]) -> Iterator[ReportStats]:
        for number, figures in enumerate(runs, 2):
            status.update(f"{name}: run {number} of {n_runs}")
            yield figures

    if not error_console().is_terminal:
        yield lambda runs: runs
        return
    with status:
        yield count_runs


def _write_report_page(model: PoolModel, scenario: Scenario, n_jobs: int, seed: int, folder: Path) -> Path:
    name = re.sub(r"[^\w.-]+", "-", scenario.name).strip("-.") or "policy"
    return write_report(build_report(simulate_run(model, scenario, n_jobs, seed)), folder / name)


# What is told


def _results_data(
    model: PoolModel, n_jobs: int, results: Sequence[ScenarioResult], pages: Mapping[str, str]
) -> dict[str, Any]:
    sites = {site.name: {"slots": site.n_slots, "stalls": round(site.stall_probability, 6)} for site in model.sites}
    told = {result.scenario: result_to_json(result) for result in results}
    pool = {"from": model.name, "unknown": round(model.lost_share, 6), "slots": model.n_slots, "sites": sites}
    return {**pool, "jobs": n_jobs, "policies": told, "pages": pages}


def _print_results(
    out: Console, model: PoolModel, n_jobs: int, results: Sequence[ScenarioResult], pages: Mapping[str, str]
) -> None:
    sites = ", ".join(f"{site.name} ({site.n_slots})" for site in model.sites)
    head = f"{pluralize(n_jobs, 'job')} in a pool as of {model.name}: {pluralize(model.n_slots, 'slot')} at {sites}"
    out.print(head, markup=False, style="dim")
    if model.lost_share:
        out.print(f"{model.lost_share:.0%} of the jobs seen have not ended: nothing is learned of them", style="yellow")
    out.print(_results_table(results))
    for name, page in pages.items():
        out.print(f"report of one run, {name}: {page}", markup=False)


def _results_table(results: Sequence[ScenarioResult]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    for result in results:
        table.add_column(Text(result.scenario), justify="right", no_wrap=True)
    time, unit = _choose_time_unit(results)
    for words, name, scale, digits in _TABLE_ROWS:
        if any(name in result.metrics for result in results):
            cells = (_format_estimate(result.metrics.get(name), scale or time, digits) for result in results)
            table.add_row(words.format(unit=unit), *cells)
    table.add_row(Text(f"slot time of no use, {unit}:", "dim"))
    for share in (share for share in TimeUse if any(share in result.wasted_slot_s for result in results)):
        table.add_row(
            f"  {share.value}", *(_format_estimate(result.wasted_slot_s.get(share), time, 1) for result in results)
        )
    return table


def _choose_time_unit(results: Sequence[ScenarioResult]) -> tuple[float, str]:
    """In which times are told: hours, unless jobs take minutes."""
    medians = [result.metrics[_MEDIAN_KEY].mean for result in results if _MEDIAN_KEY in result.metrics]
    return (60.0, "min") if medians and max(medians) < 3600 else (3600.0, "h")


def _format_estimate(estimate: Estimate | None, unit: float, digits: int) -> Text:
    """8.6 ± 0.4"""
    if estimate is None:
        return Text("–", "dim")
    off = (estimate.ci_high - estimate.mean) / unit
    return Text(f"{estimate.mean / unit:.{digits}f}").append(f" ± {off:.{digits}f}" if off else "", "dim")


_MEDIAN_KEY = "completion_median_s"
_TABLE_ROWS: Sequence[tuple[str, str, float, int]] = (  # words, name, unit (0: that of times), digits
    ("jobs that succeed, %", "success", 1.0, 1),
    ("useful, % of slot time", "useful_fraction", 0.01, 1),
    ("useful compute, %", "compute_share", 0.01, 1),
    ("completion, median, {unit}", _MEDIAN_KEY, 0, 2),
    ("completion, mean, {unit}", "completion_mean_s", 0, 2),
    ("completion, p95 / median", "p95_over_median", 1.0, 2),
    ("completion, longest / median", "max_over_median", 1.0, 2),
    ("makespan, {unit}", "makespan_s", 0, 1),
    ("slot time, {unit}", "slot_s", 0, 0),
    ("stays on slots", "attempts", 1.0, 0),
)
