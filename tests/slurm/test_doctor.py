"""`packtrain doctor` on real clusters says what the site allows."""

from __future__ import annotations

import json
import re
import sys

import pytest

from testbed.slurm.cluster import Cluster
from tests.slurm.conftest import TWO_CLUSTERS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(300)]


def check(cluster, folder, *options):
    """Return status and message of the checks of Slurm."""
    for path in (folder, *folder.parents[:2]):
        path.chmod(0o755)
    env = {**cluster.env, "PACKTRAIN_CONFIG": str(folder / "config.yaml"), "PACKTRAIN_STORE": str(folder / "store.db")}
    argv = [sys.executable, "-m", "packtrain", "doctor", "--json", *options]
    results = json.loads(cluster.run(argv, check=False, cwd=folder, env=env).stdout)
    return [(result["status"], result["detail"]) for result in results if result["name"] == "slurm"]


@pytest.mark.parametrize("session_cluster", TWO_CLUSTERS, indirect=True)
def test_cluster(cluster, tmp_path):
    results = check(cluster, tmp_path, "--node")
    messages = [message for _, message in results]
    version = ".".join(f"{part:02}" for part in cluster.version)
    assert version in messages[0] and "cluster testbed" in messages[0]
    assert ("ok", "sacct answers") in results or not cluster.accounting
    assert any(message.startswith("no accounting database") for message in messages) is not cluster.accounting
    gpus = ", 4 GPUs" if cluster.accounting else ""  # Slurm counts GPUs only for the accounting
    assert f"partition main (default): 3 nodes{gpus}, at most 24 h" in "\n".join(messages)
    assert any(
        "partition low: " in message and "may be preempted (REQUEUE after 2 s)" in message for message in messages
    )
    assert any("preemptible" in message and "CANCEL" in message for message in messages)
    assert any(message.startswith("arrays of up to 10,000 tasks") for message in messages)
    assert any(re.fullmatch(r"n\d sees this folder", message) for message in messages)
    assert any(" has Python 3." in message for message in messages)
    assert not [result for result in results if result[0] == "error"]


class TestController:
    @pytest.mark.parametrize("session_cluster", ["26.05"], indirect=True)
    def test_no_answer(self, session_cluster, tmp_path):
        settings = {"MessageTimeout": "2"}
        with Cluster(tmp_path / "cluster", "26.05", settings=settings) as cluster:
            cluster.stop("slurmctld")
            ((status, message),) = check(cluster, tmp_path)
        assert status == "error" and "scontrol" not in message
