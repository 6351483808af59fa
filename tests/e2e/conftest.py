"""Attempts of real agents, for the tests of the agent."""

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
    """Makes attempts; ends what a failed test left running."""
    made = []

    def make(job, **more):
        made.append(AgentRun(agent, tmp_path / f"attempt{len(made)}", job, **more))
        return made[-1]

    yield make
    for run in made:
        if run.process is not None and run.process.poll() is None:
            run.process.kill()
            run.process.communicate()


@pytest.fixture
def data(tmp_path):
    """A folder of inputs, by file:// address."""
    folder = tmp_path / "data"
    folder.mkdir()
    make_tar(folder / "data.tar.gz", {"data.txt": b"0123456789" * 100})
    return folder
