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

from harness import PROJECT, data, measure, results
from harness.measure import tell
from harness.results import Bounds

from testbed.faults import FaultProxy, Line

PROCESSES = 10  # a process for each agent would measure how long a hundred interpreters take to start
CAP = 4.0  # times the line's least: then it has failed
TELL_EVERY_S = 5.0
BOUNDS: Bounds = {"bytes_ratio": ("-", 1.05), "time_ratio": ("-", 1.1)}


def _arguments() -> argparse.Namespace:
    parser = results.parser("many agents on one slow line")
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument(
        "--size", type=data.size_of, default=data.size_of("25M"), help="of the file that each fetches (25M)"
    )
    parser.add_argument("--rate", type=data.size_of, default=data.size_of("60M"), help="bytes/s of the line (60M)")
    return parser.parse_args()


def _start(agents: int, urls: list[str], folder: Path, sha256: str) -> subprocess.Popen[str]:
    program = PROJECT / "bench/harness/crowd_of_agents.py"
    command = [sys.executable, "-I", "-S", program, str(agents), str(folder), sha256, *urls]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _run(given: argparse.Namespace, folder: Path) -> dict[str, float]:
    (folder / "www").mkdir()
    sha256 = data.write_noise(folder / "www/data.bin", given.size)
    line = Line(given.rate)
    with FaultProxy(folder / "www", line=line) as cache, FaultProxy(folder / "www", line=line) as origin:
        urls = [f"{proxy.url}/data.bin" for proxy in (cache, origin)]
        shares = [given.agents // PROCESSES + (number < given.agents % PROCESSES) for number in range(PROCESSES)]
        needed = given.agents * given.size
        crowd = [_start(share, urls, folder, sha256) for share in shares if share]
        with _ended_after(crowd, CAP * needed / given.rate, [cache, origin]):
            ends = _together(crowd)
        taken = max(ends) if len(ends) == given.agents else math.inf
        tell(f"{len(ends)} of {given.agents} finished in {taken:.1f} s; {len(cache.connections)} connections to the "
             f"cache, {len(origin.connections)} to the origin")  # fmt: skip
        return {
            "bytes_ratio": (cache.sent + origin.sent) / needed,
            "time_ratio": taken / (needed / given.rate),
            "finished": len(ends),
            "first_end_s": min(ends, default=math.inf),
            "seconds": taken,
            "origin_share": origin.sent / needed,
        }


@contextlib.contextmanager
def _ended_after(crowd: list[subprocess.Popen[str]], cap_s: float, proxies: list[FaultProxy]) -> Iterator[None]:
    """Tells how it goes, and kills the crowd when the time is over."""
    over = threading.Event()

    def watch() -> None:
        began = time.monotonic()
        while not over.wait(TELL_EVERY_S) and time.monotonic() - began < cap_s:
            sent, connections = sum(one.sent for one in proxies), sum(one.open_connections for one in proxies)
            tell(f"{time.monotonic() - began:.0f} s: {sent / 1e6:.0f} MB sent, {connections} connections open")
        for process in crowd:
            process.kill()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()  # which kills what is left of them


def _together(crowd: list[subprocess.Popen[str]]) -> list[float]:
    """All begin when all are ready; when each had its file."""
    for process in crowd:
        process.stdout.readline()
    began = time.monotonic()
    for process in crowd:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [end for process in crowd for end in _ends(process, began)]


def _ends(process: subprocess.Popen[str], began: float) -> list[float]:
    """When its agents had their file, in seconds from the beginning; those that failed say why."""
    ends = []
    for line in process.communicate()[0].splitlines():
        if line.startswith("done "):
            ends.append(float(line.split()[1]) - began)
        else:
            tell(f"  an agent failed: {line}")
    return ends


def main() -> None:
    given = _arguments()
    measure.leave_in_order()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="packtrain-crowd-") as folder:
        figures = _run(given, Path(folder))
    if figures["finished"] < given.agents:
        tell(f"FALLS SHORT: only {figures['finished']} of {given.agents} finished")
    results.give("crowd", given, figures, BOUNDS, agents=given.agents, size=given.size, rate=given.rate)


if __name__ == "__main__":
    main()
