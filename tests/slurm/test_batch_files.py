"""Unchanged batch scripts on a real cluster; each is interrupted once and recovers."""

from __future__ import annotations

import re
import shutil

import pytest

from testbed import apptainer
from tests.slurm.conftest import TWO_CLUSTERS
from tests.support.batch_workspace import BatchWorkspace
from tests.support.paths import TESTS_DIR

on_two_clusters = pytest.mark.parametrize("session_cluster", TWO_CLUSTERS, indirect=True)
on_newest_cluster = pytest.mark.parametrize("session_cluster", TWO_CLUSTERS[1:], indirect=True)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.timeout(600),
]
SCRIPTS = TESTS_DIR / "golden" / "batch-files"
# As on a real site: a function that the login shell exports.
MODULE_FUNCTION = '() { echo "$*" >> "$HOME/modules.log"; [ "$1" != load ] || export LOADED="$LOADED $2"; }'
# Trains until it is interrupted, and continues from its checkpoint.
TRAIN = """
import os, pathlib, sys, time
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
name = os.environ.get("SLURM_ARRAY_TASK_ID", "0")
checkpoint, started = pathlib.Path(f"checkpoint-{name}"), pathlib.Path(f"started-{name}")
resumed = checkpoint.exists()
checkpoint.write_text("epoch 1")
print("resumed" if resumed else "first start", options, flush=True)
if not resumed and pathlib.Path("interrupt").exists():
    started.touch()
    time.sleep(600)
pathlib.Path(options["--out"]).write_text(f"{options} {os.environ.get('LOADED', '')}")
"""
DDP = """
import os, pathlib, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
resumed = pathlib.Path("checkpoint").exists()
total = torch.ones(1)
dist.all_reduce(total)
dist.barrier()
if dist.get_rank() == 0:
    pathlib.Path("checkpoint").touch()
    if not resumed:
        pathlib.Path("started-0").touch()
if not resumed:
    time.sleep(600)
if dist.get_rank() == 0:
    pathlib.Path("ddp.txt").write_text(f"{int(total.item())} ranks, port {os.environ['MASTER_PORT']}")
dist.destroy_process_group()
"""


@pytest.fixture
def workspace(cluster, tmp_path):
    tmp_path.chmod(0o777)
    workspace = BatchWorkspace(cluster, tmp_path, **{"BASH_FUNC_module%%": MODULE_FUNCTION, "NOTE": "from my shell"})
    workspace.write_file(TRAIN, "train.py")
    return workspace


def start(workspace, name, *options):
    """Start a run of a script, a golden one if there is one of this name, and wait until its program has started."""
    if (SCRIPTS / name).exists():
        shutil.copy(SCRIPTS / name, workspace.folder)
    workspace.write_file("", "interrupt")
    run = workspace.start("run", name, "--on", "slurm", *options)
    workspace.wait_for(lambda: any(workspace.folder.glob("started-*")) or run.poll() is not None)
    assert run.poll() is None, run.communicate()
    return run


def running_tasks(workspace):
    return workspace.slurm("squeue", "-h", "-r", "-t", "running", "-o", "%i").split()


def preempt(workspace, node, cpus):
    """Run a job with a higher priority that needs all CPUs of a node."""
    options = ["-p", "high", "-w", node, "-c", str(cpus), "-o", "/dev/null"]
    workspace.slurm("sbatch", *options, "--wrap", "sleep 1")


def wait_for_success(workspace, run):
    out, err = run.communicate(timeout=400)
    assert run.returncode == 0, f"{out}\n{err}"


@on_two_clusters
def test_single_gpu_with_modules(workspace):
    run = start(workspace, "single_gpu.sbatch", "--expect", "models/resnet.pt")
    (task,) = running_tasks(workspace)
    workspace.slurm("scontrol", "requeue", task)
    wait_for_success(workspace, run)
    model = (workspace.folder / "models/resnet.pt").read_text()
    assert model == "{'--device': '0', '--out': 'models/resnet.pt'}  python/3.11"
    assert (workspace.folder / "modules.log").read_text() == "purge\nload python/3.11 cuda/12.4\n" * 2
    logs = [path.read_text() for path in (workspace.folder / "logs").glob("resnet-*.out")]
    assert len(logs) == 1 and logs[0].startswith("resumed"), "one job number, and Slurm truncates the file at a restart"
    assert len(workspace.read_events("agent.started")) == 2
    (kept,) = workspace.run_folder().glob("jobs/0/output/models/resnet.pt")
    assert kept.read_text() == model


