"""The agent's own log: redacted lines, also those of packtrain's loggers."""

import logging

import pytest

from packtrain.agent.agent_log import AgentLog, WarningHandler
from packtrain.events import Redactor


@pytest.fixture
def log(tmp_path):
    return AgentLog(tmp_path / "agent.log", Redactor(["geheim"]))


def test_lines_are_redacted(tmp_path, log):
    log.write("the token is geheim")
    assert (tmp_path / "agent.log").read_text().endswith(" the token is ***\n")


def test_warnings_of_packtrain_are_written(tmp_path, log):
    logger, handler = logging.getLogger("packtrain"), WarningHandler(log)
    logger.addHandler(handler)
    try:
        logging.getLogger("packtrain.transfer.http").warning("%s failed with %s", "https://a.example/x", "geheim")
        logging.getLogger("packtrain.transfer.http").info("connected")
    finally:
        logger.removeHandler(handler)
    (line,) = (tmp_path / "agent.log").read_text().splitlines()
    assert line.endswith(" packtrain.transfer.http: https://a.example/x failed with ***")


def test_full_disk_is_ignored():
    AgentLog("/dev/full", Redactor([])).write("nothing can be written")
