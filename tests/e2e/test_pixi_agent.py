"""Agents that install a Pixi environment and run their steps in it."""

from __future__ import annotations

import pytest

from packtrain.plan import EnvVar
from testbed.http_server import HttpServer
from tests.support.agent_runs import make_job, make_step
from tests.support.pixi_environments import lock_package, make_lock, pixi_config, small_packages, write_environment

STAGES = ["probe", "fetch", "unpack", "install", "steps", "check", "sync", "clean"]


@pytest.fixture
def channel(tmp_path):
    """Serve three packages, and yield the server and a function that locks them."""
    paths = small_packages(tmp_path / "channel")
    with HttpServer(tmp_path / "channel") as server:
        server.requests.clear()

        def lock(**fields):
            relative = [path.relative_to(tmp_path / "channel").as_posix() for path in paths]
            return make_lock(
                *(lock_package(path, f"{server.url}/{name}") for path, name in zip(paths, relative, strict=True)),
                **fields,
            )

        server.lock = lock
        yield server


def make_pixi_job(environment, *commands, **fields):
    steps = [make_step(command, f"step-{number}") for number, command in enumerate(commands)]
    return make_job(*steps, environment=pixi_config(environment), **fields)


def test_steps_run_in_the_environment(attempt, channel, tmp_path):
    environment = write_environment(tmp_path / "env", channel.lock(), activation_env=(EnvVar("FROM", "$TOOL_HOME/x"),))
    command = 'tool && echo "$TOOL_HOME|$FROM|$CONDA_PREFIX|$PIXI_ENVIRONMENT_NAME|$PIXI_PROJECT_NAME"'
    run = attempt(make_pixi_job(environment, command)).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert [event.data["stage"] for event in run.events("stage.ended")] == STAGES
    first, second = (run.attempt_folder.logs / "step-0.out").read_text().splitlines()
    prefix = first.rpartition(" ")[2]
    assert second == f"{prefix}/share|{prefix}/share/x|{prefix}|default|ws"
    installed = next(event.data for event in run.events("stage.ended") if event.data["stage"] == "install")
    assert (installed["packages"], installed["files"], installed["bytes"]) == (3, 3, environment.download_bytes)
    assert installed["seconds"] > 0 and installed["was_installed"]
