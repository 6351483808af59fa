"""Download speed of packtrain compared with curl, rclone and aria2c, on the same files in interleaved rounds.

    python bench/fetch.py --json [--rounds 5] [--only http,wan_reno] [--size 2G] [--client user|agent]

Prints one JSON line (keys: BOUNDS below) with medians over the rounds; progress and a table on stderr.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness import clients, measure, random_files, results
from harness.clients import Command, DownloadOrder
from harness.measure import Measurement, print_progress
from harness.memory_reserve import reserve_memory
from harness.results import Bounds, Metrics

from testbed import debian
from testbed.competitors import Nginx
from testbed.wan_emulator import WanEmulator

# Minimum (+) or maximum (-).
BOUNDS: Bounds = {
    "verified_vs_curl_sha256sum": ("+", 1.5),
    "http_vs_curl": ("+", 2.0),
    "http_vs_rclone8": ("+", 0.9),
    "http_vs_aria2": ("+", 3.5),
    "cpu_s_per_gb": ("-", 0.65),
    "https_vs_curl": ("+", 0.9),
    "sha256_cpu_s_per_gb": ("-", 1.4),
    "wan_reno_vs_best_peer": ("+", 1.3),
    "wan_bbr_vs_best_peer": ("+", 0.95),
    "unpack_tmpfs_vs_curl_tar": ("+", 2.5),
    "unpack_disk_vs_curl_tar": ("+", 1.5),
    "peak_rss_mb": ("-", 150.0),
}
WAN_PEERS: Mapping[str, Command] = {
    "curl": clients.curl,
    "aria2 x16": clients.aria2c(16),
    "rclone x64": clients.rclone(64, chunk_size="2M"),
}
_WAN_TIMEOUT_S = 40.0
_RESERVED_FILE_SIZES = 3  # multiples of the file size
OutputCheck = Callable[[Path], bool]
OutputCleanup = Callable[[Path], None]


@dataclass(frozen=True)
class FetchBenchmark:
    """Settings, and folders: `www` is served; clients write to `memory_dir` and `disk_dir`."""

    n_rounds: int
    file_bytes: int
    wan_file_bytes: int
    packtrain_command: Command
    memory_dir: Path
    disk_dir: Path

    @property
    def n_classes(self) -> int:
        """Number of classes in the nested tar, which is about as large as the file."""
        return max(1, round(random_files.N_CLASSES * self.file_bytes / 2e9))

    @property
    def www(self) -> Path:
        return self.memory_dir / "www"

    def serve_random_file(self, n_bytes: int) -> tuple[str, str]:
        """Return name and sha256 of a served file of this size, created on the first call."""
        path = self.www / f"random-{n_bytes}"
        sha256_path = path.with_suffix(".sha256")
        if not sha256_path.exists():
            print_progress(f"creating {n_bytes / 1e6:.0f} MB of random data")
            sha256_path.write_text(random_files.write_random_file(path, n_bytes))
        return path.name, sha256_path.read_text()

    def serve_nested_tar(self) -> str:
        """Return the name of a served tar of class tars, created on the first call."""
        path = self.www / "nested.tar"
        if not path.exists():
            print_progress(f"creating a tar of {self.n_classes} class tars")
            random_files.write_nested_tar(path, self.n_classes)
        return path.name


def _make_run(
    command: Command,
    order: DownloadOrder,
    prefix: list[str],
    check_output: OutputCheck,
    timeout_s: float,
    clean_up: OutputCleanup,
) -> Callable[[], Measurement]:
    """Return a function that runs a command; the output of its first run is checked."""
    unchecked = [check_output]

    def run_once() -> Measurement:
        os.sync()  # so that writes of earlier rounds do not slow this one down
        sample = measure.run_measured(
            [*prefix, *command(order)], env=clients.ca_environment(order.ca_file), timeout_s=timeout_s
        )
        if unchecked and sample.exit_code == 0 and not unchecked.pop()(order.target):
            raise SystemExit(f"the output is wrong: {command(order)}")
        clean_up(order.target)
        return sample

    return run_once


def _has_sha256(sha256: str) -> OutputCheck:
    return lambda path: random_files.file_sha256(path) == sha256


def _remove(path: Path) -> None:
    """Remove the output, and partial files that a killed client left next to it."""
    for match in path.parent.glob(f"*{path.name}*"):
        shutil.rmtree(match) if match.is_dir() else match.unlink()


def _rename_used(path: Path) -> None:
    """Rename the output instead of removing it: ext4 is ten times slower after freeing thousands of files."""
    path.rename(path.with_name(f"used-{time.monotonic_ns()}"))


def _compare(
    bench: FetchBenchmark,
    title: str,
    order: DownloadOrder,
    peers: Mapping[str, Command],
    *,
    check_output: OutputCheck,
    packtrain_command: Command | None = None,
    prefix: tuple[str, ...] = (),
    timeout_s: float = 300.0,
    clean_up: OutputCleanup = _remove,
) -> measure.Measurements:
    commands = {"packtrain": packtrain_command or bench.packtrain_command, **peers}
    runs = {
        name: _make_run(command, order, list(prefix), check_output, timeout_s, clean_up)
        for name, command in commands.items()
    }
    return measure.run_interleaved(title, bench.n_rounds, runs)


def measure_http(bench: FetchBenchmark) -> Metrics:
    name, sha256 = bench.serve_random_file(bench.file_bytes)
    peers = {"curl": clients.curl, "rclone x8": clients.rclone(8), "aria2 x4": clients.aria2c(4)}
    with Nginx(bench.www) as nginx:
        order = DownloadOrder((f"{nginx.http_url}/{name}",), bench.disk_dir / "out")
        measurements = _compare(bench, "http", order, peers, check_output=_has_sha256(sha256))
    return {
        "http_vs_curl": measure.speedup(measurements, "packtrain", "curl"),
        "http_vs_rclone8": measure.speedup(measurements, "packtrain", "rclone x8"),
        "http_vs_aria2": measure.speedup(measurements, "packtrain", "aria2 x4"),
        "cpu_s_per_gb": measure.cpu_s_per_gb(measurements, "packtrain", bench.file_bytes),
        "curl_mb_per_s": bench.file_bytes
        / 1e6
        / statistics.median(sample.duration_s for sample in measurements["curl"]),
    }


def measure_verified(bench: FetchBenchmark) -> Metrics:
    name, sha256 = bench.serve_random_file(bench.file_bytes)
    with Nginx(bench.www) as nginx:
        order = DownloadOrder((f"{nginx.http_url}/{name}",), bench.disk_dir / "out", sha256=sha256)
        measurements = _compare(
            bench, "verified", order, {"curl": clients.curl_and_sha256sum}, check_output=_has_sha256(sha256)
        )
    return {
        "verified_vs_curl_sha256sum": measure.speedup(measurements, "packtrain", "curl"),
        "sha256_cpu_s_per_gb": measure.cpu_s_per_gb(measurements, "packtrain", bench.file_bytes),
    }


def measure_https(bench: FetchBenchmark) -> Metrics:
    name, sha256 = bench.serve_random_file(bench.file_bytes)
    with Nginx(bench.www) as nginx:
        order = DownloadOrder((f"{nginx.https_url}/{name}",), bench.disk_dir / "out", ca_file=nginx.ca_file)
        measurements = _compare(bench, "https", order, {"curl": clients.curl}, check_output=_has_sha256(sha256))
    return {
        "https_vs_curl": measure.speedup(measurements, "packtrain", "curl"),
        "https_cpu_s_per_gb": measure.cpu_s_per_gb(measurements, "packtrain", bench.file_bytes),
    }


def _measure_wan(bench: FetchBenchmark, congestion_control: str) -> Metrics:
    name, sha256 = bench.serve_random_file(bench.wan_file_bytes)
    with (
        WanEmulator(congestion_control=congestion_control) as wan,
        Nginx(bench.www, host=wan.server_address, command_prefix=wan.server_prefix) as nginx,
    ):
        order = DownloadOrder((f"{nginx.http_url}/{name}",), bench.memory_dir / "out")
        title, prefix = f"wan {congestion_control}", tuple(wan.client_prefix)
        measurements = _compare(
            bench, title, order, WAN_PEERS, check_output=_has_sha256(sha256), prefix=prefix, timeout_s=_WAN_TIMEOUT_S
        )
    print_progress(f"  {wan.summary}")
    best = min(WAN_PEERS, key=lambda peer: statistics.median(sample.duration_s for sample in measurements[peer]))
    median_s = statistics.median(sample.duration_s for sample in measurements["packtrain"])
    return {
        f"wan_{congestion_control}_vs_best_peer": measure.speedup(measurements, "packtrain", best),
        f"wan_{congestion_control}_mb_per_s": bench.wan_file_bytes / 1e6 / median_s,
    }


def measure_wan_reno(bench: FetchBenchmark) -> Metrics:
    return _measure_wan(bench, "reno")


def measure_wan_bbr(bench: FetchBenchmark) -> Metrics:
    return _measure_wan(bench, "bbr")


def _measure_unpack(bench: FetchBenchmark, storage: str, folder: Path, clean_up: OutputCleanup) -> Metrics:
    name = bench.serve_nested_tar()
    with Nginx(bench.www) as nginx:
        order = DownloadOrder((f"{nginx.http_url}/{name}",), folder / "unpacked")
        peers = {"curl and tar": clients.curl_and_tar}
        check_output = partial(random_files.has_all_images, n_classes=bench.n_classes)
        measurements = _compare(
            bench,
            f"unpack {storage}",
            order,
            peers,
            check_output=check_output,
            packtrain_command=clients.packtrain_unpack,
            clean_up=clean_up,
        )
    return {f"unpack_{storage}_vs_curl_tar": measure.speedup(measurements, "packtrain", "curl and tar")}


def measure_unpack_tmpfs(bench: FetchBenchmark) -> Metrics:
    return _measure_unpack(bench, "tmpfs", bench.memory_dir, _remove)


def measure_unpack_disk(bench: FetchBenchmark) -> Metrics:
    return _measure_unpack(bench, "disk", bench.disk_dir, _rename_used)


def measure_memory(bench: FetchBenchmark) -> Metrics:
    """Return the largest peak of a verified download, an https download and an unpacking download."""
    (name, sha256), tar = bench.serve_random_file(bench.file_bytes), bench.serve_nested_tar()
    out = bench.memory_dir / "out"
    with Nginx(bench.www) as nginx:
        commands = {
            "verified": bench.packtrain_command(DownloadOrder((f"{nginx.http_url}/{name}",), out, sha256=sha256)),
            "https": bench.packtrain_command(DownloadOrder((f"{nginx.https_url}/{name}",), out)),
            "unpack": clients.packtrain_unpack(DownloadOrder((f"{nginx.http_url}/{tar}",), out)),
        }
        peaks = []
        for title, command in commands.items():
            peaks.append(measure.measure_peak_mb(command, clients.ca_environment(nginx.ca_file)))
            print_progress(f"memory {title}: {peaks[-1]:.0f} MB")
            _remove(out)
    return {"peak_rss_mb": max(peaks)}


BENCHMARKS: Mapping[str, Callable[[FetchBenchmark], Metrics]] = {
    "http": measure_http,
    "verified": measure_verified,
    "https": measure_https,
    "wan_reno": measure_wan_reno,
    "wan_bbr": measure_wan_bbr,
    "unpack_tmpfs": measure_unpack_tmpfs,
    "unpack_disk": measure_unpack_disk,
    "memory": measure_memory,
}


def _parse_arguments() -> argparse.Namespace:
    parser = results.make_parser("packtrain's downloads compared with other programs", BENCHMARKS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--size", type=random_files.parse_size, default=random_files.parse_size("2G"), help="size of the file (2G)"
    )
    parser.add_argument(
        "--wan-size",
        type=random_files.parse_size,
        default=random_files.parse_size("200M"),
        help="size of the file over the WAN emulator (200M)",
    )
    clients.add_client_option(parser)
    return parser.parse_args()


@contextmanager
def _prepare_benchmark(args: argparse.Namespace) -> Iterator[FetchBenchmark]:
    disk_root = debian.cache_dir() / "bench"
    disk_root.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="packtrain-bench-") as memory,
        tempfile.TemporaryDirectory(dir=disk_root) as disk,
        reserve_memory(_RESERVED_FILE_SIZES * args.size),
    ):
        Path(memory, "www").mkdir()
        yield FetchBenchmark(
            args.rounds, args.size, args.wan_size, clients.PACKTRAIN_COMMANDS[args.client], Path(memory), Path(disk)
        )


def _tcp_congestion_control() -> str:
    """Return the congestion control of this machine, which also applies to the loopback interface."""
    return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()


def main() -> None:
    args = _parse_arguments()
    measure.exit_on_sigterm()
    metrics: Metrics = {}
    with _prepare_benchmark(args) as bench:
        for part in args.only:
            metrics |= BENCHMARKS[part](bench)
    metadata = {
        "client": args.client,
        "rounds": args.rounds,
        "size": args.size,
        "congestion": _tcp_congestion_control(),
    }
    results.report_results("fetch", args, metrics, BOUNDS, **metadata)


if __name__ == "__main__":
    main()
