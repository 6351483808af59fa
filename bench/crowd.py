"""A hundred agents on one throttled line with a cache and its origin: bytes and time beside what is needed.

    python bench/crowd.py --json [--agents 100] [--size 25M] [--rate 60M]

Every agent fetches the same file from both; the line carries `rate` bytes/s in all. Prints one JSON line:
bytes_ratio (sent / needed, ≤ 1.05), time_ratio (taken / the line's least, ≤ 1.1), finished; progress on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from harness import PROJECT_ROOT, data, measure, results
from harness.measure import print_progress
from harness.results import Bounds

from testbed.faults import FaultProxy, RateLimiter

N_PROCESSES = 10  # a process for each agent would measure how long a hundred interpreters take to start
MAX_TIME_FACTOR = 4.0  # times the line's least: then it has failed
PROGRESS_INTERVAL_S = 5.0
BOUNDS: Bounds = {"bytes_ratio": ("-", 1.05), "time_ratio": ("-", 1.1)}


def _parse_arguments() -> argparse.Namespace:
    parser = results.make_parser("many agents on one slow line")
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument(
        "--size", type=data.parse_size, default=data.parse_size("25M"), help="of the file that each fetches (25M)"
    )
    parser.add_argument(
        "--rate", type=data.parse_size, default=data.parse_size("60M"), help="bytes/s of the line (60M)"
    )
    return parser.parse_args()


def _start_process(n_agents: int, urls: list[str], folder: Path, sha256: str) -> subprocess.Popen[str]:
    program = PROJECT_ROOT / "bench/harness/crowd_of_agents.py"
    command = [sys.executable, "-I", "-S", program, str(n_agents), str(folder), sha256, *urls]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _run_benchmark(args: argparse.Namespace, folder: Path) -> dict[str, float]:
    (folder / "www").mkdir()
    sha256 = data.write_random_file(folder / "www/data.bin", args.size)
    line = RateLimiter(args.rate)
    with (
        FaultProxy(folder / "www", rate_limiter=line) as cache,
        FaultProxy(folder / "www", rate_limiter=line) as origin,
    ):
        urls = [f"{proxy.url}/data.bin" for proxy in (cache, origin)]
        shares = [args.agents // N_PROCESSES + (number < args.agents % N_PROCESSES) for number in range(N_PROCESSES)]
        needed = args.agents * args.size
        crowd = [_start_process(share, urls, folder, sha256) for share in shares if share]
        with _kill_after(crowd, MAX_TIME_FACTOR * needed / args.rate, [cache, origin]):
            ends = _run_together(crowd)
        taken = max(ends) if len(ends) == args.agents else math.inf
        print_progress(f"{len(ends)} of {args.agents} finished in {taken:.1f} s; {len(cache.connections)} connections to the "
             f"cache, {len(origin.connections)} to the origin")  # fmt: skip
        return {
            "bytes_ratio": (cache.sent_bytes + origin.sent_bytes) / needed,
            "time_ratio": taken / (needed / args.rate),
            "finished": len(ends),
            "first_end_s": min(ends, default=math.inf),
            "seconds": taken,
            "origin_share": origin.sent_bytes / needed,
        }


@contextlib.contextmanager
def _kill_after(processes: list[subprocess.Popen[str]], timeout_s: float, proxies: list[FaultProxy]) -> Iterator[None]:
    """Tells how it goes, and kills the crowd when the time is over."""
    over = threading.Event()

    def watch() -> None:
        began = time.monotonic()
        while not over.wait(PROGRESS_INTERVAL_S) and time.monotonic() - began < timeout_s:
            sent, connections = sum(one.sent_bytes for one in proxies), sum(one.n_open_connections for one in proxies)
            print_progress(
                f"{time.monotonic() - began:.0f} s: {sent / 1e6:.0f} MB sent, {connections} connections open"
            )
        for process in processes:
            process.kill()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()  # which kills what is left of them


def _run_together(processes: list[subprocess.Popen[str]]) -> list[float]:
    """All begin when all are ready; when each had its file."""
    for process in processes:
        process.stdout.readline()
    began = time.monotonic()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [end for process in processes for end in _finish_times(process, began)]


def _finish_times(process: subprocess.Popen[str], started_at: float) -> list[float]:
    """When its agents had their file, in seconds from the beginning; those that failed say why."""
    ends = []
    for line in process.communicate()[0].splitlines():
        if line.startswith("done "):
            ends.append(float(line.split()[1]) - started_at)
        else:
            print_progress(f"  an agent failed: {line}")
    return ends


def main() -> None:
    given = _parse_arguments()
    measure.exit_on_sigterm()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="packtrain-crowd-") as folder:
        figures = _run_benchmark(given, Path(folder))
    if figures["finished"] < given.agents:
        print_progress(f"FALLS SHORT: only {figures['finished']} of {given.agents} finished")
    results.report_results("crowd", given, figures, BOUNDS, agents=given.agents, size=given.size, rate=given.rate)


if __name__ == "__main__":
    main()
