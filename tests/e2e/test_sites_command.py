"""`packtrain sites`: what runs learned, as a table and as JSON."""

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


def fared(number, site, **more):
    more = {
        "steps_s": 3600.0,
        "fetch_s": 60.0,
        "fetched_bytes": 10**9,
        "source_host": f"cache.{site.lower()}.org",
        **more,
    }
    return SiteObservation(
        "old", str(number), time.time() - 100 + number, "htcondor", site, f"{site.lower()}{number}", **more
    )


@pytest.fixture
def desk(tmp_path):
    return Workspace(tmp_path)


@pytest.fixture
def learned(desk):
    failed = {"failure_kind": "gpu_unusable", "is_site_fault": True, "steps_s": 0.0, "fetched_bytes": 0}
    store = SqliteStore(desk.folder / "store.db")
    store.add_observations([fared(n, "Ada") for n in range(6)])
    store.add_observations([fared(n, "Bob", **failed) for n in range(10, 13)])
    store.close()
    return desk


def test_nothing_is_known_at_first(desk):
    assert "nothing is known yet" in desk.run("sites")
    assert desk.run_json("sites")["sites"] == []


def test_a_table_and_the_reason_of_each_exclusion(learned):
    text = learned.run("sites")
    assert "██████" in text and "▁▁▁" in text and "16.7 MB/s" in text and "1 h 00 min" in text
    assert "Bob is avoided by new runs: 100% of the executions there failed (gpu_unusable 3 times)" in text
    assert "7 days old counts half" in text


def test_json_has_all_figures(learned):
    ada, bob = learned.run_json("sites")["sites"]
    assert (ada["name"], ada["executions"], ada["failed"], ada["slowness"], ada["avoided"]) == ("Ada", 6, 0.0, 1.0, "")
    assert (bob["name"], bob["failure_rate"], bob["score_percent"]) == ("Bob", 1.0, -75) and bob["avoid_reason"]


def test_machines_and_caches(learned):
    assert {row["name"] for row in learned.run_json("sites", "--machines")["machines"]} > {"ada0", "bob10"}
    first, second = learned.run_json("sites", "--caches")["caches"]
    assert (first["name"], first["executions"], second["name"]) == ("cache.ada.org", 6, "cache.bob.org")
    assert "failure_rate" not in first, "what fails on a machine says nothing of the cache"
    assert "16.7 MB/s" in learned.run("sites", "--caches")


@pytest.mark.parametrize("columns", ["40", "80", "100"])
def test_a_narrow_terminal_loses_columns_not_lines(learned, columns):
    learned.environment["COLUMNS"] = columns
    lines = learned.run("sites").splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["site", "Ada", "Bob"]
    assert max(map(len, lines[:3])) <= int(columns)


def test_runs_on_this_machine_are_learned_from_too(desk):
    needs = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}\n"
    desk.write_file(f"{needs}steps: [{{run: {{command: 'true'}}}}]\n")
    desk.run("run", "workflow.yaml")
    (row,) = desk.run_json("sites")["sites"]
    assert (row["name"], row["executions"], row["outcome_sparkline"]) == ("local", 1, "█")


def test_agents_ask_the_host_first_that_was_quicker_in_earlier_runs(desk, tmp_path):
    """Where the workflow names the other one first."""
    served = tmp_path / "served"
    served.mkdir()
    (served / "data.bin").write_bytes(bytes(1_000_000))
    store = SqliteStore(desk.folder / "store.db")
    speeds = {"127.0.0.1": 10**7, "127.0.0.2": 10**9}
    store.add_observations(
        [
            replace(fared(n, "local", fetched_bytes=speeds[h], source_host=h), engine="local")
            for n, h in enumerate(speeds)
        ]
    )
    store.close()
    with HttpServer(served) as slow, HttpServer(served, host="127.0.0.2") as quick:
        urls = ", ".join(f"{origin.url}/data.bin" for origin in (slow, quick))
        desk.write_file(WORKFLOW.format(urls=urls))
        desk.run("run", "workflow.yaml")
        assert (slow.sent_bytes, quick.sent_bytes) == (0, 1_000_000)
