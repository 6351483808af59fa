"""A detached supervisor as the schedd starts it: repeatedly, with the same command."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from packtrain.cli.commands.start.supervise import command
from packtrain.errors import UnavailableError
from packtrain.runs import supervise
from packtrain.store import SqliteStore
from packtrain.supervise import Supervisor
from tests.support.cli_runs import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
WORKFLOW = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 10, gpus: 0}\nsteps: [{run: {command: exit 3}}]\n"


@pytest.fixture
def workspace(tmp_path):
    created = Workspace(tmp_path)
    created.write_file(WORKFLOW)
    return created


def attempt_ids(workspace, run: str) -> list[str]:
    return [execution["attempt"] for execution in workspace.run_json("ps", run)["jobs"][0]["executions"]]


def test_restarted_supervisor_reopens_once(workspace):
    run = workspace.run_json("run", "workflow.yaml", exit_code=10)["run"]
    epoch = SqliteStore(workspace.folder / "store.db").get_lease(run).epoch
    command = ("supervise", run, "--reopen-after-epoch", epoch, "--in-job")
    workspace.run(*command)
    workspace.run(*command)
    assert attempt_ids(workspace, run) == ["0-1", "0-2"]


def test_waits_for_lease_of_remote_supervisor(workspace):
    run = workspace.run_json("run", "workflow.yaml", exit_code=10)["run"]
    store = SqliteStore(workspace.folder / "store.db")
    store.acquire_lease(run, "1/2/3/4", "elsewhere", 1, 3600.0, lambda lease: False)
    workspace.run("supervise", run, exit_code=3)
    store.acquire_lease(run, "1/2/3/4", "elsewhere", 1, 5.0, lambda lease: False)
    workspace.run("supervise", run, "--in-job")


def test_other_supervisor_is_final(workspace, monkeypatch):
    run, store = finish_run(workspace, monkeypatch)
    store.acquire_lease(run, "1/2/3/4", "elsewhere", 1, 3600.0, lambda lease: False)
    monkeypatch.setattr(supervise, "LEASE_TTL_S", 0.1)
    result = CliRunner().invoke(command, [run, "--in-job"])
    assert isinstance(result.exception, UnavailableError) and "already has a supervisor" in str(result.exception)


@pytest.mark.parametrize("where", ["acquire_lease", "run"])
def test_temporary_error_makes_schedd_retry(workspace, monkeypatch, where):
    """A store that cannot be written, or a schedd that does not respond: exit code 1."""
    run, _ = finish_run(workspace, monkeypatch)

    def refuse(*_, **__):
        raise UnavailableError("not now")

    monkeypatch.setattr(*((supervise, where) if where == "acquire_lease" else (Supervisor, where)), refuse)
    assert CliRunner().invoke(command, [run, "--in-job"]).exit_code == 1
    assert isinstance(CliRunner().invoke(command, [run]).exception, UnavailableError)


def finish_run(workspace, monkeypatch) -> tuple[str, SqliteStore]:
    monkeypatch.setenv("PACKTRAIN_STORE", str(workspace.folder / "store.db"))
    monkeypatch.setattr(supervise, "_install_signal_handlers", lambda *_: None)  # the signal handlers belong to pytest
    return workspace.run_json("run", "workflow.yaml", exit_code=10)["run"], SqliteStore(workspace.folder / "store.db")
