"""A training that is killed repeatedly ends with the same weights, bit by bit, as one without interruption."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from packtrain.plan import CheckpointConfig, Limits, Location, Output, Resources, StepResources
from testbed import data
from tests.support.agent_runs import make_job, make_step
from tests.support.training_forkserver import RECIPES_DIR, read_checkpoint_notices, read_output
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch"), pytest.mark.timeout(600)]

N_KILLS = 20
MAX_STEPS = 3  # of one process, so that no training ends before the last kill
# 21 batches of two images in each of 3 epochs: 63 steps.
SHORT = ["--epochs", "3", "--limit-train", "42", "--limit-test", "20", "--threads", "1"]
BATCH_SIZE = 2
RARELY, ALWAYS = "3600", "0"  # seconds between checkpoints; ALWAYS: when the previous save is complete
MODELS = {"cifar10-resnet": "cifar10_resnet.pt", "mnist-cnn": "mnist_cnn.pt"}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Folders with a few real images, by recipe."""
    cifar, mnist = tmp_path_factory.mktemp("cifar"), tmp_path_factory.mktemp("mnist")
    with tarfile.open(data.make_small_cifar10(cifar, per_batch=20)) as tar:
        tar.extractall(cifar, filter="data")
    return {"cifar10-resnet": cifar, "mnist-cnn": data.make_small_mnist(mnist, n_train=42, n_test=20)}


@pytest.fixture(scope="module")
def uninterrupted(forkserver, images, tmp_path_factory):
    """Returns the result of a recipe without interruption, computed once."""
    results = {}

    def get_result(recipe: str, world_size: int = 1):
        if (recipe, world_size) not in results:
            output = tmp_path_factory.mktemp("uninterrupted")
            flags = make_flags(images, recipe, world_size=world_size)
            codes = forkserver.run_ranks(recipe, output, flags, [None] * world_size)
            assert codes == [0] * world_size, read_output(output)
            results[recipe, world_size] = read_result(output, recipe)
        return results[recipe, world_size]

    return get_result


