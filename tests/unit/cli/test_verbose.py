"""`-v` and `-vv`."""

import logging

import click
import pytest
from click.testing import CliRunner

from packtrain.cli.main import GROUP_BY_COMMAND, HIDDEN_COMMANDS, cli

WORKFLOW = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 10, gpus: 0}\nsteps: [{run: {command: 'true'}}]\n"


@pytest.fixture(autouse=True)
def restored_logger():
    logger = logging.getLogger("packtrain")
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:], logger.level = handlers, level


@pytest.mark.parametrize(
    ("options", "levels"), [([], set()), (["-v"], {"INFO"}), (["-vv"], {"INFO", "DEBUG"}), (["--verbose"], {"INFO"})]
)
def test_levels(options, levels, tmp_path):
    (tmp_path / "w.yaml").write_text(f"input: {{file: {{path: {tmp_path}/w.yaml}}}}\n{WORKFLOW}")
    result = CliRunner().invoke(cli, ["plan", str(tmp_path / "w.yaml"), *options])
    assert result.exit_code == 0
    lines = [line.split() for line in result.stderr.splitlines()]
    assert {words[2] for words in lines} == levels
    assert {words[3] for words in lines} <= {"packtrain.submission.prepare:"}


@pytest.mark.parametrize("name", [*GROUP_BY_COMMAND, *HIDDEN_COMMANDS])
def test_every_command_has_the_option_once(name):
    context = click.Context(cli)
    for _ in range(2):
        command = cli.get_command(context, name)
    assert sum("--verbose" in parameter.opts for parameter in command.params) == 1
