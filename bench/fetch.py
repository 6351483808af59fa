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
from harness.clients import Command, Order
from harness.measure import Sample, tell
from harness.memory_reserve import ballast
from harness.results import Bounds, Figures

from testbed import debian
from testbed.competitors import Nginx
from testbed.wan_emulator import BadLine

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
    "rclone x64": clients.rclone(64, chunk="2M"),
}
_WAN_CAP_S = 40.0
_WARM_TIMES = 3  # the file's size
Check = Callable[[Path], bool]
Clear = Callable[[Path], None]


@dataclass(frozen=True)
class Bench:
    """The manner of one call, and the folders: `www` is served, `memory` and `disk` are written to."""

    rounds: int
    size: int
    wan_size: int
    packtrain: Command
    memory: Path
    disk: Path

    @property
    def classes(self) -> int:
        """Of the nested tar, which is about as large as the file."""
        return max(1, round(data.CLASSES * self.size / 2e9))

    @property
    def www(self) -> Path:
        return self.memory / "www"

    def noise(self, size: int) -> tuple[str, str]:
        """Name and sha256 of a served file of this size; made at the first call."""
        path = self.www / f"noise-{size}"
        known = path.with_suffix(".sha256")
        if not known.exists():
            tell(f"making {size / 1e6:.0f} MB of noise")
            known.write_text(data.write_noise(path, size))
        return path.name, known.read_text()

    def nested_tar(self) -> str:
        path = self.www / "nested.tar"
        if not path.exists():
            tell(f"making a tar of {self.classes} class tars")
            data.write_nested_tar(path, self.classes)
        return path.name


def _timed(
    command: Command, order: Order, prefix: list[str], right: Check, cap_s: float, clear: Clear
) -> Callable[[], Sample]:
    """Runs the command on the order; the first time, what arrived is looked at."""
    unchecked = [right]

    def once() -> Sample:
        os.sync()  # what earlier rounds left to write is not this one's load
        sample = measure.run([*prefix, *command(order)], env=clients.environment(order.ca), cap_s=cap_s)
        if unchecked and sample.code == 0 and not unchecked.pop()(order.out):
            raise SystemExit(f"what arrived is wrong: {command(order)}")
        clear(order.out)
        return sample

    return once


def _has(sha256: str) -> Check:
    return lambda path: data.sha256(path) == sha256


def _remove(path: Path) -> None:
    """The file or folder, and what a client that was cut short left beside it."""
    for one in path.parent.glob(f"*{path.name}*"):
        shutil.rmtree(one) if one.is_dir() else one.unlink()


def _put_aside(path: Path) -> None:
    """Where the disk has just freed thousands of files, ext4 takes ten times as long for new ones."""
    path.rename(path.with_name(f"spent-{time.monotonic_ns()}"))


def _compare(
    bench: Bench,
    title: str,
    order: Order,
    others: Mapping[str, Command],
    *,
    right: Check,
    ours: Command | None = None,
    prefix: tuple[str, ...] = (),
    cap_s: float = 300.0,
    clear: Clear = _remove,
) -> measure.Rounds:
    commands = {"packtrain": ours or bench.packtrain, **others}
    runs = {name: _timed(command, order, list(prefix), right, cap_s, clear) for name, command in commands.items()}
    return measure.interleaved(title, bench.rounds, runs)


def http(bench: Bench) -> Figures:
    name, sha256 = bench.noise(bench.size)
    others = {"curl": clients.curl, "rclone x8": clients.rclone(8), "aria2 x4": clients.aria2c(4)}
    with Nginx(bench.www) as nginx:
        order = Order((f"{nginx.http}/{name}",), bench.disk / "out")
        seen = _compare(bench, "http", order, others, right=_has(sha256))
    return {
        "http_vs_curl": measure.speedup(seen, "packtrain", "curl"),
        "http_vs_rclone8": measure.speedup(seen, "packtrain", "rclone x8"),
        "http_vs_aria2": measure.speedup(seen, "packtrain", "aria2 x4"),
        "cpu_s_per_gb": measure.cpu_per_gb(seen, "packtrain", bench.size),
        "curl_mb_per_s": bench.size / 1e6 / statistics.median(sample.seconds for sample in seen["curl"]),
    }


def verified(bench: Bench) -> Figures:
    name, sha256 = bench.noise(bench.size)
    with Nginx(bench.www) as nginx:
        order = Order((f"{nginx.http}/{name}",), bench.disk / "out", sha256=sha256)
        seen = _compare(bench, "verified", order, {"curl": clients.curl_and_sha256sum}, right=_has(sha256))
    return {
        "verified_vs_curl_sha256sum": measure.speedup(seen, "packtrain", "curl"),
        "sha256_cpu_s_per_gb": measure.cpu_per_gb(seen, "packtrain", bench.size),
    }


