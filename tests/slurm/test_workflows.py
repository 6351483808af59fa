"""Workflows on a real cluster: secrets, a shared download cache, the real CIFAR-10, bad nodes, and polite polling."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from testbed.http_server import HttpServer
from testbed.slurm import install
from tests.pool.test_cifar10 import batches, check_results, files_input, short_recipe  # noqa: F401
from tests.support.slurm_workspace import SlurmWorkspace

pytestmark = [
    pytest.mark.parametrize("session_cluster", [f"{install.NEWEST}-accounting"], indirect=True),
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.timeout(600),
]
SECRET = "s3cr3t-of-ada-4711"
HEAD = (
    "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}\nlimits: {grace: 2s}\nrecovery: {retryDelay: 1s}\n"
)
SECRET_WORKFLOW = """\
input: {http: {url: "URL/data.txt", token: "${env:PACKTRAIN_DATA_TOKEN}"}}
env: [{key: PASSWORD, value: "${env:PACKTRAIN_DATA_TOKEN}"}]
steps:
  - name: train
    run:
      command: |
        echo "$PASSWORD" | cut -c 1-3 > $DEEPSQUARE_OUTPUT/start.txt
        echo "says $PASSWORD"
        until [ -e GATE ]; do sleep 0.1; done
"""


@pytest.fixture
def workspace(cluster, tmp_path):
    return SlurmWorkspace(cluster, tmp_path)


@pytest.fixture
def origin(tmp_path):
    folder = tmp_path / "origin"
    folder.mkdir()
    (folder / "data.txt").write_text("data" * 1000)
    return folder


def files_with_secret(folder: Path) -> list[str]:
    """Return the files below the folder that contain the secret, except those that the job must read."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "secrets")
    return [str(path) for path in paths if SECRET.encode() in path.read_bytes()]


def test_secret_is_only_a_file_of_the_run(workspace, cluster, origin):
    """Slurm shows and stores scripts, environments and comments, also in its database."""
    gate = workspace.folder / "gate"
    workspace.environment["PACKTRAIN_DATA_TOKEN"] = SECRET
    with HttpServer(origin, token=SECRET) as server:
        workspace.write_file(HEAD + SECRET_WORKFLOW.replace("URL", server.url).replace("GATE", str(gate)))
        process = workspace.start("run", "workflow.yaml", "--on", "slurm")
        workspace.wait_for_stage("steps")
        workspace.wait_for(lambda: "says ***" in workspace.run("logs"))  # while the job runs
        modes = {path.stat().st_mode & 0o777 for path in workspace.run_folder().glob("secrets/*")}
        job = cluster.run(["scontrol", "show", "job", "-d"]).stdout
        number = re.search(r"JobId=(\d+) .*JobName=pt-", job)[1]  # not one of the supervisors' jobs of other tests
        script = cluster.run(["scontrol", "write", "batch_script", number, "-"]).stdout
        in_daemons = [name for name in ("spool", "state", "log") for name in files_with_secret(cluster.folder / name)]
        gate.touch()
        assert process.wait(300) == 0, process.communicate()
    queries = (["-o", "ALL", "-P"], ["--batch-script"], ["--env-vars"])
    accounting = [cluster.run(["sacct", "-j", number, *query]).stdout for query in queries]
    assert "packtrain" in job and "packtrain" in script and all(accounting), "all listings have the job"
    assert "launch.sh" in accounting[1] and "HOME" in accounting[2]
    assert SECRET not in job + script + "".join(accounting)
    assert in_daemons == [] and files_with_secret(cluster.folder / "db") == []
    assert modes == {0o600}
    assert (workspace.run_folder() / "jobs/0/output/start.txt").read_text().strip() == SECRET[:3], "the job had it"
    assert files_with_secret(workspace.folder) == []


