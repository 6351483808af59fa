"""Training straight from a remote archive, beside extracted files, webdataset, litdata and MosaicML's streaming.

    python bench/stream.py --json [--rounds 5] [--only raw,decoded,keep,wan,gradient] [--images 18200]

Prints one JSON line (keys: BOUNDS below), medians over interleaved rounds; progress and a table on stderr.
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

# What issue 8 demands: at least (+) or at most (-).
BOUNDS: Bounds = {
    "raw_vs_folder": ("+", 0.95),
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
_N_WAN_SAMPLES = 320  # webdataset brings 12 a second
EpochResult = dict[str, float]


@dataclass(frozen=True)
class StreamBenchmark:
    """`home` has `www`, which is served, and `folder`, the extracted files."""

    n_rounds: int
    data_dir: Path
    python: Path
    peers: tuple[str, ...]

    @property
    def archive(self) -> Path:
        return self.data_dir / "www/train.tar"

    def epoch_command(self, www: str, system: str) -> list[object]:
        where = ["--www", www, "--folder", self.data_dir / "folder", "--index", self.data_dir / "index"]
        return [self.python, _HARNESS_DIR / "epoch_benchmark.py", system, *where]

    def run_epoch(self, www: str, system: str, *more: object, prefix: Sequence[str] = ()) -> EpochResult:
        """One pass of one system; nothing if it failed."""
        command = [*prefix, *self.epoch_command(www, system), *more]
        env = {**os.environ, "TMPDIR": str(self.data_dir / "scratch"), "PYTHONPATH": str(PROJECT_ROOT / "src")}
        try:
            done = subprocess.run(
                [str(word) for word in command], env=env, capture_output=True, timeout=_EPOCH_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            print_progress(f"  {system} took longer than {_EPOCH_TIMEOUT_S:.0f} s")
            return {}
        if done.returncode or not done.stdout.strip():
            print_progress(f"  {system} failed: {done.stderr.decode()[-500:]}")
            return {}
        return json.loads(done.stdout.splitlines()[-1])

    def run_rounds(self, title: str, www: str, systems: Sequence[str], *more: object, prefix: Sequence[str] = ()):
        seen: dict[str, list[EpochResult]] = {system: [] for system in systems}
        for number in range(self.n_rounds):
            turned = [*systems[number % len(systems) :], *systems[: number % len(systems)]]
            for system in turned:
                seen[system].append(one := self.run_epoch(www, system, *more, prefix=prefix))
                told = ", ".join(f"{name} {one[name]:.2f}" for name in _PROGRESS_KEYS if one)
                print_progress(f"{title} {number + 1}/{self.n_rounds} {system}: {told}")
        return seen


def _speed_ratio(epoch_results: dict[str, list[EpochResult]], other: str, ours: str = "packtrain") -> float:
    """How many times faster: the median over rounds; one that failed was not fast."""
    pairs = zip(epoch_results[ours], epoch_results[other], strict=True)
    return statistics.median(
        0.0 if not mine else math.inf if not theirs else mine["rate"] / theirs["rate"] for mine, theirs in pairs
    )


def _median(rows: list[EpochResult], name: str) -> float:
    return statistics.median(row.get(name, math.inf) for row in rows)


def measure_raw(bench: StreamBenchmark) -> Metrics:
    with Nginx(bench.data_dir / "www") as nginx:
        seen = bench.run_rounds("raw", nginx.http_url, ["packtrain", "packtrain_by_pipe", "folder", *bench.peers])
        peak = measure.measure_peak_mb(
            bench.epoch_command(nginx.http_url, "packtrain"), env={"PYTHONPATH": str(PROJECT_ROOT / "src")}
        )
    mine = seen["packtrain"]
    firsts = {f"first_batch_{other}_s": _median(seen[other], "first_batch_s") for other in ("folder", *bench.peers)}
    return {
        **{f"raw_vs_{other}": _speed_ratio(seen, other) for other in ("folder", *bench.peers)},
        "raw_by_pipe_vs_folder": _speed_ratio(seen, "folder", "packtrain_by_pipe"),
        "raw_samples_per_s": _median(mine, "rate"),
        "folder_samples_per_s": _median(seen["folder"], "rate"),
        "classes_per_64": _median(mine, "classes_per_64"),
        "classes_per_64_folder": _median(seen["folder"], "classes_per_64"),
        "first_batch_s": _median(mine, "first_batch_s"),
        **firsts,
        "extra_disk_mb": _median(mine, "extra_disk_mb"),
        **{f"extra_disk_{other}_mb": _median(seen[other], "extra_disk_mb") for other in bench.peers},
        "peak_rss_mb": peak,
    }


def measure_decoded(bench: StreamBenchmark) -> Metrics:
    with Nginx(bench.data_dir / "www") as nginx:
        more = ["--mode", "decoded", "--samples", _N_DECODED_SAMPLES]
        seen = bench.run_rounds("decoded", nginx.http_url, ["packtrain", "folder"], *more)
    return {
        "decoded_vs_folder": _speed_ratio(seen, "folder"),
        "decoded_samples_per_s": _median(seen["packtrain"], "rate"),
    }


def measure_disk_cache(bench: StreamBenchmark) -> Metrics:
    """What the second epoch asks for when the first was kept."""
    kept = bench.data_dir / "kept"
    with FaultProxy(bench.data_dir / "www") as proxy:
        bench.run_epoch(proxy.url, "packtrain", "--keep", kept)
        first = proxy.sent_bytes
        again = bench.run_epoch(proxy.url, "packtrain", "--keep", kept)
        second = proxy.sent_bytes - first
    shutil.rmtree(kept)
    return {"first_epoch_mb": first / 1e6, "second_epoch_bytes": second, "kept_samples_per_s": again.get("rate", 0.0)}


def measure_wan(bench: StreamBenchmark) -> Metrics:
    with (
        WanEmulator() as line,
        Nginx(bench.data_dir / "www", host=line.server_address, command_prefix=line.server_prefix) as nginx,
    ):
        more, systems = ["--samples", _N_WAN_SAMPLES], ["packtrain", "webdataset"]
        seen = bench.run_rounds("wan", nginx.http_url, systems, *more, prefix=line.client_prefix)
    return {
        "wan_vs_webdataset": _speed_ratio(seen, "webdataset"),
        "wan_samples_per_s": _median(seen["packtrain"], "rate"),
        "wan_first_batch_s": _median(seen["packtrain"], "first_batch_s"),
        "wan_first_batch_webdataset_s": _median(seen["webdataset"], "first_batch_s"),
    }


def measure_first_gradient(bench: StreamBenchmark) -> Metrics:
    """Reading where the data is, beside fetching and unpacking it first: by packtrain's agent, and by curl and tar."""
    ways = {"staged": clients.packtrain_unpack, "curl_tar": clients.curl_and_tar}
    seen: dict[str, list[float]] = {name: [] for name in ("streamed", "step", *ways)}
    with Nginx(bench.data_dir / "www") as nginx, tempfile.TemporaryDirectory(dir=debian.cache_dir()) as disk:
        for number in range(bench.n_rounds):
            mine = bench.run_epoch(nginx.http_url, "packtrain", "--gradient")
            seen["streamed"].append(mine["first_gradient_s"])
            seen["step"].append(mine["step_s"])
            for name, command in ways.items():
                out = Path(disk) / f"{name}-{number}"
                seen[name].append(
                    _time_staged_gradient(
                        bench, nginx.http_url, command(DownloadOrder((f"{nginx.http_url}/train.tar",), out)), out
                    )
                )
            print_progress(
                f"gradient {number + 1}/{bench.n_rounds}: " + ", ".join(f"{k} {v[-1]:.2f} s" for k, v in seen.items())
            )
    ratios = {name: [a / b for a, b in zip(seen[name], seen["streamed"], strict=True)] for name in ways}
    return {
        **{f"first_gradient_vs_{name}": statistics.median(values) for name, values in ratios.items()},
        "first_gradient_s": statistics.median(seen["streamed"]),
        "first_gradient_step_s": statistics.median(seen["step"]),
    }


