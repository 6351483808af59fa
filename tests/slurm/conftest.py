"""Real Slurm clusters for tests: the oldest and the newest version, with and without accounting."""

from __future__ import annotations

import pytest

from testbed.slurm import install
from testbed.slurm.cluster import Cluster

CLUSTERS = {
    f"{version}{'-accounting' if accounting else ''}": (version, accounting)
    for version in (install.OLDEST, install.NEWEST)
    for accounting in (False, True)
}
TWO_CLUSTERS = [install.OLDEST, f"{install.NEWEST}-accounting"]  # for slow tests; the contract runs on all four


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Run the tests of each version in a process of their own."""
    for item in items:
        cluster_name = getattr(item, "callspec", None) and item.callspec.params.get("session_cluster")
        if cluster_name:
            item.add_marker(pytest.mark.xdist_group(CLUSTERS[cluster_name][0]))


@pytest.fixture(scope="session", params=CLUSTERS)
def session_cluster(request, tmp_path_factory):
    version, accounting = CLUSTERS[request.param]
    folder = tmp_path_factory.mktemp(f"slurm{version}")
    with Cluster(folder, version, accounting=accounting, settings={"MinJobAge": "30"}) as cluster:
        yield cluster


@pytest.fixture
def cluster(session_cluster):
    session_cluster.wait_until_idle()
    yield session_cluster
    session_cluster.cancel_all()
