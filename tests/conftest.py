"""Fixtures for all tests. In CI a skipped test fails: a test that needs a component must start it."""

from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# Property tests share the processors with pools, servers and trainings, so the time of an example means nothing.
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
    """Fail if xdist ignores the groups: pytest 9.2 hides them from xdist 3.8, and each process would start a pool."""
    grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if getattr(session.config.option, "loadgroup", False) and any("@" not in item.nodeid for item in grouped):
        raise pytest.UsageError("xdist ignores the groups of tests; install the versions in constraints.txt")


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory):
    """Put temporary files where pytest removes them, even if a test is killed."""
    tempfile.tempdir = os.environ["TMPDIR"] = str(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def forkserver():
    """Starts training programs without importing torch each time. Its tests belong to xdist's group "torch"."""
    from tests.support.training_forkserver import TrainingForkServer

    with TrainingForkServer() as server:
        yield server


@pytest.fixture(scope="session")
def s3_server():
    """One S3 server for all tests, which use separate keys. They belong to xdist's group "s3"."""
    from testbed.s3 import S3Server

    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def pixi_site(tmp_path_factory):
    """A folder with a conda channel and wheels, for an HTTP server."""
    from testbed.pixi.channel import build_channel

    return build_channel(tmp_path_factory.mktemp("pixi-site"))


@pytest.fixture(scope="session")
def pixi_server(pixi_site):
    """One server of the channel for all tests that need no faults."""
    from testbed.http_server import HttpServer

    with HttpServer(pixi_site) as server:
        yield server