def _time_staged_gradient(bench: StreamBenchmark, www: str, command: Sequence[object], target: Path) -> float:
    """Seconds until the first gradient from files that are brought to the disk first."""
    done = measure.run_measured(command)
    if done.exit_code:
        raise RuntimeError(f"the data could not be staged: {done.stderr_tail}")
    first = bench.run_epoch(www, "folder", "--folder", target, "--gradient")["first_gradient_s"]
    shutil.rmtree(target)
    os.sync()  # what is written meanwhile would burden the next
    return done.duration_s + first


def measure_index(bench: StreamBenchmark) -> Metrics:
    with Nginx(bench.data_dir / "www") as nginx:
        seconds = [_time_index(f"{nginx.http_url}/train.tar", bench.data_dir / "index") for _ in range(bench.n_rounds)]
    return {"index_2gb_s": statistics.median(seconds)}


def _time_index(url: str, path: Path) -> float:
    path.unlink(missing_ok=True)
    began = time.monotonic()
    packtrain = Path(sys.executable).with_name("packtrain")
    subprocess.run([packtrain, "index", url, "-o", path], check=True, capture_output=True)
    return time.monotonic() - began


BENCHMARKS: Mapping[str, Callable[[StreamBenchmark], Metrics]] = {
    "index": measure_index, "raw": measure_raw, "decoded": measure_decoded, "keep": measure_disk_cache, "wan": measure_wan, "gradient": measure_first_gradient,
}  # fmt: skip


