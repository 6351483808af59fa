"""A real HTCondor pool for tests.

The tests mostly wait, so there are two xdist groups; each runs in its own process with its own pool.
"""

from __future__ import annotations

import pytest

from testbed.condor_pool import CondorPool
from tests.support.pool_workspace import PoolWorkspace


@pytest.fixture(scope="session")
def session_pool(tmp_path_factory):
    with CondorPool(tmp_path_factory.mktemp("pool")) as pool:
        yield pool


@pytest.fixture
def pool(session_pool):
    session_pool.wait_until_up()
    yield session_pool
    session_pool.run_as_user(["condor_rm", "-constraint", "true"], check=False)
    session_pool.run_as_user(["condor_rm", "-forcex", "-constraint", "true"], check=False)


@pytest.fixture
def workspace(pool, tmp_path):
    """A user's folder on the access point: submit files, workflow files, runs and the store."""
    return PoolWorkspace(pool, tmp_path)