@on_two_clusters
def test_array_sweep(workspace):
    workspace.write_file("0.1\n0.2\n0.3\n", "rates.txt")
    run = start(workspace, "sweep.slurm", "--expect", "model-{task}.pt")
    workspace.wait_for(lambda: len(list(workspace.folder.glob("started-*"))) == 2)
    tasks = running_tasks(workspace)
    assert len(tasks) == 2, "two tasks at once"
    for task in tasks:
        workspace.slurm("scontrol", "requeue", task)
    workspace.wait_for(lambda: (workspace.folder / "started-3").exists())
    (workspace.folder / "interrupt").unlink()
    workspace.wait_for(lambda: len(running_tasks(workspace)) == 1)
    workspace.slurm("scancel", "--signal=KILL", "--full", *running_tasks(workspace))
    wait_for_success(workspace, run)
    for index, rate in ((1, 0.1), (2, 0.2), (3, 0.3)):
        assert f"'--lr': '{rate}'" in (workspace.folder / f"model-{index}.pt").read_text()
    assert sum(path.stem.endswith("_1") for path in (workspace.folder / "logs").glob("*.out")) == 1


@on_two_clusters
def test_torchrun(workspace):
    workspace.write_file(DDP, "ddp.py")
    run = start(workspace, "torchrun.sh", "--expect", "ddp.txt")
    node = workspace.slurm("squeue", "-h", "-t", "running", "-o", "%N").strip()
    preempt(workspace, node, 16 if node == "n1" else 8)
    wait_for_success(workspace, run)
    assert re.fullmatch(r"2 ranks, port 2\d{4}", (workspace.folder / "ddp.txt").read_text())


@on_two_clusters
def test_script_of_the_pixi_lesson(workspace):
    program = '#!/bin/bash\nexec python train.py --device "$CUDA_VISIBLE_DEVICES" --out mnist_cnn.pt\n'
    workspace.write_file(program, "mnist_gpu.sh").chmod(0o755)
    run = start(workspace, "lesson.sbatch", "--expect", "mnist_cnn.pt")
    preempt(workspace, "n1", 16)
    wait_for_success(workspace, run)
    assert (workspace.folder / "mnist_cnn.pt").exists()
    starts = {path.read_text().split("\n")[1] for path in workspace.folder.glob("slurm-*.out")}
    assert {line.split(" {")[0] for line in starts} == {"first start", "resumed"}, "two jobs, because of --no-requeue"
    assert (workspace.folder / "modules.log").read_text() == "reset\n" * 2


@on_two_clusters
def test_same_variables_as_with_sbatch(workspace):
    """A script sees the same SLURM_* variables as under sbatch, also as an array."""
    for name, options in (("plain", "-n1 -c2"), ("array", "-a 4,6 --mem=100 -J 'my name'")):
        variables = 'env -0 | grep -az ^SLURM | tr "\\0" "\\n" | sort > $OUT-${SLURM_ARRAY_TASK_ID-}'
        body = f'{variables}; echo "$NOTE" "$PWD"; srun -n1 true'
        workspace.write_file(f"#!/bin/bash\n#SBATCH {options} -o {name}%a.log\n{body}\n", f"{name}.sh")
        workspace.environment["OUT"] = f"theirs-{name}"
        workspace.slurm("sbatch", "--wait", f"{name}.sh")
        workspace.environment["OUT"] = f"ours-{name}"
        workspace.run("run", f"{name}.sh", "--on", "slurm")
        (log, *_) = workspace.folder.glob(f"{name}*.log")
        assert log.read_text() == f"from my shell {workspace.folder}\n"
    for name in ("plain-", "array-4", "array-6"):
        theirs, ours = (
            dict(line.split("=", 1) for line in (workspace.folder / f"{who}-{name}").read_text().splitlines())
            for who in ("theirs", "ours")
        )
        own = r".*(JOB_?ID|SLUID|_TIME|TASK_PID|NODELIST|NODENAME|TOPOLOGY_ADDR)|SLURM_SUBMIT_HOST"
        assert theirs.keys() == ours.keys()
        assert {k: v for k, v in theirs.items() if not re.fullmatch(own, k)} == {
            k: v for k, v in ours.items() if not re.fullmatch(own, k)
        }


