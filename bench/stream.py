"""Streaming from a remote archive, compared with extracted files, webdataset, litdata and MosaicML's streaming.

    python bench/stream.py --json [--rounds 5] [--only raw,decoded,keep,wan,gradient] [--images 18200]

Prints one JSON line (keys: BOUNDS below) with medians over interleaved rounds; progress and a table on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import PROJECT_ROOT, clients, measure, results, stream_peers
from harness.clients import DownloadOrder
from harness.measure import print_progress
from harness.results import Bounds, Metrics

from testbed import data, debian
from testbed.competitors import Nginx
from testbed.datasets import synthetic_imagenet
from testbed.faults import FaultProxy
from testbed.wan_emulator import WanEmulator

# Minimum (+) or maximum (-).
BOUNDS: Bounds = {
    "raw_vs_folder": ("+", 0.9),
    "classes_per_64": ("+", 50),
    "raw_vs_webdataset": ("+", 1.6),
    "raw_vs_litdata": ("+", 1.5),
    "raw_vs_mosaicml": ("+", 1.3),
    "decoded_vs_folder": ("+", 0.95),
    "first_batch_s": ("-", 0.2),
    "extra_disk_mb": ("-", 0),
    "second_epoch_bytes": ("-", 0),
    "wan_vs_webdataset": ("+", 2),
    "first_gradient_vs_staged": ("+", 20),
}
N_CLASSES = 200
PEERS = ("webdataset", "mosaicml", "litdata")
_HARNESS_DIR = Path(__file__).parent / "harness"
_EPOCH_TIMEOUT_S = 180.0
_PROGRESS_KEYS = ("rate", "first_batch_s", "classes_per_64", "cpu_s")
_N_DECODED_SAMPLES = 9100
_N_WAN_SAMPLES = 320  # webdataset reaches 12 per second
EpochResult = dict[str, float]


@dataclass(frozen=True)
class StreamBenchmark:
    """Settings and data: `data_dir` has `www`, which is served, and `folder`, the extracted files."""

    n_rounds: int
    data_dir: Path
    python: Path
    peers: tuple[str, ...]

    @property
    def archive(self) -> Path:
        return self.data_dir / "www/train.tar"

    def epoch_command(self, www: str, system: str) -> list[object]:
        arguments = ["--www", www, "--folder", self.data_dir / "folder", "--index", self.data_dir / "index"]
        return [self.python, _HARNESS_DIR / "epoch_benchmark.py", system, *arguments]

    def run_epoch(self, www: str, system: str, *options: object, prefix: Sequence[str] = ()) -> EpochResult:
        """Run one epoch of one system. Return an empty dict if it failed."""
        command = [*prefix, *self.epoch_command(www, system), *options]
        env = {**os.environ, "TMPDIR": str(self.data_dir / "scratch"), "PYTHONPATH": str(PROJECT_ROOT / "src")}
        try:
            process = subprocess.run(
                [str(argument) for argument in command], env=env, capture_output=True, timeout=_EPOCH_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            print_progress(f"  {system} took longer than {_EPOCH_TIMEOUT_S:.0f} s")
            return {}
        if process.returncode or not process.stdout.strip():
            print_progress(f"  {system} failed: {process.stderr.decode()[-500:]}")
            return {}
        return json.loads(process.stdout.splitlines()[-1])

    def run_rounds(self, title: str, www: str, systems: Sequence[str], *options: object, prefix: Sequence[str] = ()):
        """Run all systems in every round, in rotating order."""
        results: dict[str, list[EpochResult]] = {system: [] for system in systems}
        for number in range(self.n_rounds):
            rotated = [*systems[number % len(systems) :], *systems[: number % len(systems)]]
            for system in rotated:
                results[system].append(result := self.run_epoch(www, system, *options, prefix=prefix))
                values = ", ".join(f"{name} {result[name]:.2f}" for name in _PROGRESS_KEYS if result)
                print_progress(f"{title} {number + 1}/{self.n_rounds} {system}: {values}")
        return results


def _speed_ratio(epoch_results: dict[str, list[EpochResult]], other: str) -> float:
    """Return how many times faster packtrain is: the median over rounds. A failed run counts as infinitely slow."""
    pairs = zip(epoch_results["packtrain"], epoch_results[other], strict=True)
    return statistics.median(
        0.0 if not own else math.inf if not peer else own["rate"] / peer["rate"] for own, peer in pairs
    )


def _median(rows: list[EpochResult], name: str) -> float:
    return statistics.median(row.get(name, math.inf) for row in rows)


def measure_raw(bench: StreamBenchmark) -> Metrics:
    with Nginx(bench.data_dir / "www") as nginx:
        epochs = bench.run_rounds("raw", nginx.http_url, ["packtrain", "folder", *bench.peers])
        peak = measure.measure_peak_mb(
            bench.epoch_command(nginx.http_url, "packtrain"), env={"PYTHONPATH": str(PROJECT_ROOT / "src")}
        )
    own = epochs["packtrain"]
    firsts = {f"first_batch_{other}_s": _median(epochs[other], "first_batch_s") for other in ("folder", *bench.peers)}
    return {
        **{f"raw_vs_{other}": _speed_ratio(epochs, other) for other in ("folder", *bench.peers)},
        "raw_samples_per_s": _median(own, "rate"),
        "folder_samples_per_s": _median(epochs["folder"], "rate"),
        "classes_per_64": _median(own, "classes_per_64"),
        "classes_per_64_folder": _median(epochs["folder"], "classes_per_64"),
        "first_batch_s": _median(own, "first_batch_s"),
        **firsts,
        "extra_disk_mb": _median(own, "extra_disk_mb"),
        **{f"extra_disk_{other}_mb": _median(epochs[other], "extra_disk_mb") for other in bench.peers},
        "peak_rss_mb": peak,
    }


def measure_decoded(bench: StreamBenchmark) -> Metrics:
    with Nginx(bench.data_dir / "www") as nginx:
        options = ["--mode", "decoded", "--samples", _N_DECODED_SAMPLES]
        epochs = bench.run_rounds("decoded", nginx.http_url, ["packtrain", "folder"], *options)
    return {
        "decoded_vs_folder": _speed_ratio(epochs, "folder"),
        "decoded_samples_per_s": _median(epochs["packtrain"], "rate"),
    }


def measure_disk_cache(bench: StreamBenchmark) -> Metrics:
    """Measure how many bytes the second epoch requests when the first one was cached on disk."""
    cache_dir = bench.data_dir / "cache"
    with FaultProxy(bench.data_dir / "www") as proxy:
        bench.run_epoch(proxy.url, "packtrain", "--keep", cache_dir)
        first_bytes = proxy.sent_bytes
        second_epoch = bench.run_epoch(proxy.url, "packtrain", "--keep", cache_dir)
        second_bytes = proxy.sent_bytes - first_bytes
    shutil.rmtree(cache_dir)
    return {
        "first_epoch_mb": first_bytes / 1e6,
        "second_epoch_bytes": second_bytes,
        "cached_samples_per_s": second_epoch.get("rate", 0.0),
    }


def measure_wan(bench: StreamBenchmark) -> Metrics:
    with (
        WanEmulator() as wan,
        Nginx(bench.data_dir / "www", host=wan.server_address, command_prefix=wan.server_prefix) as nginx,
    ):
        options, systems = ["--samples", _N_WAN_SAMPLES], ["packtrain", "webdataset"]
        epochs = bench.run_rounds("wan", nginx.http_url, systems, *options, prefix=wan.client_prefix)
    return {
        "wan_vs_webdataset": _speed_ratio(epochs, "webdataset"),
        "wan_samples_per_s": _median(epochs["packtrain"], "rate"),
        "wan_first_batch_s": _median(epochs["packtrain"], "first_batch_s"),
        "wan_first_batch_webdataset_s": _median(epochs["webdataset"], "first_batch_s"),
    }


def measure_first_gradient(bench: StreamBenchmark) -> Metrics:
    """Compare streaming with downloading and unpacking first, by packtrain's agent and by curl and tar."""
    staging_commands = {"staged": clients.packtrain_unpack, "curl_tar": clients.curl_and_tar}
    durations: dict[str, list[float]] = {name: [] for name in ("streamed", "step", *staging_commands)}
    with Nginx(bench.data_dir / "www") as nginx, tempfile.TemporaryDirectory(dir=debian.cache_dir()) as disk:
        for number in range(bench.n_rounds):
            epoch = bench.run_epoch(nginx.http_url, "packtrain", "--gradient")
            durations["streamed"].append(epoch["first_gradient_s"])
            durations["step"].append(epoch["step_s"])
            for name, command in staging_commands.items():
                out = Path(disk) / f"{name}-{number}"
                durations[name].append(
                    _time_staged_gradient(
                        bench, nginx.http_url, command(DownloadOrder((f"{nginx.http_url}/train.tar",), out)), out
                    )
                )
            print_progress(
                f"gradient {number + 1}/{bench.n_rounds}: "
                + ", ".join(f"{k} {v[-1]:.2f} s" for k, v in durations.items())
            )
    ratios = {
        name: [a / b for a, b in zip(durations[name], durations["streamed"], strict=True)] for name in staging_commands
    }
    return {
        **{f"first_gradient_vs_{name}": statistics.median(values) for name, values in ratios.items()},
        "first_gradient_s": statistics.median(durations["streamed"]),
        "first_gradient_step_s": statistics.median(durations["step"]),
    }


