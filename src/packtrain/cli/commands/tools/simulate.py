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

from packtrain.cli.ui.output import error_console, json_option, print_result
from packtrain.cli.ui.report_source import load_history
from packtrain.errors import UsageError
from packtrain.formatting import format_percent, pluralize
from packtrain.report.analysis.statistics import ReportStats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.build import build_report, write_report
from packtrain.simulate import whatif
from packtrain.simulate.calibrate import calibrate
from packtrain.simulate.pool_model import PoolModel
from packtrain.simulate.scenario_result import Estimate, ScenarioResult, result_to_json, simulate_runs, summarize_runs
from packtrain.simulate.scenarios import SCENARIOS, Scenario, load_scenario
from packtrain.simulate.simulate_run import simulate_run

_MAX_SEEDS = 100_000


@click.command(name="simulate")
@click.option(
    "--from",
    "sources",
    multiple=True,
    required=True,
    metavar="CSV|LOG|RUN",
    help="History to calibrate the model from; repeatable for logs.",
)
@click.option(
    "--scenario", "scenarios", multiple=True, metavar="NAME|FILE", help="plain, converted, packtrain or a file."
)
@click.option(
    "--seeds", type=click.IntRange(1, _MAX_SEEDS), default=10, show_default=True, help="Number of runs per scenario."
)
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the first run.")
@click.option("--jobs", metavar="N|10x", default="1x", show_default=True, help="Number of jobs; 10x: relative.")
@click.option("--slots", metavar="N|2x", help="Number of slots in the pool; 2x: relative.")
@click.option("--mix", multiple=True, metavar="SITE=SHARE", help="Share of slots at a site; other sites get none.")
@click.option("--without-site", "without_sites", multiple=True, metavar="SITE", help="Remove a site.")
@click.option("--without-cache", "without_caches", multiple=True, metavar="SITE", help="Remove the cache of a site.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for a report of one run per scenario.",
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
    """Simulate runs on a model of your pool and compare retry policies.

    The model is calibrated from a job table (CSV), HTCondor user logs or a run. Scenarios: `plain` is HTCondor alone,
    as in the published study; `converted` is packtrain with a program that saves no checkpoints; `packtrain` adds
    checkpoints. A YAML file can change `recovery`, `limits` and the checkpoint interval. Values are means over the
    seeds, ± half of the 95% confidence interval.

    The exit code is 0 if runs were simulated, 2 if an argument or file is invalid, 4 if a file, run or scenario does
    not exist.
    """
    chosen = [load_scenario(name) for name in scenarios or SCENARIOS]
    if len({scenario.name for scenario in chosen}) < len(chosen):
        raise UsageError("two scenarios have the same name; set `name` in the file")
    model = _apply_changes(calibrate(load_history(sources)), **changes)
    n_jobs = whatif.parse_amount(jobs, model.n_observed_jobs, "jobs")
    all_seeds = range(first_seed, first_seed + seeds)
    results = [_simulate_scenario(model, scenario, n_jobs, all_seeds) for scenario in chosen]
    pages = {s.name: str(_write_report_page(model, s, n_jobs, first_seed, output)) for s in chosen} if output else {}
    print_result(
        as_json,
        _results_data(model, n_jobs, results, pages),
        lambda out: _print_results(out, model, n_jobs, results, pages),
    )


def _apply_changes(
    observed_model: PoolModel,
    slots: str | None,
    mix: Sequence[str],
    without_sites: Sequence[str],
    without_caches: Sequence[str],
) -> PoolModel:
    model = whatif.with_site_mix(observed_model, mix) if mix else observed_model
    for name in without_caches:
        model = whatif.without_cache(model, name)
    for name in without_sites:
        model = whatif.without_site(model, name)
    return whatif.with_slots(model, whatif.parse_amount(slots, model.n_slots, "slots")) if slots else model


def _simulate_scenario(model: PoolModel, scenario: Scenario, n_jobs: int, seeds: range) -> ScenarioResult:
    with _simulation_progress(scenario.name, len(seeds)) as count_runs:
        return summarize_runs(scenario, count_runs(simulate_runs(model, scenario, n_jobs, seeds)))


@contextmanager
def _simulation_progress(name: str, n_runs: int) -> Iterator[Callable[[Iterator[ReportStats]], Iterator[ReportStats]]]:
    """Show in a terminal how many runs were simulated."""
    status = Status(f"{name}: run 1 of {n_runs}", console=error_console())

    def count_runs(runs: Iterator[ReportStats]) -> Iterator[ReportStats]:
        for number, stats in enumerate(runs, 2):
            status.update(f"{name}: run {number} of {n_runs}")
            yield stats

    if not error_console().is_terminal:
        yield lambda runs: runs
        return
    with status:
        yield count_runs


def _write_report_page(model: PoolModel, scenario: Scenario, n_jobs: int, seed: int, folder: Path) -> Path:
    name = re.sub(r"[^\w.-]+", "-", scenario.name).strip("-.") or "scenario"
    return write_report(build_report(simulate_run(model, scenario, n_jobs, seed)), folder / name)


def _results_data(
    model: PoolModel, n_jobs: int, results: Sequence[ScenarioResult], pages: Mapping[str, str]
) -> dict[str, Any]:
    sites = {site.name: {"slots": site.n_slots, "stalls": round(site.stall_probability, 6)} for site in model.sites}
    return {
        "source": model.name,
        "lost_share": round(model.lost_share, 6),
        "slots": model.n_slots,
        "sites": sites,
        "jobs": n_jobs,
        "scenarios": {result.scenario: result_to_json(result) for result in results},
        "pages": pages,
    }


def _print_results(
    out: Console, model: PoolModel, n_jobs: int, results: Sequence[ScenarioResult], pages: Mapping[str, str]
) -> None:
    sites = ", ".join(f"{site.name} ({site.n_slots})" for site in model.sites)
    slots = pluralize(model.n_slots, "slot")
    out.print(f"{pluralize(n_jobs, 'job')} on a model of {model.name}: {slots} at {sites}", style="dim")
    if model.lost_share:
        share = format_percent(model.lost_share)
        out.print(f"{share} of the observed jobs have not ended; the model ignores them", style="yellow")
    out.print(_results_table(results))
    for name, page in pages.items():
        out.print(f"report of one run of {name}: {page}")


def _results_table(results: Sequence[ScenarioResult]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", overflow="fold")
    for result in results:
        table.add_column(Text(result.scenario), justify="right", overflow="fold")
    unit_s, unit = _choose_time_unit(results)
    for label, name, scale, digits in _TABLE_ROWS:
        if any(name in result.metrics for result in results):
            cells = (_format_estimate(result.metrics.get(name), scale or unit_s, digits) for result in results)
            table.add_row(label.format(unit=unit), *cells)
    table.add_row(Text(f"wasted slot time, {unit}:", "dim"))
    for time_use in TimeUse:
        if any(time_use in result.wasted_slot_s for result in results):
            cells = (_format_estimate(result.wasted_slot_s.get(time_use), unit_s, 1) for result in results)
            table.add_row(f"  {time_use.value}", *cells)
    return table


def _choose_time_unit(results: Sequence[ScenarioResult]) -> tuple[float, str]:
    """Return the unit of times: hours, or minutes if the median job takes less than an hour."""
    medians = [result.metrics[_MEDIAN_KEY].mean for result in results if _MEDIAN_KEY in result.metrics]
    return (60.0, "min") if medians and max(medians) < 3600 else (3600.0, "h")


def _format_estimate(estimate: Estimate | None, unit: float, digits: int) -> Text:
    """Return `8.6 ± 0.4`."""
    if estimate is None:
        return Text("–", "dim")
    margin = (estimate.ci_high - estimate.mean) / unit
    return Text(f"{estimate.mean / unit:.{digits}f}").append(f" ± {margin:.{digits}f}" if margin else "", "dim")


_MEDIAN_KEY = "completion_median_s"
_TABLE_ROWS: Sequence[tuple[str, str, float, int]] = (  # label, metric, unit (0: the unit of times), digits
    ("succeeded jobs, %", "success_percent", 1.0, 1),
    ("useful, % of slot time", "useful_fraction", 0.01, 1),
    ("useful compute, %", "compute_share", 0.01, 1),
    ("completion, median, {unit}", _MEDIAN_KEY, 0, 2),
    ("completion, mean, {unit}", "completion_mean_s", 0, 2),
    ("completion, p95 / median", "p95_over_median", 1.0, 2),
    ("completion, max / median", "max_over_median", 1.0, 2),
    ("makespan, {unit}", "makespan_s", 0, 1),
    ("slot time, {unit}", "slot_s", 0, 0),
    ("executions", "executions", 1.0, 0),
)