def make_flags(images, recipe: str, checkpoint_every: str = RARELY, world_size: int = 1) -> list[str]:
    """Return the flags of a training. The batches of all processes together are the same with any number of them."""
    batch_size = ["--batch-size", str(BATCH_SIZE // world_size)]
    return ["--data", str(images[recipe]), *SHORT, *batch_size, "--checkpoint-every", checkpoint_every, "--save-model"]


def read_result(output: Path, recipe: str):
    """Return the bytes of the weights, and all metrics except the speed."""
    import torch

    weights = torch.load(output / MODELS[recipe], weights_only=True)
    bits = {name: value.contiguous().numpy().tobytes() for name, value in weights.items()}
    metrics = json.loads((output / "metrics.json").read_text())
    history = [{k: v for k, v in row.items() if k != "images_per_second"} for row in metrics["history"]]
    return bits, history, metrics["accuracy"], metrics["test_loss"]


@pytest.mark.parametrize("recipe", MODELS)
def test_kills_at_random_moments(forkserver, images, uninterrupted, tmp_path, recipe):
    rng = random.Random(recipe)
    flags, n_resumed = make_flags(images, recipe, ALWAYS), 0
    for number in range(N_KILLS):
        kill_spec = {"steps": rng.randint(1, MAX_STEPS)}
        if number % 4 == 0:  # under load, a process may be killed before its first save completes; not these
            kill_spec = {"steps": rng.randint(2, MAX_STEPS), "saved": 1}
        elif number % 2:
            kill_spec = {"files": rng.randint(1, 12), "steps": MAX_STEPS}
        assert forkserver.run_training(recipe, tmp_path, flags, kill_spec) == -signal.SIGKILL, read_output(tmp_path)
        n_resumed += "resuming from the checkpoint" in read_output(tmp_path)
    assert n_resumed > N_KILLS // 2, "others may be killed before they print it"
    steps = [notice["step"] for notice in read_checkpoint_notices(tmp_path)]
    assert steps == sorted(set(steps)), f"a process started from the beginning: {steps}"
    assert forkserver.run_training(recipe, tmp_path, flags) == 0, read_output(tmp_path)
    assert "resuming from the checkpoint" in read_output(tmp_path)
    assert read_result(tmp_path, recipe) == uninterrupted(recipe)


@pytest.mark.parametrize("recipe", MODELS)
def test_stop_requests(forkserver, images, uninterrupted, tmp_path, recipe):
    """On SIGTERM, and on the agent's stop file, it saves, exits with 85, and resumes from that step."""
    steps = [8, 15, 21]  # the last one ends an epoch
    flags = make_flags(images, recipe)
    for n, step in enumerate(steps):
        kill_spec = {"steps": step - (steps[n - 1] if n else 0), "signal": "SIGTERM"}
        assert forkserver.run_training(recipe, tmp_path, flags, kill_spec) == 85, read_output(tmp_path)
        assert read_checkpoint_notices(tmp_path)[-1]["step"] == step
    (tmp_path / "stop").write_text("wall_time")
    assert forkserver.run_training(recipe, tmp_path, flags, PACKTRAIN_STOP=str(tmp_path / "stop")) == 85
    assert read_checkpoint_notices(tmp_path)[-1] == {"path": "checkpoint.pt", "step": 22, "epoch": 1}
    assert forkserver.run_training(recipe, tmp_path, flags) == 0, read_output(tmp_path)
    assert read_result(tmp_path, recipe) == uninterrupted(recipe)


def test_two_ranks_stop_together_and_resume(forkserver, images, uninterrupted, tmp_path):
    """One rank gets SIGTERM, both exit, and rank 0 writes. Two ranks resume exactly, or a single one resumes."""
    recipe, sigterm = "mnist-cnn", {"steps": 16, "signal": "SIGTERM"}
    flags = make_flags(images, recipe, world_size=2)
    assert forkserver.run_ranks(recipe, tmp_path, flags, [None, sigterm]) == [85, 85], read_output(tmp_path)
    assert forkserver.run_ranks(recipe, tmp_path, flags, [sigterm, None]) == [85, 85], read_output(tmp_path)
    steps = [notice["step"] for notice in read_checkpoint_notices(tmp_path)]
    assert steps == [16, 21, 32], "each checkpoint was written once"

    single = tmp_path / "single"
    single.mkdir()
    (single / "checkpoint.pt").write_bytes((tmp_path / "checkpoint.pt").read_bytes())
    assert forkserver.run_training(recipe, single, make_flags(images, recipe)) == 0, read_output(single)
    assert "32 of 63 steps are done" in read_output(single)
    assert [row["epoch"] for row in read_result(single, recipe)[1]] == [0, 1, 2]

    assert forkserver.run_ranks(recipe, tmp_path, flags, [None, None]) == [0, 0], read_output(tmp_path)
    assert read_result(tmp_path, recipe) == uninterrupted(recipe, world_size=2)


HANG_AT_STEP = """
import runpy, sys, time
from pathlib import Path
from torch.optim.optimizer import register_optimizer_step_post_hook
steps_left, reached, *sys.argv = int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]

def on_step(*_):
    global steps_left
    steps_left -= 1
    while steps_left <= 0:  # until it is killed
        reached.touch()
        time.sleep(0.05)

register_optimizer_step_post_hook(on_step)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_resume_from_uploaded_checkpoint(attempt, images, uninterrupted, tmp_path):
    """Agent and training are killed; the next attempt starts in an empty folder from the uploaded checkpoint."""
    recipe, destination, reached = "mnist-cnn", tmp_path / "destination", tmp_path / "reached"
    (tmp_path / "hang.py").write_text(HANG_AT_STEP)
    train = [str(RECIPES_DIR / recipe / "train.py"), *make_flags(images, recipe, ALWAYS, world_size=2)]
    hang = [str(tmp_path / "hang.py"), "30", str(reached)]
    first = attempt(make_two_process_job(destination, [*hang, *train])).start()
    first.wait_for_event("checkpoint.saved")
    wait_until(reached.exists)
    first.process.kill()
    first.wait()
    assert not (destination / MODELS[recipe]).exists()
    second = attempt(make_two_process_job(destination, train)).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    assert second.events("checkpoint.restored")[0].data["step"] >= 1
    assert "resuming from the checkpoint" in (second.attempt_folder.logs / "train.0.out").read_text()
    assert read_result(destination / second.staged_name(""), recipe) == uninterrupted(recipe, world_size=2)


def make_two_process_job(destination: Path, program: list[str]):
    """Return a job of two processes with one CPU each."""
    command = shlex.join([sys.executable, *program])
    return make_job(
        make_step(command, name="train", resources=StepResources(tasks=2, cpus_per_task=1)),
        resources=Resources(tasks=2, cpus_per_task=1, mem_per_cpu_mb=16),
        limits=Limits(grace_s=20),
        output=Output(Location(destination.as_uri())),
        checkpoint=CheckpointConfig("checkpoint.pt"),
    )


def test_torchrun(images, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = RECIPES_DIR / "mnist-cnn" / "train.py"
    flags = ["--epochs", "1", "--limit-train", "8", "--limit-test", "8", "--batch-size", "2", "--threads", "1"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, script, "--data", images["mnist-cnn"], *flags],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "on 2 × cpu, 8 training images" in done.stdout
    assert json.loads((tmp_path / "metrics.json").read_text())["processes"] == 2