def _prepare_data(bench: StreamBenchmark, n_images: int) -> None:
    """The archive (kept in the cache: it takes minutes to make), the extracted files, and what the peers want."""
    kept = debian.cache_dir() / "data" / f"imagenet-like-{N_CLASSES}x{n_images // N_CLASSES}.tar"
    if not kept.exists():
        print_progress(f"making {kept.name}")
        shape = synthetic_imagenet.DatasetShape(N_CLASSES, n_images // N_CLASSES)
        synthetic_imagenet.write_archive(kept, data.cached_cifar10(), shape, lambda done, total: None, lambda: None)
    for name in ("www", "scratch"):
        (bench.data_dir / name).mkdir(exist_ok=True)
    if not bench.archive.exists():
        shutil.copyfile(kept, bench.archive)
    if not (bench.data_dir / "index").exists():
        print_progress("extracting")
        unpack = [sys.executable, "-I", "-S", _HARNESS_DIR / "as_agent.py", "--unpack"]
        with Nginx(bench.data_dir / "www") as nginx:
            subprocess.run([*unpack, f"{nginx.http_url}/train.tar", "-o", bench.data_dir / "folder"], check=True)
            _time_index(f"{nginx.http_url}/train.tar", bench.data_dir / "index")
    for peer in bench.peers:
        _repack(bench, peer)


def _repack(bench: StreamBenchmark, peer: str) -> None:
    folders = {"webdataset": "wds", "mosaicml": "mds/train", "litdata": "lit/train"}
    where, done = bench.data_dir / "www" / folders[peer], bench.data_dir / f"{peer}.done"
    if not done.exists():
        print_progress(f"repacking for {peer}")
        shutil.rmtree(where, ignore_errors=True)
        subprocess.run(
            [bench.python, _HARNESS_DIR / "repack.py", peer, bench.archive, where], check=True, stdout=sys.stderr
        )
        done.touch()


def _open_data_dir(path: Path | None) -> contextlib.AbstractContextManager[str | Path]:
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
        return contextlib.nullcontext(path)
    return tempfile.TemporaryDirectory(prefix="packtrain-bench-", dir="/dev/shm")


def _parse_arguments() -> argparse.Namespace:
    parser = results.make_parser("training straight from a remote archive", BENCHMARKS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--home", type=Path, help="for the data, which stays there and is used again (10 GB)")
    parser.add_argument("--images", type=int, default=18_200, help="of the archive (18200: 2 GB)")
    parser.add_argument("--peers", default=",".join(PEERS), help="which of them ('' for none)")
    return parser.parse_args()


def main() -> None:
    given = _parse_arguments()
    measure.exit_on_sigterm()
    figures: Metrics = {}
    with _open_data_dir(given.home) as folder:
        peers = tuple(filter(None, given.peers.split(",")))
        bench = StreamBenchmark(given.rounds, Path(folder), stream_peers.peers_python(), peers)
        _prepare_data(bench, given.images)
        for part in given.only:
            print_progress(f"{part} …")
            figures |= BENCHMARKS[part](bench)
    results.report_results("stream", given, figures, BOUNDS, images=given.images, rounds=given.rounds)


if __name__ == "__main__":
    main()
