"""Installing a locked Pixi environment with PyTorch, compared with Pixi's own libraries.

    python bench/pixi.py --json [--rounds 3] [--jobs 100]

Everything is on a memory file system, because the times of disks vary too much for a bound. The channel is on loopback.

install_vs_rattler           time of rattler and uv with an empty cache / of the agent's stage `install` (bound: 1.2)
install_s                    the latter, with fetching and verifying
warm_start_s                 the same stage, once another job has installed the environment (bound: 0.5)
peak_rss_mb                  peak memory of the agent while it installs (bound: 150)
hundred_jobs_channel_downloads
                             how often a hundred jobs with one cache request a package, at most (bound: 1)
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.measure import measure_peak_mb, print_progress
from harness.results import make_parser, report_results

from packtrain.engines.bundle import build_agent
from packtrain.events import JournalReader
from packtrain.pixi_workspace.environment import WorkspaceEnvironment, read_environment
from packtrain.plan import (
    ENVIRONMENT_FILE,
    EnvironmentConfig,
    Job,
    Limits,
    Location,
    PixiEnvironment,
    Plan,
    Resources,
    RunAction,
    Step,
    write_pixi_lock,
    write_plan,
)
from testbed import debian
from testbed.competitors import Nginx
from testbed.http_server import HttpServer
from testbed.pixi.channel import build_channel
from testbed.pixi.workspace import write_workspace

ENVIRONMENT = "cpu"
TORCH = "torch==2.13.0"
BOUNDS = {
    "install_vs_rattler": ("+", 1.2),
    "warm_start_s": ("-", 0.5),
    "peak_rss_mb": ("-", 150.0),
    "hundred_jobs_channel_downloads": ("-", 1.0),
}
_RATTLER = Path(__file__).parent / "harness" / "rattler_install.py"
_JOBS_AT_ONCE = 8


def main() -> None:
    parser = make_parser(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=100)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="packtrain-bench-") as folder:
        metrics = _measure_installation(Path(folder) / "torch", args.rounds)
        metrics["hundred_jobs_channel_downloads"] = _count_downloads(Path(folder) / "jobs", args.jobs)
    report_results("pixi", args, metrics, BOUNDS, rounds=args.rounds, jobs=args.jobs)


def _measure_installation(folder: Path, n_rounds: int) -> dict[str, float]:
    site = build_channel(folder / "site", sorted(_torch_wheels().glob("*.whl")))
    with Nginx(site) as nginx:
        manifest = write_workspace(folder / "workspace", site, nginx.http_url)
        bench = _Bench(folder, read_environment(manifest, ENVIRONMENT, has_gpu=False), manifest)
        rounds = []
        for number in range(n_rounds):
            rounds.append((bench.run_rattler(), *bench.run_agents()))
            rattler_s, install_s, warm_s = rounds[-1]
            print_progress(
                f"round {number + 1}: rattler and uv {rattler_s:.2f} s, install {install_s:.2f} s, warm {warm_s:.3f} s"
            )
        peak_mb = bench.measure_memory()
    return {
        "install_vs_rattler": statistics.median(rattler_s / install_s for rattler_s, install_s, _ in rounds),
        "install_s": statistics.median(install_s for _, install_s, _ in rounds),
        "rattler_and_uv_s": statistics.median(rattler_s for rattler_s, _, _ in rounds),
        "warm_start_s": statistics.median(warm_s for _, _, warm_s in rounds),
        "peak_rss_mb": peak_mb,
    }


def _torch_wheels() -> Path:
    """Return a folder with the wheels of PyTorch and what it requires, downloaded if needed."""
    folder = debian.cache_dir() / "pixi-wheels"
    with debian.file_lock(folder.with_name(folder.name + ".lock")):
        if not folder.exists():
            new = folder.with_name(folder.name + ".new")
            subprocess.run([sys.executable, "-m", "pip", "download", "-qq", "--dest", str(new), TORCH], check=True)
            new.rename(folder)
    return folder


class _Bench:
    def __init__(self, folder: Path, environment: WorkspaceEnvironment, manifest: Path) -> None:
        self._folder, self._environment, self._manifest = folder, environment, manifest
        self._jobs = _Jobs(folder, environment)

    def run_rattler(self) -> float:
        """Return the seconds that rattler and uv take with an empty cache."""
        prefix, cache = self._folder / "rattler" / "env", self._folder / "rattler" / "cache"
        lock_path = self._manifest.with_name("pixi.lock")
        urls = [package.url for package in self._environment.lock.packages if package.is_wheel]
        command = [sys.executable, _RATTLER, lock_path, ENVIRONMENT, prefix, cache, *urls]
        result = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        shutil.rmtree(self._folder / "rattler")
        return float(result.stdout)

    def run_agents(self) -> tuple[float, float]:
        """Return the seconds of an installation and of a warm start."""
        cache = self._folder / "cache"
        cold, warm = self._jobs.run(cache), self._jobs.run(cache)
        shutil.rmtree(cache)
        assert cold["was_installed"] and not warm["was_installed"]
        return cold["seconds"], warm["seconds"]

    def measure_memory(self) -> float:
        """Return the agent's peak memory in MB, with an empty cache."""
        return measure_peak_mb(self._jobs.command(self._folder / "memory", self._folder / "memory-cache"))


