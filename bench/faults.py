"""Behaviour of download programs when the server misbehaves: delay, extra bytes and outcome.

    python bench/faults.py --json [--only stall,drip] [--clients curl,packtrain] [--client user|agent]

Two mirrors serve the same file of 300 MB; the first one is faulty. packtrain and aria2c, which support mirrors, get
both; "packtrain alone" gets only the faulty one. Prints one JSON line; progress and a table on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import clients, measure, random_files
from harness.clients import Command, DownloadOrder
from harness.measure import print_progress

from testbed.faults import Fault, FaultProxy
from testbed.federation import CertificateAuthority

FILE_BYTES = 300_000_000
FAULT_OFFSET = 1_000_000  # in the response: within the first block that any client requests
FAULT_DURATION_S = 8.0
PEER_TIMEOUT_S, PACKTRAIN_TIMEOUT_S = 20.0, 60.0
N_CLEAN_ROUNDS = 3
# Bounds for packtrain.
MAX_DELAY_S, MAX_EXTRA_FRACTION = 1.5, 0.06


@dataclass(frozen=True)
class FaultCase:
    """Faults of the first mirror, and what they make unavoidable."""

    faults: tuple[Fault, ...]
    tls: bool = False
    verification: str = ""  # "", "sha256" or "checksums": passed to clients that support it
    unavoidable_s: float = 0.0  # delay for a client without another source
    unavoidable_bytes: int = 0  # if the client cannot know which bytes are bad


def _status_case(status: int) -> FaultCase:
    return FaultCase((Fault("status", status=status, active_for_s=FAULT_DURATION_S),), unavoidable_s=FAULT_DURATION_S)


CASES: Mapping[str, FaultCase] = {
    "stall": FaultCase((Fault("stall", response_offset=FAULT_OFFSET),)),
    "stall of every response": FaultCase((Fault("stall", response_offset=3 * FAULT_OFFSET, max_times=None),)),
    "closed twice": FaultCase((Fault("close", response_offset=FAULT_OFFSET, max_times=2),)),
    "reset": FaultCase((Fault("reset", response_offset=FAULT_OFFSET, max_times=2),)),
    "drip": FaultCase((Fault("drip", response_offset=FAULT_OFFSET),)),
    "corrupt, with checksums": FaultCase(
        (Fault("corrupt", response_offset=FAULT_OFFSET, max_times=3),), verification="checksums"
    ),
    "corrupt, with sha256": FaultCase(
        (Fault("corrupt", response_offset=FAULT_OFFSET),), verification="sha256", unavoidable_bytes=FILE_BYTES
    ),
    "truncated": FaultCase((Fault("truncate", response_offset=FAULT_OFFSET),)),
    "wrong length": FaultCase((Fault("wrong_length", response_offset=FAULT_OFFSET, extra_bytes=1000),)),
    "404 for 8 s": _status_case(404),
    "500 for 8 s": _status_case(500),
    "503 for 8 s": _status_case(503),
    "first byte after 8 s": FaultCase((Fault("delay", duration_s=FAULT_DURATION_S),), unavoidable_s=FAULT_DURATION_S),
    "redirect loop for 8 s": FaultCase(
        (Fault("redirect_loop", active_for_s=FAULT_DURATION_S),), unavoidable_s=FAULT_DURATION_S
    ),
    "TLS fails twice": FaultCase((Fault("tls", max_times=2),), tls=True),
}


@dataclass(frozen=True)
class BenchClient:
    """A download program."""

    command: Command
    uses_mirrors: bool = False
    timeout_s: float = PEER_TIMEOUT_S


def _make_clients(packtrain: Command) -> dict[str, BenchClient]:
    return {
        "curl": BenchClient(clients.curl),
        "wget": BenchClient(clients.wget),
        "aria2c": BenchClient(clients.aria2c(4), uses_mirrors=True),
        "rclone": BenchClient(clients.rclone(4)),
        "fsspec": BenchClient(clients.fsspec),
        "packtrain": BenchClient(packtrain, uses_mirrors=True, timeout_s=PACKTRAIN_TIMEOUT_S),
        "packtrain alone": BenchClient(packtrain, timeout_s=PACKTRAIN_TIMEOUT_S),
    }


@dataclass(frozen=True)
class FaultResult:
    """What a client did in one case."""

    outcome: str  # ok, failed, wrong file, hangs, not injected
    delay_s: float | None  # compared with the time without faults; None if it did not finish
    extra_bytes: int  # sent in excess of the file size; negative if it failed early
    stderr_tail: str = ""  # last line of stderr, if it failed


class FaultTestbed:
    """Two mirrors of one file over http and https; the first of each is faulty."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._file, self._target = folder / "www/data.bin", folder / "out.bin"
        self._file.parent.mkdir()
        self._sha256 = random_files.write_random_file(self._file, FILE_BYTES)
        self._checksums = folder / "data.checksums.json"
        self._write_checksums()
        authority = CertificateAuthority(folder)
        self._ca_file, pair = authority.ca, (authority.certificate, authority.key)
        self._proxies_by_tls = {
            tls: [stack.enter_context(FaultProxy(self._file.parent, tls=pair if tls else None)) for _ in range(2)]
            for tls in (False, True)
        }
        self._clean_durations: dict[tuple[str, bool, str], float] = {}

    def _write_checksums(self) -> None:
        from packtrain.transfer.integrity.block_checksums import make_checksums, write_checksums

        write_checksums(make_checksums(self._file), self._checksums)

    def run_case(self, name: str, client: BenchClient, case: FaultCase) -> FaultResult:
        """Run a client in one case."""
        clean_s = self._clean_duration_s(name, client, case)
        faulty, healthy = self._proxies_by_tls[case.tls]
        faulty.set_faults(case.faults)
        healthy.set_faults()
        sample = measure.run_measured(
            self._command(client, case), timeout_s=client.timeout_s, env=clients.ca_environment(self._ca_file)
        )
        outcome = self._outcome(sample, fault_injected=bool(faulty.injected_faults))
        delay_s = round(sample.duration_s - clean_s, 2) if sample.finished_in_time else None
        last_line = sample.stderr_tail.strip().splitlines()[-1:] if outcome == "failed" else []
        self._remove_outputs()
        extra_bytes = faulty.sent_bytes + healthy.sent_bytes - FILE_BYTES
        return FaultResult(outcome, delay_s, extra_bytes, "".join(last_line))

    def _clean_duration_s(self, name: str, client: BenchClient, case: FaultCase) -> float:
        """Return the best of a few runs without faults, so that a slow run does not hide a delay."""
        key = (name, case.tls, case.verification)
        if key not in self._clean_durations:
            for proxy in self._proxies_by_tls[case.tls]:
                proxy.set_faults()
            self._clean_durations[key] = min(self._run_clean(client, case) for _ in range(N_CLEAN_ROUNDS))
            print_progress(f"  {name} takes {self._clean_durations[key]:.2f} s without a fault")
        return self._clean_durations[key]

    def _run_clean(self, client: BenchClient, case: FaultCase) -> float:
        sample = measure.run_measured(
            self._command(client, case), timeout_s=60.0, env=clients.ca_environment(self._ca_file)
        )
        if sample.exit_code:
            print_progress(f"  fails without a fault: {sample.stderr_tail.strip()[-200:]}")
        self._remove_outputs()
        return sample.duration_s

    def _command(self, client: BenchClient, case: FaultCase) -> list[object]:
        proxies = self._proxies_by_tls[case.tls][: 2 if client.uses_mirrors else 1]
        urls = tuple(f"{proxy.url}/{self._file.name}" for proxy in proxies)
        return client.command(
            DownloadOrder(
                urls,
                self._target,
                sha256=self._sha256 if case.verification else None,
                checksums=self._checksums if case.verification == "checksums" else None,
                ca_file=self._ca_file if case.tls else None,
            )
        )

    def _outcome(self, sample: measure.Measurement, *, fault_injected: bool) -> str:
        if not fault_injected:
            return "not injected"
        if not sample.finished_in_time:
            return "hangs"
        if sample.exit_code:
            return "failed"
        is_right = self._target.exists() and random_files.file_sha256(self._target) == self._sha256
        return "ok" if is_right else "wrong file"

    def _remove_outputs(self) -> None:
        for path in self._target.parent.glob(f"*{self._target.name}*"):
            path.unlink()


