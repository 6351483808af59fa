"""packtrain report"""

from __future__ import annotations

from pathlib import Path

import click

from packtrain.cli.ui.output import console, dry_run_option, json_option, print_result
from packtrain.cli.ui.report_source import ReportSource, read_slurm_history
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
@click.option("-S", "--since", metavar="TIME", help="Read Slurm's accounting (sacct) from this time on.")
@click.option("-E", "--until", default="", metavar="TIME", help="End of that time span; default: now.")
@click.option("-u", "--user", default="", metavar="USER", help="Users in the accounting, with commas; default: you.")
@click.option("--compare", metavar="BASELINE", help="Compare with another run, log or table, with ratios.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the table of jobs as CSV.")
@dry_run_option
@json_option
def command(
    sources: tuple[str, ...],
    output: Path | None,
    since: str | None,
    until: str,
    user: str,
    compare: str | None,
    as_csv: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Show how slot time was used: useful compute, transfers, and time lost to failures.

    SOURCE is a run (default: the newest), HTCondor user logs of any jobs (folders, globs and .gz too), the output of
    Slurm's `sacct -P -D` or `sacct --json`, or one CSV file with a line per job. With --since, packtrain calls sacct
    itself; TIME is 2026-11-01, 2026-11-01T08:00 or now-7days. Writes a page with charts, report.json, jobs.csv and
    executions.csv to the folder of the run, or to NAME-report in this folder. With --json or --csv, files are written
    only if -o is given.

    The exit code is 0 if there was something to report, 2 if a file cannot be read or written, 4 if there is none.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    if as_csv and compare and not output:
        raise click.UsageError("--csv prints the jobs of one report; to use --compare, drop --csv or add -o")
    if since is None and (until or user):
        raise click.UsageError("--user and --until need --since: they choose what is read from Slurm's accounting")
    if since is not None and sources:
        raise click.UsageError(f"--since reads Slurm's accounting with sacct; leave out {sources[0]}")
    source = ReportSource(sources, None if since is None else read_slurm_history(since, until, user))
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
