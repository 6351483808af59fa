"""packtrain report"""

from __future__ import annotations

from pathlib import Path

import click

from packtrain.cli.ui.output import console, dry_run_option, json_option, print_result
from packtrain.cli.ui.report_source import ReportSource
from packtrain.cli.ui.report_summary import print_comparison, print_findings, print_report_summary
from packtrain.formatting import replace_control_chars
from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.build import Report, build_report, write_report
from packtrain.report.export import jobs_to_csv


@click.command(name="report")
@click.argument("sources", metavar="[SOURCE]...", nargs=-1)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for the page and its files."
)
@click.option("--compare", metavar="BASELINE", help="Compare with another run, log or table, with ratios.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the table of jobs as CSV.")
@dry_run_option
@json_option
def command(
    sources: tuple[str, ...], output: Path | None, compare: str | None, as_csv: bool, dry_run: bool, as_json: bool
) -> None:
    """Show how slot time was used: useful compute, transfers, and time lost to failures.

    SOURCE is a run (default: the newest), HTCondor user logs of any jobs (folders, globs and .gz too), or one CSV file
    with a line per job. Writes a page with charts, report.json, jobs.csv and executions.csv to the folder of the run,
    or to NAME-report in this folder. With --json or --csv, files are written only if -o is given.

    The exit code is 0 if there was something to report, 2 if a file cannot be read or written, 4 if there is none.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    if as_csv and compare and not output:
        raise click.UsageError("--csv prints the jobs of one report; to use --compare, drop --csv or add -o")
    source = ReportSource(sources)
    baseline = compute_stats(ReportSource((compare,)).history) if compare else None
    report = build_report(source.history, baseline)
    folder = output or (None if as_json or as_csv else source.folder)
    page = write_report(report, folder, curves=source.curves) if folder and not dry_run else None
    if as_csv:
        click.echo(replace_control_chars(jobs_to_csv(report.stats), keep="\r\n\t"), nl=False)
        return
    data = {**report.to_json, "page": str(page) if page else None}
    print_result(as_json, data, lambda out: print_report_summary(out, report.stats, report.findings))
    if not as_json:
        _print_details(report, page, folder)


def _print_details(report: Report, page: Path | None, folder: Path | None) -> None:
    out = console()
    if report.baseline:
        print_comparison(out, report.stats, report.baseline)
    if report.history.limitations:
        out.print("\nlimitations of the data:", style="dim")
        print_findings(out, report.history.limitations, "dim")
    location = f"report: {page}" if page else f"would write a report to {folder}"
    out.print(f"\n{location}")
