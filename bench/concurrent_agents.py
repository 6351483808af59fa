"""A hundred agents on one slow link with a cache and its origin: bytes and time compared with the minimum.

    python bench/concurrent_agents.py --json [--agents 100] [--size 25M] [--rate 60M]

Every agent fetches the same file from both servers; the link has `rate` bytes/s in total. Prints one JSON line:
bytes_ratio (sent / needed, ≤ 1.05), time_ratio (duration / minimum of the link, ≤ 1.1), finished; progress on stderr.
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

from harness import PROJECT_ROOT, measure, random_files, results
from harness.measure import print_progress
from harness.results import Bounds

from testbed.faults import FaultProxy, RateLimiter

N_PROCESSES = 10  # one process per agent would mostly measure interpreter startup
MAX_TIME_FACTOR = 4.0  # of the minimum duration; then the benchmark has failed
PROGRESS_INTERVAL_S = 5.0
BOUNDS: Bounds = {"bytes_ratio": ("-", 1.05), "time_ratio": ("-", 1.1)}


def _parse_arguments() -> argparse.Namespace:
    parser = results.make_parser("many agents on one slow link")
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument(
        "--size",
        type=random_files.parse_size,
        default=random_files.parse_size("25M"),
        help="size of the file that each agent fetches (25M)",
    )
    parser.add_argument(
        "--rate", type=random_files.parse_size, default=random_files.parse_size("60M"), help="bytes/s of the link (60M)"
    )
    return parser.parse_args()


def _start_process(n_agents: int, urls: list[str], folder: Path, sha256: str) -> subprocess.Popen[str]:
    program = PROJECT_ROOT / "bench/harness/agent_group.py"
    command = [sys.executable, "-I", "-S", program, str(n_agents), str(folder), sha256, *urls]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _run_benchmark(args: argparse.Namespace, folder: Path) -> dict[str, float]:
    (folder / "www").mkdir()
    sha256 = random_files.write_random_file(folder / "www/data.bin", args.size)
    rate_limiter = RateLimiter(args.rate)
    with (
        FaultProxy(folder / "www", rate_limiter=rate_limiter) as cache,
        FaultProxy(folder / "www", rate_limiter=rate_limiter) as origin,
    ):
        urls = [f"{proxy.url}/data.bin" for proxy in (cache, origin)]
        group_sizes = [
            args.agents // N_PROCESSES + (number < args.agents % N_PROCESSES) for number in range(N_PROCESSES)
        ]
        needed_bytes = args.agents * args.size
        processes = [_start_process(n_agents, urls, folder, sha256) for n_agents in group_sizes if n_agents]
        with _kill_after(processes, MAX_TIME_FACTOR * needed_bytes / args.rate, [cache, origin]):
            finish_times = _run_together(processes)
        duration_s = max(finish_times) if len(finish_times) == args.agents else math.inf
        print_progress(
            f"{len(finish_times)} of {args.agents} finished in {duration_s:.1f} s; "
            f"{len(cache.connections)} connections to the cache, {len(origin.connections)} to the origin"
        )
        return {
            "bytes_ratio": (cache.sent_bytes + origin.sent_bytes) / needed_bytes,
            "time_ratio": duration_s / (needed_bytes / args.rate),
            "finished": len(finish_times),
            "first_end_s": min(finish_times, default=math.inf),
            "seconds": duration_s,
            "origin_share": origin.sent_bytes / needed_bytes,
        }


@contextlib.contextmanager
def _kill_after(processes: list[subprocess.Popen[str]], timeout_s: float, proxies: list[FaultProxy]) -> Iterator[None]:
    """Print progress, and kill the processes after the timeout."""
    finished = threading.Event()

    def watch() -> None:
        started_at = time.monotonic()
        while not finished.wait(PROGRESS_INTERVAL_S) and time.monotonic() - started_at < timeout_s:
            sent, connections = sum(p.sent_bytes for p in proxies), sum(p.n_open_connections for p in proxies)
            print_progress(
                f"{time.monotonic() - started_at:.0f} s: {sent / 1e6:.0f} MB sent, {connections} connections open"
            )
        for process in processes:
            process.kill()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()  # it kills the remaining processes


def _run_together(processes: list[subprocess.Popen[str]]) -> list[float]:
    """Start all agents at the same time. Return when each one finished, in seconds since the start."""
    for process in processes:
        process.stdout.readline()
    started_at = time.monotonic()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [time_s for process in processes for time_s in _finish_times(process, started_at)]


def _finish_times(process: subprocess.Popen[str], started_at: float) -> list[float]:
    """Return when the agents of a process finished; print why others failed."""
    finish_times = []
    for line in process.communicate()[0].splitlines():
        if line.startswith("done "):
            finish_times.append(float(line.split()[1]) - started_at)
        else:
            print_progress(f"  an agent failed: {line}")
    return finish_times


def main() -> None:
    args = _parse_arguments()
    measure.exit_on_sigterm()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="packtrain-agents-") as folder:
        metrics = _run_benchmark(args, Path(folder))
    if metrics["finished"] < args.agents:
        print_progress(f"MISSED: only {metrics['finished']} of {args.agents} finished")
    results.report_results(
        "concurrent_agents", args, metrics, BOUNDS, agents=args.agents, size=args.size, rate=args.rate
    )


if __name__ == "__main__":
    main()