def _time_staged_gradient(bench: StreamBenchmark, www: str, command: Sequence[object], target: Path) -> float:
    """Return the time to the first gradient from files that are first staged to disk."""
    staging = measure.run_measured(command)
    if staging.exit_code:
        raise RuntimeError(f"could not stage the data: {staging.stderr_tail}")
    gradient_s = bench.run_epoch(www, "folder", "--folder", target, "--gradient")["first_gradient_s"]
    shutil.rmtree(target)
    os.sync()  # pending writes would slow down the next measurement
    return staging.duration_s + gradient_s


def measure_index(bench: StreamBenchmark) -> Metrics:
    with Nginx(bench.data_dir / "www") as nginx:
        durations = [
            _time_index(f"{nginx.http_url}/train.tar", bench.data_dir / "index") for _ in range(bench.n_rounds)
        ]
    return {"index_2gb_s": statistics.median(durations)}


def _time_index(url: str, path: Path) -> float:
    path.unlink(missing_ok=True)
    started_at = time.monotonic()
    packtrain = Path(sys.executable).with_name("packtrain")
    subprocess.run([packtrain, "index", url, "-o", path], check=True, capture_output=True)
    return time.monotonic() - started_at


BENCHMARKS: Mapping[str, Callable[[StreamBenchmark], Metrics]] = {
    "index": measure_index,
    "raw": measure_raw,
    "decoded": measure_decoded,
    "keep": measure_disk_cache,
    "wan": measure_wan,
    "gradient": measure_first_gradient,
}


