"""packtrain on a real Slurm cluster of three nodes, compared with plain sbatch.

    python bench/slurm.py --json [--only submit,overhead,thousand] [--n-submitted 10000] [--jobs 1000] [--slurm 26.05]

Prints one JSON line; progress and missed bounds on stderr:

submit_10k_s             from `packtrain run --detach` until `packtrain ps` lists 10,000 submitted jobs (≤ 15)
sbatch_calls             calls of sbatch for them (≤ 20)
job_overhead_s           a packtrain job that runs `sleep 2`, minus a plain one, one after another on one node (≤ 0.5)
thousand_jobs_lost       jobs of 1,000 that `ps` does not list as succeeded (0)
thousand_vs_plain        their time, relative to 1,000 plain jobs (≤ 3)
controller_rpcs_per_min  messages of packtrain to the controller while they run, from sdiag (≤ 10)
supervisor_cpu_pct       of one core, with 1,000 jobs queued and with 1,000 jobs running; the larger one (≤ 5)
supervisor_rss_mb        its peak memory (≤ 150)
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import measure, results
from harness.measure import print_progress
from harness.packtrain_user import SupervisorProcess, check_succeeded, format_workflow
from harness.results import Bounds
from harness.slurm_user import SUBMIT_RPC, SlurmUser, count_rpcs, count_user_rpcs, read_completions

from testbed.slurm import install
from testbed.slurm.cluster import Cluster

BOUNDS: Bounds = {
    "submit_10k_s": ("-", 15.0),
    "sbatch_calls": ("-", 20),
    "job_overhead_s": ("-", 0.5),
    "thousand_jobs_lost": ("-", 0),
    "thousand_vs_plain": ("-", 3.0),
    "controller_rpcs_per_min": ("-", 10.0),
    "supervisor_cpu_pct": ("-", 5.0),
    "supervisor_rss_mb": ("-", 150.0),
}
N_SEQUENTIAL_JOBS = 10  # jobs that run one after another
SEQUENTIAL_NODE, SEQUENTIAL_CPUS = "n2", 8  # all CPUs of that node
QUEUED_MEASURE_S = 30.0  # how long the supervisor of queued jobs is measured
TIMEOUT_S = 900.0


def _parse_arguments() -> argparse.Namespace:
    parser = results.make_parser("packtrain on a cluster", BENCHMARKS)
    parser.add_argument("--n-submitted", type=int, default=10_000, help="number of jobs that are only submitted")
    parser.add_argument("--jobs", type=int, default=1000, help="number of jobs that run")
    parser.add_argument("--slurm", choices=install.SUITES, default=install.NEWEST, help="version of Slurm")
    return parser.parse_args()


@contextlib.contextmanager
def _no_starts(cluster: Cluster) -> Iterator[None]:
    """Keep all jobs in the queue."""
    cluster.run(["scontrol", "update", "PartitionName=main", "State=DOWN"])
    yield
    cluster.run(["scontrol", "update", "PartitionName=main", "State=UP"])


def _wait_for_completions(cluster: Cluster, name_prefix: str, n_jobs: int) -> list[tuple[float, float]]:
    """Wait until jobs have ended, or for the timeout. The log of the controller is read, so that it is not queried."""
    deadline = time.monotonic() + TIMEOUT_S
    while len(times := read_completions(cluster, name_prefix)) < n_jobs and time.monotonic() < deadline:
        time.sleep(0.1)
    return times


def _span_s(times: list[tuple[float, float]]) -> float:
    return max(end for _, end in times) - min(start for start, _ in times)


def measure_submit(cluster: Cluster, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Measure submission while no job starts; on a real cluster other machines run them."""
    user, before = SlurmUser(cluster, folder / "submit"), count_rpcs(cluster).get(SUBMIT_RPC, 0)
    with _no_starts(cluster):
        started_at = time.monotonic()
        run = user.start_run(format_workflow(args.n_submitted))
        run_command_s = time.monotonic() - started_at
        while sum(bool(job["executions"]) for job in user.list_jobs(run)) < args.n_submitted:
            print_progress(f"submit: {time.monotonic() - started_at:.1f} s")
        submit_s = time.monotonic() - started_at
        calls = count_rpcs(cluster).get(SUBMIT_RPC, 0) - before
        user.run_packtrain("cancel", run)
        cluster.cancel_all()
    return {"submit_10k_s": submit_s, "sbatch_calls": calls, "run_command_s": run_command_s}


