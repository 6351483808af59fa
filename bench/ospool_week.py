"""The published week of 100 ImageNet jobs, replayed on a real pool of three sites in scaled time, in three arms.

    python bench/ospool_week.py --json [--only plain,converted,packtrain] [--jobs 100] [--hour-seconds 30] [--seed 1]
        [--keep DIR] [--engine htcondor|slurm]

Prints one JSON line; progress and missed bounds on stderr. For each arm (its name is a prefix of the metric):

success_percent      jobs of a hundred that produced a model
compute_share        useful compute, as a share of all slot time
useful_fraction      useful compute and the one transfer that each job needs, as a share of all slot time
p95_over_median      of completion time (first match to end) of jobs that succeeded; max_over_median likewise
makespan_s           first submission to last end
wasted_…             share of slot time that was wasted, by cause
packtrain_makespan_share   relative to plain's makespan
predicted_…          what `packtrain simulate` predicts from plain's user log alone, 50 seeds; predicted_…_error:
                     relative to the packtrain arm; max_prediction_error: the largest of them

With `--engine slurm`, the arms `plain` (sbatch) and `packtrain` run on a Slurm cluster of one node per job, with
preemption and time limits in place of evictions and holds (harness/week/slurm_replay.py), and nothing is predicted.

On HTCondor it needs root: each node of the pool has its own address, see testbed/site_addresses.py.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness import measure, results
from harness.measure import print_progress
from harness.results import Bounds, Metrics
from harness.week import arm_metrics, chart, dataset, fault_schedule, simulator_accuracy, slurm_replay
from harness.week.arms import ARMS
from harness.week.fault_schedule import ReplayWeek
from harness.week.replay_pool import ReplayPool

from packtrain.report.history import JobHistory
from testbed.s3 import S3Server

BOUNDS: Bounds = {
    "packtrain_success_percent": ("+", 100.0),
    "packtrain_useful_fraction": ("+", 0.95),
    "packtrain_p95_over_median": ("-", 1.5),
    "packtrain_max_over_median": ("-", 2.0),
    "packtrain_makespan_share": ("-", 0.5),
    "converted_success_percent": ("+", 98.0),
    "converted_useful_fraction": ("+", 0.85),
    "plain_success_percent_error": ("-", 10.0),
    "plain_useful_fraction_error": ("-", 0.12),
    "max_prediction_error": ("-", 0.15),
}
DATASET_MB = 32.0


def _parse_arguments() -> argparse.Namespace:
    parser = results.make_parser("the published week, replayed", ARMS)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--hour-seconds", type=float, default=30.0, help="seconds per replayed hour; at least 20")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep logs, runs and reports of the arms in this folder"
    )
    parser.add_argument("--engine", choices=("htcondor", "slurm"), default="htcondor")
    args = parser.parse_args()
    if args.engine == "slurm":
        args.only = [name for name in args.only if name in slurm_replay.ARMS]
    elif args.hour_seconds < 20:
        parser.error("HTCondor's transfer timeout, an hour, must be at least 20 seconds")
    return args


@contextlib.contextmanager
def _output_folder(keep: Path | None) -> Iterator[Path]:
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
    else:
        with tempfile.TemporaryDirectory(prefix="packtrain-week-") as folder:
            yield Path(folder)


def main() -> None:
    args = _parse_arguments()
    measure.exit_on_sigterm()
    week = fault_schedule.generate_week(args.seed, args.jobs, args.hour_seconds)
    metrics = _run_on_slurm(args, week) if args.engine == "slurm" else _run_on_htcondor(args, week)
    metrics |= arm_metrics.compare_arms(metrics)
    results.report_results(
        "ospool_week",
        args,
        metrics,
        BOUNDS,
        engine=args.engine,
        jobs=args.jobs,
        hour_seconds=args.hour_seconds,
    )


def _run_on_slurm(args: argparse.Namespace, week: ReplayWeek) -> Metrics:
    metrics: Metrics = {}
    with (
        tempfile.TemporaryDirectory(prefix="packtrain-cluster-") as cluster_folder,
        _output_folder(args.keep) as folder,
        S3Server() as s3,
        slurm_replay.SlurmReplay(Path(cluster_folder), week, dataset.make_archive(DATASET_MB)).start() as replay,
    ):
        for path in (Path(cluster_folder), folder):
            path.chmod(0o755)
        for name in args.only:
            print_progress(f"{name}…")
            history = replay.run_arm(name, folder / name, s3)
            metrics |= arm_metrics.arm_metrics(name, history)
            arm_metrics.write_arm_report(history, folder / f"{name}-report")
    return metrics


def _run_on_htcondor(args: argparse.Namespace, week: ReplayWeek) -> Metrics:
    metrics: Metrics = {}
    histories: dict[str, JobHistory] = {}
    with (
        tempfile.TemporaryDirectory(prefix="packtrain-pool-") as pool_folder,
        _output_folder(args.keep) as folder,
        S3Server() as s3,
        ReplayPool(Path(pool_folder), week, dataset.make_archive(DATASET_MB)) as replay_pool,
    ):
        for name in args.only:
            print_progress(f"{name}…")
            started_at = time.monotonic()
            arm = ARMS[name](replay_pool, folder / name, s3)
            arm.run()
            bytes_by_server = replay_pool.federation.bytes_by_server
            print_progress(f"  took {time.monotonic() - started_at:.0f} s; bytes by server: {bytes_by_server}")
            histories[name] = arm.load_history()
            metrics |= arm_metrics.arm_metrics(name, histories[name])
            arm_metrics.write_arm_report(histories[name], folder / f"{name}-report")
        chart.save_chart(histories, args.hour_seconds, folder / "week.png")
        if "plain" in histories:
            print_progress("prediction…")
            metrics |= simulator_accuracy.predict_metrics(folder / "plain" / "job.log", week)
    return metrics | simulator_accuracy.prediction_errors(metrics)


if __name__ == "__main__":
    main()
