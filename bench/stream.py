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

from harness import PROJECT, clients, measure, results, stream_peers
from harness.clients import Order
from harness.measure import tell
from harness.results import Bounds, Figures

from testbed import data, debian
from testbed.competitors import Nginx
from testbed.datasets import synthetic_imagenet
from testbed.faults import FaultProxy
from testbed.wan_emulator import BadLine

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
CLASSES = 200
PEERS = ("webdataset", "mosaicml", "litdata")
_HARNESS = Path(__file__).parent / "harness"
_CAP_S = 180.0
_TOLD = ("rate", "first_batch_s", "classes_per_64", "cpu_s")
_DECODED = 9100
_WAN_SAMPLES = 320  # webdataset brings 12 a second
Seen = dict[str, float]


@dataclass(frozen=True)
class Bench:
    """`home` has `www`, which is served, and `folder`, the extracted files."""

    rounds: int
    home: Path
    python: Path
    peers: tuple[str, ...]

    @property
    def tar(self) -> Path:
        return self.home / "www/train.tar"

    def command(self, www: str, system: str) -> list[object]:
        where = ["--www", www, "--folder", self.home / "folder", "--index", self.home / "index"]
        return [self.python, _HARNESS / "epoch_benchmark.py", system, *where]

    def run(self, www: str, system: str, *more: object, prefix: Sequence[str] = ()) -> Seen:
        """One pass of one system; nothing if it failed."""
        command = [*prefix, *self.command(www, system), *more]
        env = {**os.environ, "TMPDIR": str(self.home / "scratch"), "PYTHONPATH": str(PROJECT / "src")}
        try:
            done = subprocess.run([str(word) for word in command], env=env, capture_output=True, timeout=_CAP_S)
        except subprocess.TimeoutExpired:
            tell(f"  {system} took longer than {_CAP_S:.0f} s")
            return {}
        if done.returncode or not done.stdout.strip():
            tell(f"  {system} failed: {done.stderr.decode()[-500:]}")
            return {}
        return json.loads(done.stdout.splitlines()[-1])

    def rounds_of(self, title: str, www: str, systems: Sequence[str], *more: object, prefix: Sequence[str] = ()):
        seen: dict[str, list[Seen]] = {system: [] for system in systems}
        for number in range(self.rounds):
            turned = [*systems[number % len(systems) :], *systems[: number % len(systems)]]
            for system in turned:
                seen[system].append(one := self.run(www, system, *more, prefix=prefix))
                told = ", ".join(f"{name} {one[name]:.2f}" for name in _TOLD if one)
                tell(f"{title} {number + 1}/{self.rounds} {system}: {told}")
        return seen


def _ratio(seen: dict[str, list[Seen]], other: str, ours: str = "packtrain") -> float:
    """How many times faster: the median over rounds; one that failed was not fast."""
    pairs = zip(seen[ours], seen[other], strict=True)
    return statistics.median(
        0.0 if not mine else math.inf if not theirs else mine["rate"] / theirs["rate"] for mine, theirs in pairs
    )


def _median(rows: list[Seen], name: str) -> float:
    return statistics.median(row.get(name, math.inf) for row in rows)


