"""Fixtures for all tests. In CI a skipped test counts as failed: a test that needs a component starts it."""

from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# Pools, servers and trainings share the processors with property tests: how long an example takes tells nothing.
settings.register_profile("packtrain", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("packtrain")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"


def pytest_collection_finish(session):
    """pytest 9.2 hides the groups from xdist 3.8: each process would start a pool, and nobody would know."""
    grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if getattr(session.config.option, "loadgroup", False) and any("@" not in item.nodeid for item in grouped):
        raise pytest.UsageError("xdist does not see the groups of the tests; install what constraints.txt names")


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory):
    """They lie where pytest removes them, also those of servers whose test was killed."""
    tempfile.tempdir = os.environ["TMPDIR"] = str(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def nursery():
    """Starts training programs without importing torch each time. Its tests belong to the group "torch" of xdist."""
    from tests.support.training_forkserver import TrainingForkServer

    with TrainingForkServer() as nursery:
        yield nursery


@pytest.fixture(scope="session")
def s3_server():
    """One for all. Its tests belong to the group "s3" of xdist, and keep to keys of their own."""
    from testbed.s3 import S3Server

    with S3Server() as server:
        yield server