def measure_overhead(cluster: Cluster, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Measure jobs that occupy a complete node, so that each one waits for the one before it."""
    user = SlurmUser(cluster, folder / "overhead")
    user.sbatch("plain-sleep", "sleep 2", N_SEQUENTIAL_JOBS, f"-w{SEQUENTIAL_NODE}", f"-c{SEQUENTIAL_CPUS}")
    plain_s = _span_s(_wait_for_completions(cluster, "plain-sleep", N_SEQUENTIAL_JOBS))
    more = f"slurm: {{nodelist: {SEQUENTIAL_NODE}}}"
    run = user.start_run(format_workflow(N_SEQUENTIAL_JOBS, cpus=SEQUENTIAL_CPUS, more=more, command="sleep 2"))
    packtrain_s = _span_s(_wait_for_completions(cluster, f"pt-{run}", N_SEQUENTIAL_JOBS))
    _wait_for_end(user, run)
    check_succeeded(user.list_jobs(run))
    print_progress(f"overhead of {N_SEQUENTIAL_JOBS} jobs: plain {plain_s:.1f} s, packtrain {packtrain_s:.1f} s")
    return {"job_overhead_s": (packtrain_s - plain_s) / N_SEQUENTIAL_JOBS, "bare_job_s": plain_s / N_SEQUENTIAL_JOBS}


def _wait_for_end(user: SlurmUser, run: str) -> None:
    """Wait until the supervisor has exited."""
    deadline = time.monotonic() + TIMEOUT_S
    while list(user.find_supervisors(run)) and time.monotonic() < deadline:
        time.sleep(0.2)


def measure_thousand_jobs(cluster: Cluster, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    user = SlurmUser(cluster, folder / "thousand")
    started_at = time.monotonic()
    user.sbatch("plain-true", "true", args.jobs, "--mem-per-cpu=64M")
    _wait_for_completions(cluster, "plain-true", args.jobs)
    plain_s = time.monotonic() - started_at
    print_progress(f"thousand: plain sbatch took {plain_s:.1f} s")
    with _no_starts(cluster):
        run = user.start_run(format_workflow(args.jobs))
        supervisor = SupervisorProcess(lambda: user.find_supervisors(run))
        queued_pct = supervisor.measure_cpu_percent(QUEUED_MEASURE_S)
    rpcs_before, started_at = count_user_rpcs(cluster), time.monotonic()
    running_pct = supervisor.measure_cpu_percent(TIMEOUT_S)
    packtrain_s = time.monotonic() - started_at
    rpcs_per_min = (count_user_rpcs(cluster) - rpcs_before) / packtrain_s * 60
    print_progress(
        f"thousand: packtrain took {packtrain_s:.1f} s; supervisor {queued_pct:.1f}% queued, {running_pct:.1f}% running"
    )
    n_succeeded = sum(job["status"] == "succeeded" for job in user.list_jobs(run))
    return {
        "thousand_jobs_lost": args.jobs - n_succeeded,
        "thousand_vs_plain": packtrain_s / plain_s,
        "thousand_jobs_s": packtrain_s,
        "thousand_plain_s": plain_s,
        "controller_rpcs_per_min": rpcs_per_min,
        "supervisor_cpu_pct": max(queued_pct, running_pct),
        "supervisor_cpu_queued_pct": queued_pct,
        "supervisor_cpu_running_pct": running_pct,
        "supervisor_rss_mb": supervisor.peak_mb,
    }


BENCHMARKS: dict[str, Callable[[Cluster, Path, argparse.Namespace], dict[str, float]]] = {
    "submit": measure_submit,
    "overhead": measure_overhead,
    "thousand": measure_thousand_jobs,
}


def main() -> None:
    args = _parse_arguments()
    measure.exit_on_sigterm()
    metrics: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="packtrain-bench-") as folder,
        Cluster(Path(folder) / "cluster", args.slurm) as cluster,
    ):
        Path(folder).chmod(0o755)
        for part in args.only:
            print_progress(f"{part}…")
            metrics |= BENCHMARKS[part](cluster, Path(folder), args)
    results.report_results(
        "slurm", args, metrics, BOUNDS, slurm=args.slurm, n_submitted=args.n_submitted, jobs=args.jobs
    )


if __name__ == "__main__":
    main()
