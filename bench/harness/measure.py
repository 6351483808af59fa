"""Run programs and measure wall time, CPU time and memory, including their child processes."""

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
    """One run of a program."""

    duration_s: float  # inf if it did not finish in time
    cpu_s: float
    exit_code: int  # negative: killed by that signal
    stderr_tail: str  # end of its stderr

    @property
    def finished_in_time(self) -> bool:
        return math.isfinite(self.duration_s)


def run_measured(
    command: Sequence[object], *, timeout_s: float = 600.0, env: Mapping[str, str] | None = None
) -> Measurement:
    """Run a program to its end, or kill it and its children after the timeout."""
    with _start_process(command, env) as process:
        started_at = time.monotonic()
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.append(process.stderr.read()))
        reader.start()
        has_exited = _wait_for_exit(process.pid, timeout_s)
        duration_s = time.monotonic() - started_at if has_exited else math.inf
        if not has_exited:
            os.killpg(process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        reader.join(1.0)
        return Measurement(duration_s, usage.ru_utime + usage.ru_stime, process.returncode, "".join(lines)[-400:])


def _start_process(command: Sequence[object], env: Mapping[str, str] | None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(argument) for argument in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, **(env or {})},
    )


def _wait_for_exit(pid: int, timeout_s: float) -> bool:
    """Return True if the process exits in time; it is not reaped, so that its usage can be read later."""
    handle = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        return bool(poller.poll(timeout_s * 1000))
    finally:
        os.close(handle)


def measure_peak_mb(command: Sequence[object], env: Mapping[str, str] | None = None) -> float:
    """Return the peak memory of a program and its children, with shared pages counted once; inf if it failed."""
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
    return [pid, *(p for text in lists for child in text.split() for p in _process_tree(int(child)))]


def _pss_kb(pid: int) -> int:
    """Return the proportional set size of a process in kB, or 0 if it has exited."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


Measurements = dict[str, list[Measurement]]


def run_interleaved(title: str, n_rounds: int, clients: Mapping[str, Callable[[], Measurement]]) -> Measurements:
    """Run each client once per round, in rotating order; a client that timed out is not run again."""
    measurements: Measurements = {name: [] for name in clients}
    for number in range(n_rounds):
        for name in _rotate(list(clients), number):
            if not measurements[name] or measurements[name][-1].finished_in_time:
                measurements[name].append(sample := clients[name]())
                print_progress(
                    f"{title} {number + 1}/{n_rounds} {name}: {sample.duration_s:.2f} s, {sample.cpu_s:.2f} s of CPU"
                )
                if sample.exit_code and sample.finished_in_time:
                    print_progress(f"  exit {sample.exit_code}: {sample.stderr_tail.strip()}")
    return measurements


def _rotate(names: list[str], number: int) -> list[str]:
    return names[number % len(names) :] + names[: number % len(names)]


def speedup(measurements: Measurements, ours: str, other: str) -> float:
    """Return how many times faster `ours` is: the median ratio over the rounds."""
    pairs = zip(measurements[ours], measurements[other], strict=False)
    return statistics.median(_speed_ratio(our_run, other_run) for our_run, other_run in pairs)


def _speed_ratio(ours: Measurement, other: Measurement) -> float:
    """Return the ratio; a client that failed counts as infinitely slow."""
    return 0.0 if ours.exit_code else math.inf if other.exit_code else other.duration_s / ours.duration_s


def cpu_s_per_gb(measurements: Measurements, name: str, size: int) -> float:
    """Return CPU seconds per GB; inf if the client failed."""
    return statistics.median(math.inf if sample.exit_code else sample.cpu_s for sample in measurements[name]) / (
        size / 1e9
    )


def to_json_number(value: float) -> float | None:
    """Round a number; return None for infinity, which JSON does not support."""
    return round(value, 3) if math.isfinite(value) else None


def exit_on_sigterm() -> None:
    """Make SIGTERM exit like Ctrl-C, so that servers, namespaces and files in memory are cleaned up."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def print_progress(line: str) -> None:
    """Print to stderr."""
    print(line, file=sys.stderr, flush=True)