@contextlib.contextmanager
def _open_testbed() -> Iterator[FaultTestbed]:
    with contextlib.ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="packtrain-faults-")
        yield FaultTestbed(Path(stack.enter_context(folder)), stack)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="packtrain and other programs under faults")
    parser.add_argument(
        "--json", action="store_true", help="print the JSON line to stdout (the table is always on stderr)"
    )
    parser.add_argument("--only", metavar="CASE,…", help="cases whose names begin with this: " + "; ".join(CASES))
    parser.add_argument("--clients", metavar="NAME,…", help="only these clients")
    clients.add_client_option(parser)
    return parser.parse_args()


def _select_names(names: Mapping[str, Any], prefixes: str | None) -> list[str]:
    return [name for name in names if prefixes is None or name.startswith(tuple(prefixes.split(",")))]


def _format_result(result: FaultResult) -> str:
    delay = "" if result.delay_s is None else f" +{max(0.0, result.delay_s):.1f} s"
    return f"{result.outcome}{delay} {result.extra_bytes / 1e6:+.1f} MB"


def _find_shortfalls(results: Mapping[str, Mapping[str, FaultResult]]) -> Iterator[str]:
    """Yield where packtrain misses its bounds."""
    for case, by_client in results.items():
        for name in ("packtrain", "packtrain alone"):
            if name in by_client:
                unavoidable_s = 0.0 if name == "packtrain" else CASES[case].unavoidable_s
                max_bytes = MAX_EXTRA_FRACTION * FILE_BYTES + CASES[case].unavoidable_bytes
                misses = _find_misses(by_client[name], MAX_DELAY_S + unavoidable_s, max_bytes)
                yield from (f"{name}, {case}: {miss}" for miss in misses)


