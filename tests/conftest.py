"""Lets every test import the `testbed` and what stands in `tests/fakes`: fakes that implement a port, builders
of events. In CI a skipped test is a failed one: a test that needs a component starts it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent
sys.path[:0] = [str(_TESTS / "fakes"), str(_TESTS.parent)]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
