"""A detached supervisor as a schedd starts it: again and again, with the same command, whatever befell it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from packtrain.cli.commands.start import supervise
from packtrain.errors import UnavailableError
from packtrain.store import SqliteStore
from packtrain.supervise import Supervisor
from tests.support.cli_runs import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
FAILS = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 10, gpus: 0}\nsteps: [{run: {command: exit 3}}]\n"


@pytest.fixture
def desk(tmp_path):
    made = Workspace(tmp_path)
    made.write_file(FAILS)
    return made


def decisions(desk, run: str) -> list[str]:
    return [attempt["attempt"] for attempt in desk.run_json("ps", run)["jobs"][0]["executions"]]


def test_a_resumed_run_is_reopened_once_however_often_its_supervisor_starts(desk):
    run = desk.run_json("run", "workflow.yaml", exit_code=10)["run"]
    before = SqliteStore(desk.folder / "store.db").get_lease(run).epoch
    again = ("supervise", run, "--reopen-after", before, "--in-schedd")
    desk.run(*again)
    desk.run(*again)
    assert decisions(desk, run) == ["0-1", "0-2"]


def test_a_predecessor_that_cannot_be_seen_is_waited_for(desk):
    run = desk.run_json("run", "workflow.yaml", exit_code=10)["run"]
    store = SqliteStore(desk.folder / "store.db")
    store.acquire_lease(run, "1/2/3/4", "elsewhere", 1, 3600.0, lambda lease: False)
    desk.run("supervise", run, exit_code=3)
    store.acquire_lease(run, "1/2/3/4", "elsewhere", 1, 5.0, lambda lease: False)
    desk.run("supervise", run, "--in-schedd")


def test_another_supervisor_is_a_reason_to_leave_for_good(desk, monkeypatch):
    run, store = ended(desk, monkeypatch)
    store.acquire_lease(run, "1/2/3/4", "elsewhere", 1, 3600.0, lambda lease: False)
    monkeypatch.setattr(supervise, "LEASE_S", 0.1)
    done = CliRunner().invoke(supervise.command, [run, "--in-schedd"])
    assert isinstance(done.exception, UnavailableError) and "already has a supervisor" in str(done.exception)


@pytest.mark.parametrize("where", ["acquire_lease", "run"])
def test_what_is_refused_for_now_makes_the_schedd_start_it_again(desk, monkeypatch, where):
    """A store that cannot be written, or a queue that gives no answer: exit code 1."""
    run, _ = ended(desk, monkeypatch)

    def refuse(*_, **__):
        raise UnavailableError("not now")

    monkeypatch.setattr(*((supervise, where) if where == "acquire_lease" else (Supervisor, where)), refuse)
    assert CliRunner().invoke(supervise.command, [run, "--in-schedd"]).exit_code == 1
    assert isinstance(CliRunner().invoke(supervise.command, [run]).exception, UnavailableError)


def ended(desk, monkeypatch) -> tuple[str, SqliteStore]:
    monkeypatch.setenv("PACKTRAIN_STORE", str(desk.folder / "store.db"))
    monkeypatch.setattr(supervise, "_listen", lambda *_: None)  # signals are this process's own
    return desk.run_json("run", "workflow.yaml", exit_code=10)["run"], SqliteStore(desk.folder / "store.db")
