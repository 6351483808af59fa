"""A training that is killed, again and again, ends with the same bits as one that was left in peace."""

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
from tests.support.agent_runs import make_job, make_step, wait_until
from tests.support.training_forkserver import RECIPES_DIR, read_checkpoint_notices, read_output

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch"), pytest.mark.timeout(600)]

KILLS = 20
MOST_STEPS = 3  # of one life, so that no training is over before it was killed often enough
# 21 batches of two images in each of 3 epochs: 63 steps.
SHORT = ["--epochs", "3", "--batch-size", "2", "--limit-train", "42", "--limit-test", "20", "--threads", "1"]
SELDOM, ALWAYS = "3600", "0"  # seconds between checkpoints; ALWAYS: whenever the one before is written
MODELS = {"cifar10-resnet": "cifar10_resnet.pt", "mnist-cnn": "mnist_cnn.pt"}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Folders of a few real images, by recipe."""
    cifar, mnist = tmp_path_factory.mktemp("cifar"), tmp_path_factory.mktemp("mnist")
    with tarfile.open(data.make_small_cifar10(cifar, per_batch=20)) as tar:
        tar.extractall(cifar, filter="data")
    return {"cifar10-resnet": cifar, "mnist-cnn": data.make_small_mnist(mnist, n_train=42, n_test=20)}


@pytest.fixture(scope="module")
def undisturbed(nursery, images, tmp_path_factory):
    """What each recipe ends with if nobody disturbs it, made once."""
    known = {}

    def of(recipe: str, processes: int = 1):
        if (recipe, processes) not in known:
            output = tmp_path_factory.mktemp("undisturbed")
            codes = nursery.run_ranks(recipe, output, flags(images, recipe), [None] * processes)
            assert codes == [0] * processes, read_output(output)
            known[recipe, processes] = result(output, recipe)
        return known[recipe, processes]

    return of


def flags(images, recipe: str, every: str = SELDOM) -> list[str]:
    return ["--data", str(images[recipe]), *SHORT, "--checkpoint-every", every, "--save-model"]


def result(output: Path, recipe: str):
    """Every bit of the weights, and every metric but the speed."""
    import torch

    weights = torch.load(output / MODELS[recipe], weights_only=True)
    bits = {name: value.contiguous().numpy().tobytes() for name, value in weights.items()}
    metrics = json.loads((output / "metrics.json").read_text())
    history = [{k: v for k, v in row.items() if k != "images_per_second"} for row in metrics["history"]]
    return bits, history, metrics["accuracy"], metrics["test_loss"]


@pytest.mark.parametrize("recipe", MODELS)
def test_killed_at_random_moments(nursery, images, undisturbed, tmp_path, recipe):
    dice = random.Random(recipe)
    given, resumed = flags(images, recipe, ALWAYS), 0
    for number in range(KILLS):
        kill = {"steps": dice.randint(1, MOST_STEPS)}
        if number % 4 == 0:  # under load a life may be over before its first checkpoint is: not these
            kill = {"steps": dice.randint(2, MOST_STEPS), "saved": 1}
        elif number % 2:
            kill = {"files": dice.randint(1, 12), "steps": MOST_STEPS}
        assert nursery.run_training(recipe, tmp_path, given, kill) == -signal.SIGKILL, read_output(tmp_path)
        resumed += "going on from the checkpoint" in read_output(tmp_path)
    assert resumed > KILLS // 2, "others may be killed before they can say so"
    steps = [row["step"] for row in read_checkpoint_notices(tmp_path)]
    assert steps == sorted(set(steps)), f"a life began anew: {steps}"
    assert nursery.run_training(recipe, tmp_path, given) == 0, read_output(tmp_path)
    assert "going on from the checkpoint" in read_output(tmp_path)
    assert result(tmp_path, recipe) == undisturbed(recipe)


@pytest.mark.parametrize("recipe", MODELS)
def test_asked_to_leave(nursery, images, undisturbed, tmp_path, recipe):
    """By TERM, then by the agent's file: each time it saves, leaves with 85, and goes on from the very step."""
    steps = [8, 15, 21]  # the last of them ends an epoch
    for n, step in enumerate(steps):
        kill = {"steps": step - (steps[n - 1] if n else 0), "signal": "SIGTERM"}
        assert nursery.run_training(recipe, tmp_path, flags(images, recipe), kill) == 85, read_output(tmp_path)
        assert read_checkpoint_notices(tmp_path)[-1]["step"] == step
    (tmp_path / "stop").write_text("wall_time")
    assert nursery.run_training(recipe, tmp_path, flags(images, recipe), PACKTRAIN_STOP=str(tmp_path / "stop")) == 85
    assert read_checkpoint_notices(tmp_path)[-1] == {"path": "checkpoint.pt", "step": 22, "epoch": 2}
    assert nursery.run_training(recipe, tmp_path, flags(images, recipe)) == 0, read_output(tmp_path)
    assert result(tmp_path, recipe) == undisturbed(recipe)


