"""packtrain doctor"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.console import Console
from rich.text import Text

from packtrain.cli.ui.output import json_option, print_next_commands, print_result
from packtrain.machine_checks import ERROR, OK, WARNING, CheckResult, check_machine

_STATUS_MARKS = {OK: ("✓", "green"), WARNING: ("!", "yellow"), ERROR: ("✗", "red")}


@click.command(name="doctor")
@click.option("--node", "with_node", is_flag=True, help="Also check a node of the Slurm cluster, with a short srun.")
@json_option
def command(with_node: bool, as_json: bool) -> None:
    """Check this machine's setup. Exits with 1 if a problem must be fixed first."""
    results = check_machine(with_node=with_node)
    print_result(as_json, [asdict(result) for result in results], lambda out: _print_results(out, results))
    if any(result.status == ERROR for result in results):
        raise click.exceptions.Exit(1)


def _print_results(out: Console, results: Sequence[CheckResult]) -> None:
    for result in results:
        remedy = f"  → {result.remedy}" if result.remedy else ""
        line = f" {result.name:<12} {result.detail}"
        out.print(Text.assemble(" ", _STATUS_MARKS[result.status], line, (remedy, "dim")))
    print_next_commands(("packtrain init cifar10-resnet", "create a first workflow"))