class _Jobs:
    """Runs agents that install an environment."""

    def __init__(self, folder: Path, environment: WorkspaceEnvironment) -> None:
        self._folder = folder
        self._agent, self._plan = folder / "agent.pyz", folder / "plan.json"
        build_agent(self._agent)
        shared = folder / "environment"
        shared.mkdir()
        write_pixi_lock(environment.lock, shared / ENVIRONMENT_FILE)
        sizes = [package.size or 0 for package in environment.lock.packages]
        pixi = PixiEnvironment(
            ENVIRONMENT, "linux-64", environment.digest, Location(shared.as_uri()), download_bytes=sum(sizes)
        )
        step = Step("import", RunAction('python -c "import purelib"'))
        job = Job("0", (), Resources(), Limits(), (step,), environment=EnvironmentConfig(pixi=pixi))
        write_plan(Plan("bench", "bench", "local", (job,)), self._plan)

    def command(self, attempt: Path, cache: Path) -> list[str]:
        """Return the command of an agent."""
        arguments = ("--attempt-folder", str(attempt), "--cache", str(cache))
        return [sys.executable, "-I", "-S", str(self._agent), str(self._plan), *arguments]

    def run(self, cache: Path) -> Mapping[str, Any]:
        """Run one job and return the data of its stage `install`."""
        attempt = Path(tempfile.mkdtemp(dir=self._folder))
        code = subprocess.run(self.command(attempt, cache), stderr=subprocess.DEVNULL, check=False).returncode
        events = JournalReader(attempt / "journal.jsonl").read()
        if code:
            raise RuntimeError(f"the agent failed: {events[-1].data}")
        installed = next(
            event.data for event in events if event.data.get("stage") == "install" and "seconds" in event.data
        )
        shutil.rmtree(attempt)
        return installed


def _count_downloads(folder: Path, n_jobs: int) -> float:
    """Return how often the most requested package was downloaded by many jobs that share a cache."""
    site = build_channel(folder / "site")
    with HttpServer(site) as server:
        manifest = write_workspace(folder / "workspace", site, server.url)
        environment = read_environment(manifest, ENVIRONMENT, has_gpu=False)
        jobs = _Jobs(folder, environment)
        server.requests.clear()
        with ThreadPoolExecutor(_JOBS_AT_ONCE) as pool:
            list(pool.map(lambda _: jobs.run(folder / "cache"), range(n_jobs)))
        # A download is several requests, of which one is for the beginning.
        gets = [(one.path, one.headers.get("range", "bytes=0-")) for one in server.requests if one.method == "GET"]
        downloads = Counter(path for path, span in gets if span.startswith("bytes=0-"))
    assert len(downloads) == len(environment.lock.packages)
    return float(max(downloads.values()))


if __name__ == "__main__":
    main()
