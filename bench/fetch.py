"""How fast packtrain fetches, beside curl, rclone and aria2c on the same files in the same minutes.

    python bench/fetch.py --json [--rounds 5] [--only http,wan_reno] [--size 2G] [--as user|agent]

Prints one JSON line (keys: BOUNDS below), medians over interleaved rounds; progress and a table on stderr.
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

from harness import clients, data, measure, results
from harness.clients import Command, DownloadOrder
from harness.measure import Measurement, print_progress
from harness.memory_reserve import reserve_memory
from harness.results import Bounds, Metrics

from testbed import debian
from testbed.competitors import Nginx
from testbed.wan_emulator import WanEmulator

# What issue 3 demands: at least (+) or at most (-).
BOUNDS: Bounds = {
    "verified_vs_curl_sha256sum": ("+", 1.5),
    "http_vs_curl": ("+", 2.0),
    "http_vs_rclone8": ("+", 1.4),
    "http_vs_aria2": ("+", 3.5),
    "cpu_s_per_gb": ("-", 0.65),
    "https_vs_curl": ("+", 1.1),
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
_RESERVED_FILE_SIZES = 3  # the file's size
OutputCheck = Callable[[Path], bool]
OutputCleanup = Callable[[Path], None]


@dataclass(frozen=True)
class FetchBenchmark:
    """The manner of one call, and the folders: `www` is served, `memory` and `disk` are written to."""

    n_rounds: int
    file_bytes: int
    wan_file_bytes: int
    packtrain_command: Command
    memory_dir: Path
    disk_dir: Path

    @property
    def n_classes(self) -> int:
        """Of the nested tar, which is about as large as the file."""
        return max(1, round(data.N_CLASSES * self.file_bytes / 2e9))

    @property
    def www(self) -> Path:
        return self.memory_dir / "www"

    def serve_random_file(self, n_bytes: int) -> tuple[str, str]:
        """Name and sha256 of a served file of this size; made at the first call."""
        path = self.www / f"noise-{n_bytes}"
        known = path.with_suffix(".sha256")
        if not known.exists():
            print_progress(f"making {n_bytes / 1e6:.0f} MB of noise")
            known.write_text(data.write_random_file(path, n_bytes))
        return path.name, known.read_text()

    def serve_nested_tar(self) -> str:
        path = self.www / "nested.tar"
        if not path.exists():
            print_progress(f"making a tar of {self.n_classes} class tars")
            data.write_nested_tar(path, self.n_classes)
        return path.name


def _make_run(
    command: Command,
    order: DownloadOrder,
    prefix: list[str],
    check_output: OutputCheck,
    timeout_s: float,
    clean_up: OutputCleanup,
) -> Callable[[], Measurement]:
    """Runs the command on the order; the first time, what arrived is looked at."""
    unchecked = [check_output]

    def run_once() -> Measurement:
        os.sync()  # what earlier rounds left to write is not this one's load
        sample = measure.run_measured(
            [*prefix, *command(order)], env=clients.ca_environment(order.ca_file), timeout_s=timeout_s
        )
        if unchecked and sample.exit_code == 0 and not unchecked.pop()(order.target):
            raise SystemExit(f"what arrived is wrong: {command(order)}")
        clean_up(order.target)
        return sample

    return run_once


def _has_sha256(sha256: str) -> OutputCheck:
    return lambda path: data.file_sha256(path) == sha256


def _remove(path: Path) -> None:
    """The file or folder, and what a client that was cut short left beside it."""
    for one in path.parent.glob(f"*{path.name}*"):
        shutil.rmtree(one) if one.is_dir() else one.unlink()


def _rename_used(path: Path) -> None:
    """Where the disk has just freed thousands of files, ext4 takes ten times as long for new ones."""
    path.rename(path.with_name(f"spent-{time.monotonic_ns()}"))


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
    others = {"curl": clients.curl, "rclone x8": clients.rclone(8), "aria2 x4": clients.aria2c(4)}
    with Nginx(bench.www) as nginx:
        order = DownloadOrder((f"{nginx.http_url}/{name}",), bench.disk_dir / "out")
        seen = _compare(bench, "http", order, others, check_output=_has_sha256(sha256))
    return {
        "http_vs_curl": measure.speedup(seen, "packtrain", "curl"),
        "http_vs_rclone8": measure.speedup(seen, "packtrain", "rclone x8"),
        "http_vs_aria2": measure.speedup(seen, "packtrain", "aria2 x4"),
        "cpu_s_per_gb": measure.cpu_s_per_gb(seen, "packtrain", bench.file_bytes),
        "curl_mb_per_s": bench.file_bytes / 1e6 / statistics.median(sample.duration_s for sample in seen["curl"]),
    }


def measure_verified(bench: FetchBenchmark) -> Metrics:
    name, sha256 = bench.serve_random_file(bench.file_bytes)
    with Nginx(bench.www) as nginx:
        order = DownloadOrder((f"{nginx.http_url}/{name}",), bench.disk_dir / "out", sha256=sha256)
        seen = _compare(
            bench, "verified", order, {"curl": clients.curl_and_sha256sum}, check_output=_has_sha256(sha256)
        )
    return {
        "verified_vs_curl_sha256sum": measure.speedup(seen, "packtrain", "curl"),
        "sha256_cpu_s_per_gb": measure.cpu_s_per_gb(seen, "packtrain", bench.file_bytes),
    }


def measure_https(bench: FetchBenchmark) -> Metrics:
    name, sha256 = bench.serve_random_file(bench.file_bytes)
    with Nginx(bench.www) as nginx:
        order = DownloadOrder((f"{nginx.https_url}/{name}",), bench.disk_dir / "out", ca_file=nginx.ca_file)
        seen = _compare(bench, "https", order, {"curl": clients.curl}, check_output=_has_sha256(sha256))
    return {
        "https_vs_curl": measure.speedup(seen, "packtrain", "curl"),
        "https_cpu_s_per_gb": measure.cpu_s_per_gb(seen, "packtrain", bench.file_bytes),
    }


def _measure_wan(bench: FetchBenchmark, congestion_control: str) -> Metrics:
    name, sha256 = bench.serve_random_file(bench.wan_file_bytes)
    with (
        WanEmulator(congestion_control=congestion_control) as line,
        Nginx(bench.www, host=line.server_address, command_prefix=line.server_prefix) as nginx,
    ):
        order = DownloadOrder((f"{nginx.http_url}/{name}",), bench.memory_dir / "out")
        title, prefix = f"wan {congestion_control}", tuple(line.client_prefix)
        seen = _compare(
            bench, title, order, WAN_PEERS, check_output=_has_sha256(sha256), prefix=prefix, timeout_s=_WAN_TIMEOUT_S
        )
    print_progress(f"  {line.summary}")
    best = min(WAN_PEERS, key=lambda peer: statistics.median(sample.duration_s for sample in seen[peer]))
    middle = statistics.median(sample.duration_s for sample in seen["packtrain"])
    return {
        f"wan_{congestion_control}_vs_best_peer": measure.speedup(seen, "packtrain", best),
        f"wan_{congestion_control}_mb_per_s": bench.wan_file_bytes / 1e6 / middle,
    }


def measure_wan_reno(bench: FetchBenchmark) -> Metrics:
    return _measure_wan(bench, "reno")


def measure_wan_bbr(bench: FetchBenchmark) -> Metrics:
    return _measure_wan(bench, "bbr")


def _measure_unpack(bench: FetchBenchmark, storage: str, folder: Path, clean_up: OutputCleanup) -> Metrics:
    name = bench.serve_nested_tar()
    with Nginx(bench.www) as nginx:
        order = DownloadOrder((f"{nginx.http_url}/{name}",), folder / "unpacked")
        others = {"curl and tar": clients.curl_and_tar}
        right = partial(data.has_all_images, n_classes=bench.n_classes)
        seen = _compare(
            bench,
            f"unpack {storage}",
            order,
            others,
            check_output=right,
            packtrain_command=clients.packtrain_unpack,
            clean_up=clean_up,
        )
    return {f"unpack_{storage}_vs_curl_tar": measure.speedup(seen, "packtrain", "curl and tar")}


def measure_unpack_tmpfs(bench: FetchBenchmark) -> Metrics:
    return _measure_unpack(bench, "tmpfs", bench.memory_dir, _remove)


def measure_unpack_disk(bench: FetchBenchmark) -> Metrics:
    return _measure_unpack(bench, "disk", bench.disk_dir, _rename_used)


def measure_memory(bench: FetchBenchmark) -> Metrics:
    """The largest of a verified download, one over https, and one that unpacks."""
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
    parser = results.make_parser("packtrain's downloads beside those of its peers", BENCHMARKS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=data.parse_size, default=data.parse_size("2G"), help="of the file (2G)")
    parser.add_argument(
        "--wan-size", type=data.parse_size, default=data.parse_size("200M"), help="of the file over the bad line (200M)"
    )
    parser.add_argument("--as", dest="who", choices=clients.PACKTRAIN_COMMANDS, default="user", help="user: `packtrain get`; "
                        "agent: the engine alone, as on a worker")  # fmt: skip
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
            args.rounds, args.size, args.wan_size, clients.PACKTRAIN_COMMANDS[args.who], Path(memory), Path(disk)
        )


def _tcp_congestion_control() -> str:
    """How this machine's servers pace what they send, also to itself."""
    return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()


def main() -> None:
    given = _parse_arguments()
    measure.exit_on_sigterm()
    figures: Metrics = {}
    with _prepare_benchmark(given) as bench:
        for part in given.only:
            figures |= BENCHMARKS[part](bench)
    about = {"as": given.who, "rounds": given.rounds, "size": given.size, "congestion": _tcp_congestion_control()}
    results.report_results("fetch", given, figures, BOUNDS, **about)


if __name__ == "__main__":
    main()
