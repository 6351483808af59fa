"""Speed of reports: `python bench/report.py --json [--only parse,memory,render] [--jobs 20000]`.

Prints one JSON line; progress and missed bounds on stderr:

parse_vs_jobeventlog   reading a log into a history (events, jobs and executions) compared with HTCondor's own
                       `htcondor2.JobEventLog`, which only yields events: events per CPU second, median (≥ 3)
parse_mb_s             MB of the same log per CPU second
peak_rss_mb            memory of a process that reads a log of 2,000,000 events of 20,000 jobs (≤ 300)
render_1000_jobs_s     the page, with all charts, of 1,000 jobs (≤ 5)
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from harness import measure, results
from harness.measure import print_progress
from harness.results import Bounds
from harness.user_log_generator import EVENTS_PER_JOB, write_log

BOUNDS: Bounds = {"parse_vs_jobeventlog": ("+", 3.0), "peak_rss_mb": ("-", 300.0), "render_1000_jobs_s": ("-", 5.0)}
N_ROUNDS = 5
N_PARSED_JOBS = 2000
N_PAGE_JOBS = 1000
_READ_SCRIPT = (
    "import sys; from packtrain.report.readers.files import read_history; print(len(read_history([sys.argv[1]]).jobs))"
)


def measure_parse(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Compare both readers in one process by CPU time, in alternating order."""
    os.environ.setdefault("CONDOR_CONFIG", os.devnull)
    log = folder / "parse.log"
    events = write_log(log, N_PARSED_JOBS)
    readers = {"packtrain": _read_with_packtrain, "htcondor": _read_with_htcondor}
    cpu_s: dict[str, list[float]] = {name: [] for name in readers}
    for number in range(N_ROUNDS):
        for name in sorted(readers, reverse=bool(number % 2)):
            started_at = time.process_time()
            readers[name](log, events)
            cpu_s[name].append(time.process_time() - started_at)
            print_progress(f"parse {number + 1}/{N_ROUNDS} {name}: {events / cpu_s[name][-1]:,.0f} events/s")
    ratio = statistics.median(other / own for own, other in zip(cpu_s["packtrain"], cpu_s["htcondor"], strict=True))
    speed = log.stat().st_size / 1e6 / statistics.median(cpu_s["packtrain"])
    return {"parse_vs_jobeventlog": ratio, "parse_mb_s": speed, "parse_events_s": events / min(cpu_s["packtrain"])}


def _read_with_packtrain(log: Path, events: int) -> None:
    from packtrain.report.readers.files import read_history

    history = read_history([str(log)])
    if len(history.jobs) * EVENTS_PER_JOB != events or history.n_skipped:
        raise SystemExit(f"read {len(history.jobs)} of {events // EVENTS_PER_JOB} jobs")


def _read_with_htcondor(log: Path, events: int) -> None:
    import htcondor2

    n_events = sum(1 for _ in htcondor2.JobEventLog(str(log)).events(stop_after=0))
    if n_events != events:
        raise SystemExit(f"JobEventLog read {n_events} of {events} events")


def measure_memory(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    log = folder / "memory.log"
    events = write_log(log, args.jobs)
    print_progress(f"memory: {events:,} events of {args.jobs:,} jobs, {log.stat().st_size / 1e6:.0f} MB")
    started_at = time.perf_counter()
    peak = measure.measure_peak_mb([sys.executable, "-c", _READ_SCRIPT, log])
    return {"peak_rss_mb": peak, "memory_events": events, "memory_s": time.perf_counter() - started_at}


def measure_render(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    from packtrain.report.analysis.findings import collect_findings
    from packtrain.report.analysis.statistics import compute_stats
    from packtrain.report.page import write_page
    from packtrain.report.readers.files import read_history

    log = folder / "render.log"
    write_log(log, N_PAGE_JOBS)
    history = read_history([str(log)])
    started_at = time.perf_counter()
    stats = compute_stats(history)
    write_page(history, stats, collect_findings(history, stats), folder / "page")
    return {"render_1000_jobs_s": time.perf_counter() - started_at}


BENCHMARKS: Mapping[str, Callable[[Path, argparse.Namespace], dict[str, float]]] = {
    "parse": measure_parse,
    "memory": measure_memory,
    "render": measure_render,
}


def main() -> None:
    measure.exit_on_sigterm()
    parser = results.make_parser("speed of reports", BENCHMARKS)
    parser.add_argument("--jobs", type=int, default=20_000, help="number of jobs in the log of the part memory")
    args = parser.parse_args()
    metrics: dict[str, float] = {}
    for part in args.only:
        with tempfile.TemporaryDirectory() as folder:
            metrics |= BENCHMARKS[part](Path(folder), args)
    results.report_results("report", args, metrics, BOUNDS)


if __name__ == "__main__":
    main()