@on_two_clusters
def test_two_nodes(workspace):
    program = "bash -c 'echo $SLURM_PROCID $SLURMD_NODENAME $NOTE'"
    script = f"#!/bin/bash\n#SBATCH -N2 --ntasks-per-node=2 -o out.log\nset -e\nsrun {program}\n"
    workspace.write_file(script, "two.sbatch")
    workspace.run("run", "two.sbatch", "--on", "slurm")
    lines = [line.split(" ", 2) for line in (workspace.folder / "out.log").read_text().splitlines()]
    assert sorted(process for process, _, _ in lines) == ["0", "1", "2", "3"]
    assert len({node for _, node, _ in lines}) == 2
    assert {note for _, _, note in lines} == {"from my shell"}


@on_newest_cluster
def test_failing_script(workspace):
    workspace.write_file("#!/bin/bash\n#SBATCH -o out.log --no-requeue\nset -e\necho wrong >&2\nexit 3\n", "job.sbatch")
    workspace.run("run", "job.sbatch", "--on", "slurm", exit_code=None)
    assert workspace.exit_code not in (0, 1, 2)
    assert "exit code 3" in workspace.run("why") and (workspace.folder / "out.log").read_text() == "wrong\n"


@on_newest_cluster
def test_refused_before_anything_is_submitted(workspace):
    workspace.write_file("#!/bin/bash\n#SBATCH --dependency=afterok:1 --nodes=two\nset -e\ntrue\n", "job.sbatch")
    workspace.run("run", "job.sbatch", "--on", "slurm", exit_code=2)
    assert "job.sbatch:2:1: --dependency is not supported" in workspace.stderr
    assert "job.sbatch:2:1: --nodes should be a number" in workspace.stderr
    assert not (workspace.folder / ".packtrain").exists()


@on_newest_cluster
def test_no_variables_of_the_shell_in_slurm(workspace):
    """Slurm stores scripts and environments; the user's variables are only in a file of the run."""
    workspace.environment["API_KEY"] = "secret-5a1f-value"
    body = "set -e\ntouch started-0\necho $API_KEY\nwhile [ ! -e go ]; do sleep 0.1; done\n"
    script = f"#!/bin/bash\n#SBATCH -o out.log\n{body}"
    workspace.write_file(script, "job.sbatch")
    run = start(workspace, "job.sbatch")
    (variables,) = workspace.run_folder().glob("secrets/*")
    assert variables.stat().st_mode & 0o777 == 0o600 and "secret-5a1f-value" in variables.read_text()
    stored = [path for folder in ("state", "spool") for path in (workspace.cluster.folder / folder).rglob("*")]
    assert not any(b"secret-5a1f-value" in path.read_bytes() for path in stored if path.is_file())
    workspace.write_file("", "go")
    wait_for_success(workspace, run)
    assert not variables.exists()
    assert (workspace.folder / "out.log").read_text() == "***\n"


@on_newest_cluster
def test_container(workspace):
    image = apptainer.build_sif(workspace.folder / "image.sif")
    workspace.environment["PATH"] = f"{apptainer.install_dir()}/usr/bin:{workspace.environment['PATH']}"
    workspace.write_file(
        "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}\nexpect: [where.txt]\nsteps:\n- run:\n"
        "    command: 'test -e /bin/busybox && echo inside > $PACKTRAIN_OUTPUT/where.txt'\n"
        f"    container: {{image: {image}}}\n"
    )
    workspace.run("run", "workflow.yaml", "--on", "slurm")
    assert (workspace.run_folder() / "jobs/0/output/where.txt").read_text() == "inside\n"