def _prepare_data(bench: StreamBenchmark, n_images: int) -> None:
    """Create the archive (cached, because it takes minutes), the extracted files, and the formats of other systems."""
    cached_archive = debian.cache_dir() / "data" / f"imagenet-like-{N_CLASSES}x{n_images // N_CLASSES}.tar"
    if not cached_archive.exists():
        print_progress(f"creating {cached_archive.name}")
        shape = synthetic_imagenet.DatasetShape(N_CLASSES, n_images // N_CLASSES)
        synthetic_imagenet.write_archive(
            cached_archive, data.cached_cifar10(), shape, lambda done, total: None, lambda: None
        )
    for name in ("www", "scratch"):
        (bench.data_dir / name).mkdir(exist_ok=True)
    if not bench.archive.exists():
        shutil.copyfile(cached_archive, bench.archive)
    if not (bench.data_dir / "index").exists():
        print_progress("extracting")
        unpack = [sys.executable, "-I", "-S", _HARNESS_DIR / "agent_fetch.py", "--unpack"]
        with Nginx(bench.data_dir / "www") as nginx:
            subprocess.run([*unpack, f"{nginx.http_url}/train.tar", "-o", bench.data_dir / "folder"], check=True)
            _time_index(f"{nginx.http_url}/train.tar", bench.data_dir / "index")
    for peer in bench.peers:
        _repack(bench, peer)


def _repack(bench: StreamBenchmark, peer: str) -> None:
    folders = {"webdataset": "wds", "mosaicml": "mds/train", "litdata": "lit/train"}
    folder, marker = bench.data_dir / "www" / folders[peer], bench.data_dir / f"{peer}.done"
    if not marker.exists():
        print_progress(f"repacking for {peer}")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(
            [bench.python, _HARNESS_DIR / "repack.py", peer, bench.archive, folder], check=True, stdout=sys.stderr
        )
        marker.touch()


def _open_data_dir(path: Path | None) -> contextlib.AbstractContextManager[str | Path]:
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
        return contextlib.nullcontext(path)
    return tempfile.TemporaryDirectory(prefix="packtrain-bench-", dir="/dev/shm")


def _parse_arguments() -> argparse.Namespace:
    parser = results.make_parser("streaming from a remote archive", BENCHMARKS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data-dir", type=Path, help="folder for the data, which is kept and used again (10 GB)")
    parser.add_argument("--images", type=int, default=18_200, help="number of images in the archive (18200: 2 GB)")
    parser.add_argument("--peers", default=",".join(PEERS), help="systems to compare with ('' for none)")
    return parser.parse_args()


def main() -> None:
    args = _parse_arguments()
    measure.exit_on_sigterm()
    metrics: Metrics = {}
    with _open_data_dir(args.data_dir) as folder:
        peers = tuple(filter(None, args.peers.split(",")))
        bench = StreamBenchmark(args.rounds, Path(folder), stream_peers.peers_python(), peers)
        _prepare_data(bench, args.images)
        for part in args.only:
            print_progress(f"{part} …")
            metrics |= BENCHMARKS[part](bench)
    results.report_results("stream", args, metrics, BOUNDS, images=args.images, rounds=args.rounds)


if __name__ == "__main__":
    main()