def test_two_processes_leave_together_and_go_on(nursery, images, undisturbed, tmp_path):
    """Only the second is told, both leave; rank 0 alone writes; then two go on, exactly, or one alone."""
    recipe, told = "mnist-cnn", {"steps": 16, "signal": "SIGTERM"}
    given = flags(images, recipe)
    assert nursery.run_ranks(recipe, tmp_path, given, [None, told]) == [85, 85], read_output(tmp_path)
    assert nursery.run_ranks(recipe, tmp_path, given, [told, None]) == [85, 85], read_output(tmp_path)
    assert [line["step"] for line in read_checkpoint_notices(tmp_path)] == [16, 21, 32], "each was written once"

    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "checkpoint.pt").write_bytes((tmp_path / "checkpoint.pt").read_bytes())
    assert nursery.run_training(recipe, alone, given) == 0, read_output(alone)
    assert "32 of 63 steps are done" in read_output(alone)
    assert [row["epoch"] for row in result(alone, recipe)[1]] == [1, 2, 3]

    assert nursery.run_ranks(recipe, tmp_path, given, [None, None]) == [0, 0], read_output(tmp_path)
    assert result(tmp_path, recipe) == undisturbed(recipe, processes=2)


STOPS_AT = """
import runpy, sys, time
from pathlib import Path
from torch.optim.optimizer import register_optimizer_step_post_hook
left, reached, *sys.argv = int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]

def step(*_):
    global left
    left -= 1
    while left <= 0:  # until it is killed
        reached.touch()
        time.sleep(0.05)

register_optimizer_step_post_hook(step)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_killed_with_its_agent_two_processes_go_on_from_the_destination(attempt, images, undisturbed, tmp_path):
    """Nothing is left but what was carried away: the next attempt begins in an empty folder."""
    recipe, place, reached = "mnist-cnn", tmp_path / "place", tmp_path / "reached"
    (tmp_path / "stops.py").write_text(STOPS_AT)
    train = [str(RECIPES_DIR / recipe / "train.py"), *flags(images, recipe, ALWAYS)]
    first = attempt(in_two(place, [str(tmp_path / "stops.py"), "30", str(reached), *train])).start()
    first.await_event("checkpoint.saved")
    wait_until(reached.exists)
    first.process.kill()
    first.finish()
    assert not (place / MODELS[recipe]).exists()
    second = attempt(in_two(place, train)).run()
    assert second.process.returncode == 0, second.stderr
    assert second.events("checkpoint.restored")[0].data["step"] >= 1
    assert "going on from the checkpoint" in (second.home.logs / "train.0.out").read_text()
    assert result(place, recipe) == undisturbed(recipe, processes=2)


def in_two(place: Path, program: list[str]):
    """A job of two processes, one CPU each."""
    command = shlex.join([sys.executable, *program])
    of_job, of_step = Resources(tasks=2, cpus_per_task=1, mem_per_cpu_mb=16), StepResources(tasks=2, cpus_per_task=1)
    output, limits = Output(Location(place.as_uri())), Limits(grace_s=20)
    saved = CheckpointConfig("checkpoint.pt")
    return make_job(
        make_step(command, name="train", resources=of_step),
        resources=of_job,
        limits=limits,
        output=output,
        checkpoint=saved,
    )


def test_started_by_torchrun(images, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = RECIPES_DIR / "mnist-cnn" / "train.py"
    few = ["--epochs", "1", "--limit-train", "8", "--limit-test", "8", "--batch-size", "4", "--threads", "1"]
    here = {**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, script, "--data", images["mnist-cnn"], *few], cwd=tmp_path, env=here, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "on 2 × cpu, 8 images to learn from" in done.stdout
    assert json.loads((tmp_path / "metrics.json").read_text())["processes"] == 2
