"""`packtrain report` on the accounting of real clusters, whose jobs ended in every way; packtrain also calls sacct."""

from __future__ import annotations

import json
import sys
from collections import Counter

import pytest

from testbed.slurm import install
from tests.support.slurm_jobs import AccountedJobs

pytestmark = [
    pytest.mark.parametrize("session_cluster", [f"{install.NEWEST}-accounting"], indirect=True),  # recordings have both
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.timeout(600),
]


@pytest.fixture
def jobs(cluster):
    accounted = AccountedJobs(cluster)
    accounted.run_all(with_time_limit=False)
    return accounted


def test_all_ends(cluster, jobs, tmp_path):
    tmp_path.chmod(0o755)
    ids = {number: name for name, number in jobs.ids.items()}
    (tmp_path / "sacct.txt").write_text(cluster.run(["sacct", "-P", "-D", "-o", "JobID,State,Start,End"]).stdout)
    (tmp_path / "sacct.json").write_text(cluster.run(["sacct", "-D", "--json"]).stdout)
    for arguments in (
        ["--since", "now-1hour", "--user", cluster.user],
        [tmp_path / "sacct.txt"],
        [tmp_path / "sacct.json"],
    ):
        output = cluster.run([sys.executable, "-m", "packtrain", "report", *arguments, "--json"]).stdout
        report = json.loads(output)
        assert report["problems"] == []
        tasks = [row["outcome"] for row in report["jobs"] if row["job"].startswith(f"{jobs.ids['array']}_")]
        assert sorted(tasks) == ["failed", *["succeeded"] * 3]
        rows = {ids[row["job"]]: row for row in report["jobs"] if row["job"] in ids}
        assert {name: (row["outcome"], row["executions"]) for name, row in rows.items()} == {
            "success": ("succeeded", 1), "failure": ("failed", 1), "gpus": ("succeeded", 1),
            "memory": (rows["memory"]["outcome"], 1), "cancelled": ("removed", 1), "requeued": ("failed", 2),
            "preempted and requeued": ("failed", 2), "preempted": ("evicted", 1), "lost node": ("failed", 2),
            "high priority": ("succeeded", 1), "running": ("running", 1), "waiting": ("queued", 0),
        }  # fmt: skip
        states = Counter({state["state"]: state["executions"] for state in report["statistics"]["states"]})
        assert states["PREEMPTED"] >= 2 and states["NODE_FAIL"] >= 1 and states["REQUEUED"] >= 1
    efficiency = report["statistics"]["efficiency"]
    assert 0 < efficiency["cpu"] < 1 and efficiency["memory"] > 0


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["2001-01-01", "--until", "2001-02-01"], 4, "sacct lists no Slurm jobs from 2001-01-01 to 2001-02-01"),
        (["now-1hour", "--user", "no-such-user"], 2, "sacct failed: Invalid user id: no-such-user"),
        (["yesteryear"], 2, "sacct failed: "),
    ],
)
def test_nothing_to_report(cluster, arguments, exit_code, message):
    result = cluster.run([sys.executable, "-m", "packtrain", "report", "--since", *arguments], check=False)
    assert result.returncode == exit_code
    assert message in result.stderr and len(result.stderr.splitlines()) == 1
