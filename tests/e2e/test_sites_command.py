"""`packtrain sites` as a table and as JSON."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from packtrain.state.site_history import SiteObservation
from packtrain.store import SqliteStore
from testbed.http_server import HttpServer
from tests.support.cli_runs import Workspace

pytestmark = pytest.mark.slow

WORKFLOW = """
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 16, gpus: 0}}
input: {{http: {{urls: [{urls}]}}}}
steps: [{{run: {{command: "true"}}}}]
"""


def make_observation(number, site, **fields):
    fields = {
        "steps_s": 3600.0,
        "fetch_s": 60.0,
        "fetched_bytes": 10**9,
        "source_host": f"cache.{site.lower()}.org",
        **fields,
    }
    return SiteObservation(
        "old", str(number), time.time() - 100 + number, "htcondor", site, f"{site.lower()}{number}", **fields
    )


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path)


@pytest.fixture
def workspace_with_history(workspace):
    failed = {"failure_kind": "gpu_unusable", "is_site_fault": True, "steps_s": 0.0, "fetched_bytes": 0}
    store = SqliteStore(workspace.folder / "store.db")
    store.add_observations([make_observation(n, "Ada") for n in range(6)])
    store.add_observations([make_observation(n, "Bob", **failed) for n in range(10, 13)])
    store.close()
    return workspace


def test_no_history(workspace):
    assert "nothing is known yet" in workspace.run("sites")
    assert workspace.run_json("sites")["sites"] == []


def test_table_with_reasons(workspace_with_history):
    text = workspace_with_history.run("sites")
    assert "██████" in text and "▁▁▁" in text and "16.7 MB/s" in text and " 1 h " in text
    assert "Bob is avoided by new runs: 100% of the executions there failed (gpu_unusable 3 times)" in text
    assert "half-life 7 d" in text


def test_json(workspace_with_history):
    ada, bob = workspace_with_history.run_json("sites")["sites"]
    assert (ada["name"], ada["executions"], ada["failure_rate"]) == ("Ada", 6, 0.0)
    assert (ada["relative_duration"], ada["avoid_reason"]) == (1.0, "")
    assert (bob["name"], bob["failure_rate"], bob["score_percent"]) == ("Bob", 1.0, -75) and bob["avoid_reason"]


def test_nodes_and_caches(workspace_with_history):
    nodes = workspace_with_history.run_json("sites", "--nodes")["nodes"]
    assert {row["name"] for row in nodes} > {"ada0", "bob10"}
    first, second = workspace_with_history.run_json("sites", "--caches")["caches"]
    assert (first["name"], first["executions"], second["name"]) == ("cache.ada.org", 6, "cache.bob.org")
    assert "failure_rate" not in first, "failures on a node show nothing about the cache"
    assert "16.7 MB/s" in workspace_with_history.run("sites", "--caches")


@pytest.mark.parametrize("columns", ["40", "80", "100"])
def test_narrow_terminal_drops_columns(workspace_with_history, columns):
    workspace_with_history.environment["COLUMNS"] = columns
    lines = workspace_with_history.run("sites").splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["site", "Ada", "Bob"]
    assert max(map(len, lines[:3])) <= int(columns)


def test_local_runs_are_recorded(workspace):
    needs = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}\n"
    workspace.write_file(f"{needs}steps: [{{run: {{command: 'true'}}}}]\n")
    workspace.run("run", "workflow.yaml")
    (row,) = workspace.run_json("sites")["sites"]
    assert (row["name"], row["executions"], row["outcome_sparkline"]) == ("local", 1, "█")


def test_faster_host_of_earlier_runs_comes_first(workspace, tmp_path):
    """Even if the workflow lists the other host first."""
    served = tmp_path / "served"
    served.mkdir()
    (served / "data.bin").write_bytes(bytes(1_000_000))
    store = SqliteStore(workspace.folder / "store.db")
    speeds = {"127.0.0.1": 10**7, "127.0.0.2": 10**9}
    store.add_observations(
        [
            replace(make_observation(n, "local", fetched_bytes=speeds[h], source_host=h), engine="local")
            for n, h in enumerate(speeds)
        ]
    )
    store.close()
    with HttpServer(served) as slow, HttpServer(served, host="127.0.0.2") as fast:
        urls = ", ".join(f"{origin.url}/data.bin" for origin in (slow, fast))
        workspace.write_file(WORKFLOW.format(urls=urls))
        workspace.run("run", "workflow.yaml")
        assert (slow.sent_bytes, fast.sent_bytes) == (0, 1_000_000)