def test_jobs_fetch_once_into_a_shared_cache(workspace, origin):
    workspace.write_settings({"cache": str(workspace.folder / "cache")})
    with HttpServer(origin) as server:
        steps = "steps: [{name: copy, run: {command: cp $PACKTRAIN_INPUT/data.txt $PACKTRAIN_OUTPUT}}]\n"
        workspace.write_file(f'{HEAD}count: 8\ninput: {{http: {{url: "{server.url}/data.txt"}}}}\n{steps}')
        workspace.run("run", "workflow.yaml", "--on", "slurm")
        requests = [request.path for request in server.requests if request.method == "GET"]
    assert requests == ["/data.txt"]
    outputs = list(workspace.run_folder().glob("jobs/*/output/data.txt"))
    assert [path.read_text() for path in outputs] == ["data" * 1000] * 8


def test_cifar10_runs_unchanged(workspace, batches):  # noqa: F811
    """The recipe's workflow, as it also runs on HTCondor."""
    with HttpServer(batches) as server:
        workspace.write_file(short_recipe(files_input(server)))
        workspace.run("run", "workflow.yaml", "--on", "slurm")
    check_results(workspace.folder / "results")


def test_bad_node_is_excluded(workspace):
    """A program that fails is confirmed on another node."""
    step = (
        "[ $SLURMD_NODENAME != $(cat BAD 2>/dev/null || echo $SLURMD_NODENAME | tee BAD) ] && touch $PACKTRAIN_OUTPUT/x"
    )
    workspace.write_file(
        f"{HEAD}steps: [{{name: train, run: {{command: '{step.replace('BAD', str(workspace.folder / 'bad'))}'}}}}]\n"
    )
    workspace.run("run", "workflow.yaml", "--on", "slurm")
    bad = (workspace.folder / "bad").read_text().strip()
    _, second = workspace.read_scripts()
    assert f"#SBATCH --exclude={bad}\n" in second
    (job,) = workspace.run_json("ps", workspace.run_folder().name)["jobs"]
    assert [e["site"] == bad for e in job["executions"]] == [True, False]


def test_no_node_is_left(workspace, cluster):
    """Slurm rejects a job that excludes every node it could use; then it excludes none."""
    step = "[ -e MARK ] && touch $PACKTRAIN_OUTPUT/x || { touch MARK; exit 3; }".replace(
        "MARK", str(workspace.folder / "mark")
    )
    workspace.write_file(f"{HEAD}slurm: {{constraint: a100}}\nsteps: [{{name: train, run: {{command: '{step}'}}}}]\n")
    workspace.run("run", "workflow.yaml", "--on", "slurm")
    assert "#SBATCH --exclude=n1\n" in workspace.read_scripts()[1], "it is the only node with this feature"


def test_request_that_no_node_meets(workspace):
    """Slurm accepts the array and lets it wait forever."""
    head = HEAD.replace("cpusPerTask: 1", "cpusPerTask: 99")
    workspace.write_file(f"{head}steps: [{{name: train, run: {{command: 'true'}}}}]\n")
    (job,) = workspace.run_json("run", "workflow.yaml", "--on", "slurm", exit_code=20)["jobs"]
    assert job["failure"]["kind"] == "submit_rejected"
    assert "the partition has no node with what the job requests" in workspace.run("why")


def test_queries_are_rare(workspace, cluster):
    """One query of the queue at a time, whatever the number of arrays is; a query needs few calls of the controller."""
    workspace.write_settings({"queryInterval": "2s"})
    gate = workspace.folder / "gate"
    step = f"until [ -e {gate} ]; do sleep 0.1; done"
    workspace.write_file(f"{HEAD}count: 12\nsteps: [{{name: wait, run: {{command: '{step}'}}}}]\n")
    process = workspace.start("run", "workflow.yaml", "--on", "slurm")
    workspace.wait_for(lambda: len(workspace.read_events("agent.started")) == 12)
    before, started_at = count_job_queries(cluster), time.monotonic()
    workspace.wait_for(lambda: count_job_queries(cluster) >= before + 3)
    n_queries, elapsed_s = count_job_queries(cluster) - before, time.monotonic() - started_at
    gate.touch()
    assert process.wait(300) == 0
    assert n_queries <= elapsed_s / 2 + 1


def count_job_queries(cluster) -> int:
    """Return how often the controller was asked for jobs."""
    counts = re.findall(r"REQUEST_JOB_\w*INFO\w*\s+\(\s*\d+\) count:(\d+)", cluster.run(["sdiag"]).stdout)
    return sum(map(int, counts))
