"""The published week of 100 ImageNet jobs, replayed on a real pool of three sites in scaled time, three ways.

    python bench/ospool_week.py --json [--only plain,adopted,packtrain] [--jobs 100] [--hour 30] [--seed 1] [--keep DIR]

Prints one JSON line; progress and what falls short on stderr. For each arm (its name before the figure):

success              jobs of a hundred that brought a model
compute_share        useful compute, of all slot time
useful_fraction      useful compute and the one transfer that each job needs, of all slot time
p95_over_median      of completion (first match to the end) of jobs that succeeded; max_over_median likewise
makespan_s           first submission to last end
wasted_…             slot time that came to nothing by cause, as a part of all
packtrain_makespan_share   of plain's makespan
foreseen_…           what `packtrain simulate` makes of plain's user log alone, 50 seeds; foreseen_…_off: by what part
                     that misses what the packtrain arm measured; foresight_off: the worst of them

Needs root: each machine of the pool has an address of its own, see testbed/addresses.py.
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
from harness.week import account, data, fault_schedule, picture, simulator_accuracy
from harness.week.arms import ARMS
from harness.week.site import ReplayPool

from packtrain.report.history import JobHistory
from testbed.s3 import S3Server

BOUNDS: Bounds = {
    "packtrain_success": ("+", 100.0),
    "packtrain_useful_fraction": ("+", 0.95),
    "packtrain_p95_over_median": ("-", 1.5),
    "packtrain_max_over_median": ("-", 2.0),
    "packtrain_makespan_share": ("-", 0.5),
    "adopted_success": ("+", 98.0),
    "adopted_useful_fraction": ("+", 0.85),
    "plain_success_off": ("-", 10.0),
    "plain_useful_fraction_off": ("-", 0.12),
    "foresight_off": ("-", 0.15),
}
DATASET_MB = 32.0


def _parse_arguments() -> argparse.Namespace:
    parser = results.make_parser("the published week, replayed", ARMS)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--hour", type=float, default=30.0, help="seconds that an hour takes; at least 20")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave logs, runs and reports of the arms there")
    given = parser.parse_args()
    if given.hour < 20:
        parser.error("HTCondor's timer for transfers, an hour, has at least 20 seconds")
    return given


@contextlib.contextmanager
def _output_folder(keep: Path | None) -> Iterator[Path]:
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
    else:
        with tempfile.TemporaryDirectory(prefix="packtrain-week-") as made:
            yield Path(made)


def main() -> None:
    given = _parse_arguments()
    measure.exit_on_sigterm()
    figures: Metrics = {}
    histories: dict[str, JobHistory] = {}
    week = fault_schedule.generate_week(given.seed, given.jobs, given.hour)
    with (
        tempfile.TemporaryDirectory(prefix="packtrain-pool-") as own,
        _output_folder(given.keep) as folder,
        S3Server() as s3,
        ReplayPool(Path(own), week, data.make_archive(DATASET_MB)) as place,
    ):
        for name in given.only:
            print_progress(f"{name}…")
            began = time.monotonic()
            arm = ARMS[name](place, folder / name, s3)
            arm.run()
            print_progress(
                f"  took {time.monotonic() - began:.0f} s; bytes by server: {place.federation.bytes_by_server}"
            )
            histories[name] = arm.load_history()
            figures |= account.arm_metrics(name, histories[name])
            account.write_arm_report(histories[name], folder / f"{name}-report")
        picture.save_chart(histories, given.hour, folder / "week.png")
        if "plain" in histories:
            print_progress("foresight…")
            figures |= simulator_accuracy.predict_metrics(folder / "plain" / "job.log", week)
    figures |= account.compare_arms(figures) | simulator_accuracy.prediction_errors(figures)
    results.report_results("ospool_week", given, figures, BOUNDS, jobs=given.jobs, hour=given.hour)


if __name__ == "__main__":
    main()
