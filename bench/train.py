"""Accuracy of the recipes, and the cost of checkpoints.

    python bench/train.py --json [--only mnist,cifar10,checkpoint] [--limit 5000] [--window 30] [--pairs 4]

Prints one JSON line (keys: BOUNDS below); progress and a table on stderr. `--limit` trains with fewer images, for a
quick try.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness import measure, results
from harness.measure import print_progress
from harness.results import Bounds, Metrics

from packtrain import recipes
from packtrain.engines.bundle import build_agent
from packtrain.events import JournalReader, kinds
from packtrain.plan import (
    CheckpointConfig,
    Job,
    Limits,
    Output,
    Plan,
    Resources,
    RunAction,
    Step,
    StepResources,
    write_plan,
)
from testbed import data
from testbed.s3 import BUCKET, S3Server

# Minimum (+) or maximum (-).
BOUNDS: Bounds = {
    "mnist_accuracy": ("+", 0.985),
    "cifar10_resnet20_accuracy": ("+", 0.70),
    "checkpoint_blocked_s": ("-", 0.3),
}
_N_CORES = len(os.sched_getaffinity(0))
_CHECKPOINT_PROGRAM = Path(__file__).parent / "harness" / "checkpoint_trainer.py"


@dataclass(frozen=True)
class TrainBenchmark:
    """Settings and a folder."""

    max_images: int | None
    window_s: float
    n_pairs: int
    folder: Path


def train_mnist(bench: TrainBenchmark) -> Metrics:
    metrics = _train_recipe(bench, "mnist-cnn", data.cached_mnist(), epochs=2)
    return {"mnist_accuracy": metrics["accuracy"], "mnist_s": metrics["seconds"]}


def train_cifar10(bench: TrainBenchmark) -> Metrics:
    with tarfile.open(data.cached_cifar10()) as tar:
        tar.extractall(bench.folder / "cifar10", filter="data")
    metrics = _train_recipe(bench, "cifar10-resnet", bench.folder / "cifar10", epochs=5)
    return {"cifar10_resnet20_accuracy": metrics["accuracy"], "cifar10_resnet20_s": metrics["seconds"]}


def _train_recipe(bench: TrainBenchmark, recipe: str, data_dir: Path, epochs: int) -> dict[str, float]:
    """Run the program of a recipe with its default settings. Return the metrics that it writes."""
    output = bench.folder / recipe
    flags = ["--data", data_dir, "--epochs", epochs, "--threads", _N_CORES, "--save-model"]
    limit = ["--limit-train", bench.max_images] if bench.max_images else []
    program = Path(recipes.__file__).parent / recipe / "train.py"
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PACKTRAIN")}
    subprocess.run(
        [sys.executable, program, *map(str, (*flags, *limit))],
        env={**inherited, "PACKTRAIN_OUTPUT": str(output)}, stdout=sys.stderr, check=True,
    )  # fmt: skip
    return json.loads((output / "metrics.json").read_text())


def measure_checkpoints(bench: TrainBenchmark) -> Metrics:
    """Run a program with 200 MB of state through the agent, which uploads its checkpoints to a real S3 server."""
    build_agent(bench.folder / "agent.pyz")
    with S3Server(volume_mb=1024) as s3:
        write_plan(Plan("bench", "bench", "local", (_make_job(bench, s3),)), bench.folder / "plan.json")
        agent = [sys.executable, "-I", "-S", bench.folder / "agent.pyz", bench.folder / "plan.json"]
        subprocess.run([*agent, "--attempt-folder", bench.folder / "attempt"], stdout=sys.stderr, check=True)
        metrics = json.loads(s3.client.get_object(Bucket=BUCKET, Key="bench/metrics.json")["Body"].read())
    saved = [
        e.data for e in JournalReader(bench.folder / "attempt/journal.jsonl").read() if e.kind == kinds.CHECKPOINT_SAVED
    ]
    for checkpoint in saved:
        print_progress(
            f"step {checkpoint['step']}: {checkpoint['bytes']:,} bytes uploaded in {checkpoint['seconds']:.1f} s"
        )
    if not saved:
        raise SystemExit("no checkpoint was uploaded")
    return {name: float(value) for name, value in metrics.items()}


def _make_job(bench: TrainBenchmark, s3: S3Server) -> Job:
    options = f"--window {bench.window_s:g} --pairs {bench.n_pairs} --threads {_N_CORES}"
    run = RunAction(
        f"{sys.executable} {_CHECKPOINT_PROGRAM} {options}",
        resources=StepResources(cpus_per_task=_N_CORES),
    )
    return Job(
        "0",
        (),
        Resources(cpus_per_task=_N_CORES),
        Limits(grace_s=60),
        (Step("train", run),),
        output=Output(s3.location("bench")),
        checkpoint=CheckpointConfig("checkpoint.pt"),
    )


BENCHMARKS: Mapping[str, Callable[[TrainBenchmark], Metrics]] = {
    "mnist": train_mnist,
    "cifar10": train_cifar10,
    "checkpoint": measure_checkpoints,
}


def _parse_arguments() -> argparse.Namespace:
    parser = results.make_parser("accuracy of the recipes, and cost of checkpoints", BENCHMARKS)
    parser.add_argument("--limit", type=int, metavar="N", help="train with the first N images only, for a quick try")
    parser.add_argument("--window", type=float, default=30.0, metavar="SECONDS", help="length of a window (30)")
    parser.add_argument(
        "--pairs", type=int, default=4, help="pairs of windows, one without and one with a checkpoint (4)"
    )
    return parser.parse_args()


def main() -> None:
    args = _parse_arguments()
    measure.exit_on_sigterm()
    metrics: Metrics = {}
    with tempfile.TemporaryDirectory(prefix="packtrain-bench-") as folder:
        bench = TrainBenchmark(args.limit, args.window, args.pairs, Path(folder))
        for part in args.only:
            print_progress(f"{part} …")
            metrics |= BENCHMARKS[part](bench)
    results.report_results("train", args, metrics, BOUNDS, limit=args.limit, cores=_N_CORES)


if __name__ == "__main__":
    main()