def _find_misses(result: FaultResult, max_delay_s: float, max_extra_bytes: float) -> Iterator[str]:
    if result.outcome != "ok":
        yield f"{result.outcome} {result.stderr_tail}"
    elif (result.delay_s or 0.0) > max_delay_s:
        yield f"{result.delay_s} s delay, bound {max_delay_s}"
    if result.extra_bytes > max_extra_bytes:
        yield f"{result.extra_bytes / 1e6:.1f} MB extra, bound {max_extra_bytes / 1e6:.1f}"


def main() -> None:
    args = _parse_arguments()
    measure.exit_on_sigterm()
    load, bench_clients = os.getloadavg()[0], _make_clients(clients.PACKTRAIN_COMMANDS[args.client])
    results: dict[str, dict[str, FaultResult]] = {}
    with _open_testbed() as testbed:
        for case in _select_names(CASES, args.only):
            results[case] = {}
            for name in _select_names(bench_clients, args.clients):
                result = results[case][name] = testbed.run_case(name, bench_clients[name], CASES[case])
                print_progress(f"{case:<26} {name:<16} {_format_result(result)}  {result.stderr_tail[:150]}")
    for line in _find_shortfalls(results):
        print_progress(f"MISSED: {line}")
    if args.json:
        cases = {
            case: {name: asdict(result) for name, result in by_client.items()} for case, by_client in results.items()
        }
        print(json.dumps({"bench": "faults", "client": args.client, "load_before": load, "cases": cases}))


if __name__ == "__main__":
    main()