def https(bench: Bench) -> Figures:
    name, sha256 = bench.noise(bench.size)
    with Nginx(bench.www) as nginx:
        order = Order((f"{nginx.https}/{name}",), bench.disk / "out", ca=nginx.ca)
        seen = _compare(bench, "https", order, {"curl": clients.curl}, right=_has(sha256))
    return {
        "https_vs_curl": measure.speedup(seen, "packtrain", "curl"),
        "https_cpu_s_per_gb": measure.cpu_per_gb(seen, "packtrain", bench.size),
    }


def _wan(bench: Bench, congestion: str) -> Figures:
    name, sha256 = bench.noise(bench.wan_size)
    with (
        BadLine(congestion=congestion) as line,
        Nginx(bench.www, host=line.server, inside=line.at_server) as nginx,
    ):
        order = Order((f"{nginx.http}/{name}",), bench.memory / "out")
        title, prefix = f"wan {congestion}", tuple(line.at_client)
        seen = _compare(bench, title, order, WAN_PEERS, right=_has(sha256), prefix=prefix, cap_s=_WAN_CAP_S)
    tell(f"  {line.summary}")
    best = min(WAN_PEERS, key=lambda peer: statistics.median(sample.seconds for sample in seen[peer]))
    middle = statistics.median(sample.seconds for sample in seen["packtrain"])
    return {
        f"wan_{congestion}_vs_best_peer": measure.speedup(seen, "packtrain", best),
        f"wan_{congestion}_mb_per_s": bench.wan_size / 1e6 / middle,
    }


def wan_reno(bench: Bench) -> Figures:
    return _wan(bench, "reno")


def wan_bbr(bench: Bench) -> Figures:
    return _wan(bench, "bbr")


def _unpack(bench: Bench, where: str, folder: Path, clear: Clear) -> Figures:
    name = bench.nested_tar()
    with Nginx(bench.www) as nginx:
        order = Order((f"{nginx.http}/{name}",), folder / "unpacked")
        others = {"curl and tar": clients.curl_and_tar}
        right = partial(data.holds_all_images, classes=bench.classes)
        seen = _compare(
            bench, f"unpack {where}", order, others, right=right, ours=clients.packtrain_unpack, clear=clear
        )
    return {f"unpack_{where}_vs_curl_tar": measure.speedup(seen, "packtrain", "curl and tar")}


def unpack_tmpfs(bench: Bench) -> Figures:
    return _unpack(bench, "tmpfs", bench.memory, _remove)


def unpack_disk(bench: Bench) -> Figures:
    return _unpack(bench, "disk", bench.disk, _put_aside)


def memory(bench: Bench) -> Figures:
    """The largest of a verified download, one over https, and one that unpacks."""
    (name, sha256), tar = bench.noise(bench.size), bench.nested_tar()
    out = bench.memory / "out"
    with Nginx(bench.www) as nginx:
        commands = {
            "verified": bench.packtrain(Order((f"{nginx.http}/{name}",), out, sha256=sha256)),
            "https": bench.packtrain(Order((f"{nginx.https}/{name}",), out)),
            "unpack": clients.packtrain_unpack(Order((f"{nginx.http}/{tar}",), out)),
        }
        peaks = []
        for title, command in commands.items():
            peaks.append(measure.peak_mb(command, clients.environment(nginx.ca)))
            tell(f"memory {title}: {peaks[-1]:.0f} MB")
            _remove(out)
    return {"peak_rss_mb": max(peaks)}


PARTS: Mapping[str, Callable[[Bench], Figures]] = {
    "http": http,
    "verified": verified,
    "https": https,
    "wan_reno": wan_reno,
    "wan_bbr": wan_bbr,
    "unpack_tmpfs": unpack_tmpfs,
    "unpack_disk": unpack_disk,
    "memory": memory,
}


def _arguments() -> argparse.Namespace:
    parser = results.parser("packtrain's downloads beside those of its peers", PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=data.size_of, default=data.size_of("2G"), help="of the file (2G)")
    parser.add_argument(
        "--wan-size", type=data.size_of, default=data.size_of("200M"), help="of the file over the bad line (200M)"
    )
    parser.add_argument("--as", dest="who", choices=clients.PACKTRAIN, default="user", help="user: `packtrain get`; "
                        "agent: the engine alone, as on a worker")  # fmt: skip
    return parser.parse_args()


@contextmanager
def _bench(given: argparse.Namespace) -> Iterator[Bench]:
    disk_root = debian.cache() / "bench"
    disk_root.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="packtrain-bench-") as memory,
        tempfile.TemporaryDirectory(dir=disk_root) as disk,
        ballast(_WARM_TIMES * given.size),
    ):
        Path(memory, "www").mkdir()
        yield Bench(given.rounds, given.size, given.wan_size, clients.PACKTRAIN[given.who], Path(memory), Path(disk))


def _congestion() -> str:
    """How this machine's servers pace what they send, also to itself."""
    return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()


def main() -> None:
    given = _arguments()
    measure.leave_in_order()
    figures: Figures = {}
    with _bench(given) as bench:
        for part in given.only:
            figures |= PARTS[part](bench)
    about = {"as": given.who, "rounds": given.rounds, "size": given.size, "congestion": _congestion()}
    results.give("fetch", given, figures, BOUNDS, **about)


if __name__ == "__main__":
    main()
