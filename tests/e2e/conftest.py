"""Fixtures that run real agents."""

import pytest

from packtrain.engines.bundle import build_agent, write_launcher
from tests.support.agent_runs import AgentRun, make_tar


@pytest.fixture(scope="session")
def agent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agent")
    build_agent(folder / "agent.pyz")
    write_launcher(folder / "launch.sh")
    return folder / "agent.pyz"


@pytest.fixture
def attempt(agent, tmp_path):
    """Return a function that makes agent runs; agents that still run after the test are killed."""
    runs = []

    def make_run(job, **options):
        runs.append(AgentRun(agent, tmp_path / f"attempt{len(runs)}", job, **options))
        return runs[-1]

    yield make_run
    for run in runs:
        if run.process is not None and run.process.poll() is None:
            run.process.kill()
            run.process.communicate()


@pytest.fixture
def data(tmp_path):
    """Create a folder with an input archive, for file:// addresses."""
    folder = tmp_path / "data"
    folder.mkdir()
    make_tar(folder / "data.tar.gz", {"data.txt": b"0123456789" * 100})
    return folder
