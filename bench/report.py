"""How fast reports are made: `python bench/report.py --json [--only parse,memory,render] [--jobs 20000]`.

Prints one JSON line; progress and what falls short on stderr:

parse_vs_jobeventlog   a log read into a history (parsed, and folded into jobs and attempts) against HTCondor's own
                       `htcondor2.JobEventLog`, which only gives the events: events per CPU second, median (≥ 3)
parse_mb_s             of the same log, MB per CPU second
peak_rss_mb            memory of a process that reads a log of 2,000,000 events of 20,000 jobs (≤ 300)
render_1000_jobs_s     the page, with all pictures, of 1,000 jobs (≤ 5)
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
from harness.long_log import EVENTS_PER_JOB, write_log
from harness.measure import print_progress
from harness.results import Bounds

BOUNDS: Bounds = {"parse_vs_jobeventlog": ("+", 3.0), "peak_rss_mb": ("-", 300.0), "render_1000_jobs_s": ("-", 5.0)}
N_ROUNDS = 5
N_PARSED_JOBS = 2000  # of the log that both read
N_PAGE_JOBS = 1000
_READ_SCRIPT = "import sys; from packtrain.report.readers.files import read; print(len(read([sys.argv[1]]).jobs))"


def measure_parse(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """In turn first, in one process, by CPU time: the machine's mood strikes both."""
    os.environ.setdefault("CONDOR_CONFIG", os.devnull)
    log = folder / "parse.log"
    events = write_log(log, N_PARSED_JOBS)
    readers = {"ours": _read_with_packtrain, "theirs": _read_with_htcondor}
    taken: dict[str, list[float]] = {name: [] for name in readers}
    for number in range(N_ROUNDS):
        for name in sorted(readers, reverse=bool(number % 2)):
            began = time.process_time()
            readers[name](log, events)
            taken[name].append(time.process_time() - began)
            print_progress(f"parse {number + 1}/{N_ROUNDS} {name}: {events / taken[name][-1]:,.0f} events/s")
    ratio = statistics.median(theirs / ours for ours, theirs in zip(taken["ours"], taken["theirs"], strict=True))
    speed = log.stat().st_size / 1e6 / statistics.median(taken["ours"])
    return {"parse_vs_jobeventlog": ratio, "parse_mb_s": speed, "parse_events_s": events / min(taken["ours"])}


def _read_with_packtrain(log: Path, events: int) -> None:
    from packtrain.report.readers.files import read_history

    history = read_history([str(log)])
    if len(history.jobs) * EVENTS_PER_JOB != events or history.n_skipped:
        raise SystemExit(f"{len(history.jobs)} jobs were read of {events // EVENTS_PER_JOB}")


def _read_with_htcondor(log: Path, events: int) -> None:
    import htcondor2

    seen = sum(1 for _ in htcondor2.JobEventLog(str(log)).events(stop_after=0))
    if seen != events:
        raise SystemExit(f"JobEventLog gave {seen} events of {events}")


def measure_memory(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    log = folder / "memory.log"
    events = write_log(log, args.jobs)
    print_progress(f"memory: {events:,} events of {args.jobs:,} jobs, {log.stat().st_size / 1e6:.0f} MB")
    began = time.perf_counter()
    peak = measure.measure_peak_mb([sys.executable, "-c", _READ_SCRIPT, log])
    return {"peak_rss_mb": peak, "memory_events": events, "memory_s": time.perf_counter() - began}


def measure_render(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    from packtrain.report.analysis.findings import find_insights
    from packtrain.report.analysis.statistics import compute_stats
    from packtrain.report.page import write_page
    from packtrain.report.readers.files import read_history

    log = folder / "render.log"
    write_log(log, N_PAGE_JOBS)
    history = read_history([str(log)])
    began = time.perf_counter()
    figures = compute_stats(history)
    write_page(history, figures, find_insights(history, figures), folder / "page")
    return {"render_1000_jobs_s": time.perf_counter() - began}


BENCHMARKS: Mapping[str, Callable[[Path, argparse.Namespace], dict[str, float]]] = {
    "parse": measure_parse,
    "memory": measure_memory,
    "render": measure_render,
}


def main() -> None:
    measure.exit_on_sigterm()
    parser = results.make_parser("how fast reports are made", BENCHMARKS)
    parser.add_argument("--jobs", type=int, default=20_000, help="of the log whose reading shows the memory")
    given = parser.parse_args()
    figures: dict[str, float] = {}
    for part in given.only:
        with tempfile.TemporaryDirectory() as folder:
            figures |= BENCHMARKS[part](Path(folder), given)
    results.report_results("report", given, figures, BOUNDS)


if __name__ == "__main__":
    main()