def raw(bench: Bench) -> Figures:
    with Nginx(bench.home / "www") as nginx:
        seen = bench.rounds_of("raw", nginx.http, ["packtrain", "packtrain_by_pipe", "folder", *bench.peers])
        peak = measure.peak_mb(bench.command(nginx.http, "packtrain"), env={"PYTHONPATH": str(PROJECT / "src")})
    mine = seen["packtrain"]
    firsts = {f"first_batch_{other}_s": _median(seen[other], "first_batch_s") for other in ("folder", *bench.peers)}
    return {
        **{f"raw_vs_{other}": _ratio(seen, other) for other in ("folder", *bench.peers)},
        "raw_by_pipe_vs_folder": _ratio(seen, "folder", "packtrain_by_pipe"),
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


def decoded(bench: Bench) -> Figures:
    with Nginx(bench.home / "www") as nginx:
        more = ["--mode", "decoded", "--samples", _DECODED]
        seen = bench.rounds_of("decoded", nginx.http, ["packtrain", "folder"], *more)
    return {"decoded_vs_folder": _ratio(seen, "folder"), "decoded_samples_per_s": _median(seen["packtrain"], "rate")}


def keep(bench: Bench) -> Figures:
    """What the second epoch asks for when the first was kept."""
    kept = bench.home / "kept"
    with FaultProxy(bench.home / "www") as proxy:
        bench.run(proxy.url, "packtrain", "--keep", kept)
        first = proxy.sent
        again = bench.run(proxy.url, "packtrain", "--keep", kept)
        second = proxy.sent - first
    shutil.rmtree(kept)
    return {"first_epoch_mb": first / 1e6, "second_epoch_bytes": second, "kept_samples_per_s": again.get("rate", 0.0)}


def wan(bench: Bench) -> Figures:
    with BadLine() as line, Nginx(bench.home / "www", host=line.server, inside=line.at_server) as nginx:
        more, systems = ["--samples", _WAN_SAMPLES], ["packtrain", "webdataset"]
        seen = bench.rounds_of("wan", nginx.http, systems, *more, prefix=line.at_client)
    return {
        "wan_vs_webdataset": _ratio(seen, "webdataset"),
        "wan_samples_per_s": _median(seen["packtrain"], "rate"),
        "wan_first_batch_s": _median(seen["packtrain"], "first_batch_s"),
        "wan_first_batch_webdataset_s": _median(seen["webdataset"], "first_batch_s"),
    }


def gradient(bench: Bench) -> Figures:
    """Reading where the data is, beside fetching and unpacking it first: by packtrain's agent, and by curl and tar."""
    ways = {"staged": clients.packtrain_unpack, "curl_tar": clients.curl_and_tar}
    seen: dict[str, list[float]] = {name: [] for name in ("streamed", "step", *ways)}
    with Nginx(bench.home / "www") as nginx, tempfile.TemporaryDirectory(dir=debian.cache()) as disk:
        for number in range(bench.rounds):
            mine = bench.run(nginx.http, "packtrain", "--gradient")
            seen["streamed"].append(mine["first_gradient_s"])
            seen["step"].append(mine["step_s"])
            for name, command in ways.items():
                out = Path(disk) / f"{name}-{number}"
                seen[name].append(_staged(bench, nginx.http, command(Order((f"{nginx.http}/train.tar",), out)), out))
            tell(f"gradient {number + 1}/{bench.rounds}: " + ", ".join(f"{k} {v[-1]:.2f} s" for k, v in seen.items()))
    ratios = {name: [a / b for a, b in zip(seen[name], seen["streamed"], strict=True)] for name in ways}
    return {
        **{f"first_gradient_vs_{name}": statistics.median(values) for name, values in ratios.items()},
        "first_gradient_s": statistics.median(seen["streamed"]),
        "first_gradient_step_s": statistics.median(seen["step"]),
    }


def _staged(bench: Bench, www: str, command: Sequence[object], out: Path) -> float:
    """Seconds until the first gradient from files that are brought to the disk first."""
    done = measure.run(command)
    if done.code:
        raise RuntimeError(f"the data could not be staged: {done.words}")
    first = bench.run(www, "folder", "--folder", out, "--gradient")["first_gradient_s"]
    shutil.rmtree(out)
    os.sync()  # what is written meanwhile would burden the next
    return done.seconds + first


def index(bench: Bench) -> Figures:
    with Nginx(bench.home / "www") as nginx:
        seconds = [_indexed(f"{nginx.http}/train.tar", bench.home / "index") for _ in range(bench.rounds)]
    return {"index_2gb_s": statistics.median(seconds)}


def _indexed(url: str, path: Path) -> float:
    path.unlink(missing_ok=True)
    began = time.monotonic()
    packtrain = Path(sys.executable).with_name("packtrain")
    subprocess.run([packtrain, "index", url, "-o", path], check=True, capture_output=True)
    return time.monotonic() - began


PARTS: Mapping[str, Callable[[Bench], Figures]] = {
    "index": index, "raw": raw, "decoded": decoded, "keep": keep, "wan": wan, "gradient": gradient,
}  # fmt: skip


def _prepare(bench: Bench, images: int) -> None:
    """The archive (kept in the cache: it takes minutes to make), the extracted files, and what the peers want."""
    kept = debian.cache() / "data" / f"imagenet-like-{CLASSES}x{images // CLASSES}.tar"
    if not kept.exists():
        tell(f"making {kept.name}")
        shape = synthetic_imagenet.Shape(CLASSES, images // CLASSES)
        synthetic_imagenet.write(kept, data.cifar10(), shape, lambda done, total: None, lambda: None)
    for name in ("www", "scratch"):
        (bench.home / name).mkdir(exist_ok=True)
    if not bench.tar.exists():
        shutil.copyfile(kept, bench.tar)
    if not (bench.home / "index").exists():
        tell("extracting")
        unpack = [sys.executable, "-I", "-S", _HARNESS / "as_agent.py", "--unpack"]
        with Nginx(bench.home / "www") as nginx:
            subprocess.run([*unpack, f"{nginx.http}/train.tar", "-o", bench.home / "folder"], check=True)
            _indexed(f"{nginx.http}/train.tar", bench.home / "index")
    for peer in bench.peers:
        _repack(bench, peer)


def _repack(bench: Bench, peer: str) -> None:
    folders = {"webdataset": "wds", "mosaicml": "mds/train", "litdata": "lit/train"}
    where, done = bench.home / "www" / folders[peer], bench.home / f"{peer}.done"
    if not done.exists():
        tell(f"repacking for {peer}")
        shutil.rmtree(where, ignore_errors=True)
        subprocess.run([bench.python, _HARNESS / "repack.py", peer, bench.tar, where], check=True, stdout=sys.stderr)
        done.touch()


def _home(given: Path | None) -> contextlib.AbstractContextManager[str | Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        return contextlib.nullcontext(given)
    return tempfile.TemporaryDirectory(prefix="packtrain-bench-", dir="/dev/shm")


def _arguments() -> argparse.Namespace:
    parser = results.parser("training straight from a remote archive", PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--home", type=Path, help="for the data, which stays there and is used again (10 GB)")
    parser.add_argument("--images", type=int, default=18_200, help="of the archive (18200: 2 GB)")
    parser.add_argument("--peers", default=",".join(PEERS), help="which of them ('' for none)")
    return parser.parse_args()


def main() -> None:
    given = _arguments()
    measure.leave_in_order()
    figures: Figures = {}
    with _home(given.home) as folder:
        peers = tuple(filter(None, given.peers.split(",")))
        bench = Bench(given.rounds, Path(folder), stream_peers.python(), peers)
        _prepare(bench, given.images)
        for part in given.only:
            tell(f"{part} …")
            figures |= PARTS[part](bench)
    results.give("stream", given, figures, BOUNDS, images=given.images, rounds=given.rounds)


if __name__ == "__main__":
    main()
