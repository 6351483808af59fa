"""`--detach` has an optional value, `--detach=job`, which never takes the next argument."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from packtrain.cli.ui.options import DetachCommand, detach_options


@click.command(cls=DetachCommand)
@click.argument("file")
@detach_options
def command(file: str, detach: bool, detach_job: bool) -> None:
    click.echo(f"{file} {detach} {detach_job}")


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (("w.yaml",), "w.yaml False False\n"),
        (("--detach", "w.yaml"), "w.yaml True False\n"),
        (("--detach=job", "w.yaml"), "w.yaml False True\n"),
        (("w.yaml", "--detach=job"), "w.yaml False True\n"),
    ],
)
def test_values(arguments, output):
    assert CliRunner().invoke(command, arguments).output == output


def test_other_value():
    result = CliRunner().invoke(command, ["w.yaml", "--detach=yes"])
    assert result.exit_code == 2 and "does not take a value" in result.output


def test_only_on_slurm(run_packtrain, tmp_path):
    code, _, err = run_packtrain("run", "workflow.yaml", "--detach=job")
    assert code == 2 and "use it with --on slurm" in err
