"""Runs programs and measures them: wall time, CPU time with all children, memory of the whole tree, a time limit."""

from __future__ import annotations

import math
import os
import select
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SAMPLE_INTERVAL_S = 0.05


@dataclass(frozen=True)
class Measurement:
    duration_s: float  # inf if it did not end in time
    cpu_s: float
    exit_code: int  # exit code; negative: killed by that signal
    stderr_tail: str  # what it said on stderr, the end of it

    @property
    def finished_in_time(self) -> bool:
        return math.isfinite(self.duration_s)


def run_measured(
    command: Sequence[object], *, timeout_s: float = 600.0, env: Mapping[str, str] | None = None
) -> Measurement:
    """Run it to its end, or kill it and its children when the time is over."""
    with _start_process(command, env) as process:
        began = time.monotonic()
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.append(process.stderr.read()))
        reader.start()
        ended = _wait_for_exit(process.pid, timeout_s)
        seconds = time.monotonic() - began if ended else math.inf
        if not ended:
            os.killpg(process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        reader.join(1.0)
        return Measurement(seconds, usage.ru_utime + usage.ru_stime, process.returncode, "".join(lines)[-400:])


def _start_process(command: Sequence[object], env: Mapping[str, str] | None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, **(env or {})},
    )


def _wait_for_exit(pid: int, timeout_s: float) -> bool:
    """Whether the process ended in time; it is not reaped yet, so that its usage can still be asked."""
    handle = os.pidfd_open(pid)
    try:
        watch = select.poll()
        watch.register(handle, select.POLLIN)
        return bool(watch.poll(timeout_s * 1000))
    finally:
        os.close(handle)


def measure_peak_mb(command: Sequence[object], env: Mapping[str, str] | None = None) -> float:
    """The largest sum of the memory of the command and its children, shared pages counted once; inf if it failed."""
    peak = 0.0
    with _start_process(command, env) as process:
        while process.poll() is None:
            peak = max(peak, sum(_pss_kb(pid) for pid in _process_tree(process.pid)) / 1000)
            time.sleep(_SAMPLE_INTERVAL_S)
        process.stderr.read()
    return math.inf if process.returncode else peak


def _process_tree(pid: int) -> list[int]:
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [pid, *(one for text in lists for child in text.split() for one in _process_tree(int(child)))]


def _pss_kb(pid: int) -> int:
    """Anonymous and file pages of the process; what it maps of the target file is the page cache's."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


Measurements = dict[str, list[Measurement]]


def run_interleaved(title: str, n_rounds: int, clients: Mapping[str, Callable[[], Measurement]]) -> Measurements:
    """Each client once a round, in turn first; a client that was cut short is not asked again."""
    seen: Measurements = {name: [] for name in clients}
    for number in range(n_rounds):
        for name in _rotate(list(clients), number):
            if not seen[name] or seen[name][-1].finished_in_time:
                seen[name].append(sample := clients[name]())
                print_progress(
                    f"{title} {number + 1}/{n_rounds} {name}: {sample.duration_s:.2f} s, {sample.cpu_s:.2f} s of CPU"
                )
                if sample.exit_code and sample.finished_in_time:
                    print_progress(f"  exit {sample.exit_code}: {sample.stderr_tail.strip()}")
    return seen


def _rotate(names: list[str], number: int) -> list[str]:
    return names[number % len(names) :] + names[: number % len(names)]


def speedup(measurements: Measurements, ours: str, other: str) -> float:
    """How many times faster: the median over rounds of both times' ratio."""
    pairs = zip(measurements[ours], measurements[other], strict=False)
    return statistics.median(_speed_ratio(mine, theirs) for mine, theirs in pairs)


def _speed_ratio(mine: Measurement, theirs: Measurement) -> float:
    """A client that failed was not fast."""
    return 0.0 if mine.exit_code else math.inf if theirs.exit_code else theirs.duration_s / mine.duration_s


def cpu_s_per_gb(measurements: Measurements, name: str, size: int) -> float:
    """CPU seconds, those of a failed client being endless."""
    return statistics.median(math.inf if sample.exit_code else sample.cpu_s for sample in measurements[name]) / (
        size / 1e9
    )


def to_json_number(figure: float) -> float | None:
    """For JSON, which knows no infinity."""
    return round(figure, 3) if math.isfinite(figure) else None


def exit_on_sigterm() -> None:
    """SIGTERM ends a bench like Ctrl-C does: servers, namespaces and gigabytes in memory are cleaned up."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
