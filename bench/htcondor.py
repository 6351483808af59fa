"""packtrain on a real HTCondor pool of three sites, compared with plain condor_submit.

    python bench/htcondor.py --json [--only submit,overhead,cpu,thousand] [--n-submitted 10000] [--jobs 1000]

Prints one JSON line; progress and missed bounds on stderr:

submit_10k_s         from `packtrain run --detach` until `packtrain ps` lists 10,000 submitted jobs (≤ 15)
job_overhead_s       a packtrain job that runs `sleep 2`, minus a plain one, one after another in one slot (≤ 1.0)
agent_cpu_s          CPU time of a job that fetches 1 MB and runs `true`, all its processes (≤ 0.3)
thousand_jobs_lost   jobs of 1,000 that `ps` does not list as succeeded (0)
supervisor_cpu_pct   of one core, with 1,000 jobs queued and with 1,000 jobs running; the larger one (≤ 5)
supervisor_rss_mb    its peak memory (≤ 150)
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import measure, pool_user, results
from harness.measure import print_progress
from harness.packtrain_user import SupervisorProcess, check_succeeded, format_workflow
from harness.pool_user import PoolUser
from harness.results import Bounds

from testbed.condor_config import SITES, PoolSite
from testbed.condor_pool import CondorPool
from testbed.http_server import HttpServer

BOUNDS: Bounds = {
    "submit_10k_s": ("-", 15.0),
    "job_overhead_s": ("-", 1.0),
    "agent_cpu_s": ("-", 0.45),
    "thousand_jobs_lost": ("-", 0),
    "supervisor_cpu_pct": ("-", 5.0),
    "supervisor_rss_mb": ("-", 150.0),
}
N_SEQUENTIAL_JOBS = 10  # jobs that run one after another
QUEUED_MEASURE_S = 30.0  # how long the supervisor of queued jobs is measured
TIMEOUT_S = 900.0
BARE_SUBMIT = "executable = /bin/{}\ntransfer_executable = false\noutput = plain.out\nerror = plain.err\n"
TRUE_SUBMIT, SLEEP_SUBMIT = BARE_SUBMIT.format("true"), BARE_SUBMIT.format("sleep") + "arguments = 2\n"


def _parse_arguments() -> argparse.Namespace:
    parser = results.make_parser("packtrain on a pool", BENCHMARKS)
    parser.add_argument("--n-submitted", type=int, default=10_000, help="number of jobs that are only submitted")
    parser.add_argument("--jobs", type=int, default=1000, help="number of jobs that run")
    return parser.parse_args()


def _site_requirement(site: PoolSite) -> str:
    return f'GLIDEIN_ResourceName == "{site.name}"'


def _pin_to_site(site: PoolSite) -> str:
    return f"htcondor: {{requirements: '{_site_requirement(site)}'}}"


def measure_submit(pool: CondorPool, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Measure submission while the sites start no jobs; in a real pool they are other machines."""
    user = PoolUser(pool, folder / "submit")
    with pool.override_config(START="False"):
        started_at = time.monotonic()
        run = user.start_run(format_workflow(args.n_submitted))
        run_command_s = time.monotonic() - started_at
        while sum(bool(job["executions"]) for job in user.list_jobs(run)) < args.n_submitted:
            print_progress(f"submit: {time.monotonic() - started_at:.1f} s")
        submit_s = time.monotonic() - started_at
        ps_started_at = time.monotonic()
        user.list_jobs(run)
        ps_s = time.monotonic() - ps_started_at
        _remove_all_jobs(pool)
    return {"submit_10k_s": submit_s, "run_command_s": run_command_s, "ps_10k_s": ps_s}


def measure_overhead(pool: CondorPool, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Measure jobs that occupy a complete site, so that each one waits for the one before it.

    They run for 2 s: after a job that exits at once HTCondor pauses for a second, which would hide the agent's cost.
    """
    user, site = PoolUser(pool, folder / "overhead"), SITES[1]
    text = (
        f"{SLEEP_SUBMIT}request_cpus = {site.cpus}\nrequirements = {_site_requirement(site)}\n"
        f"queue {N_SEQUENTIAL_JOBS}\n"
    )
    plain_s = pool_user.execution_span_s(
        pool_user.wait_for_jobs(user.condor_submit(text), N_SEQUENTIAL_JOBS, TIMEOUT_S)
    )
    run = user.start_run(format_workflow(N_SEQUENTIAL_JOBS, cpus=site.cpus, more=_pin_to_site(site), command="sleep 2"))
    packtrain_s = pool_user.execution_span_s(
        pool_user.wait_for_jobs(user.user_log_path(run), N_SEQUENTIAL_JOBS, TIMEOUT_S)
    )
    check_succeeded(user.wait_for_run(run, TIMEOUT_S))
    print_progress(f"overhead of {N_SEQUENTIAL_JOBS} jobs: plain {plain_s:.1f} s, packtrain {packtrain_s:.1f} s")
    return {"job_overhead_s": (packtrain_s - plain_s) / N_SEQUENTIAL_JOBS, "bare_job_s": plain_s / N_SEQUENTIAL_JOBS}


def measure_cpu(pool: CondorPool, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Measure CPU time with a job wrapper, because HTCondor reports whole seconds only.

    Jobs run one after another: two jobs on one core would each appear to use more CPU time.
    """
    user, times, site = PoolUser(pool, folder / "cpu"), folder / "times", SITES[1]
    for name in ("www", "times"):
        (folder / name).mkdir()
    (folder / "www/data.bin").write_bytes(os.urandom(1 << 20))
    with (
        HttpServer(folder / "www") as server,
        pool.override_config(USER_JOB_WRAPPER=pool_user.write_job_wrapper(folder, times)),
    ):
        more = f'input: {{http: {{url: "{server.url}/data.bin"}}}}\n{_pin_to_site(site)}'
        run = user.start_run(format_workflow(5, cpus=site.cpus, more=more))
        check_succeeded(user.wait_for_run(run, TIMEOUT_S))
    return {"agent_cpu_s": statistics.median(map(pool_user.parse_children_cpu_s, times.iterdir()))}


def measure_thousand_jobs(pool: CondorPool, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    user = PoolUser(pool, folder / "thousand")
    started_at = time.monotonic()
    pool_user.wait_for_jobs(user.condor_submit(f"{TRUE_SUBMIT}queue {args.jobs}\n"), args.jobs, TIMEOUT_S)
    plain_s = time.monotonic() - started_at
    print_progress(f"thousand: plain condor_submit took {plain_s:.1f} s")
    with pool.override_config(START="False"):
        run = user.start_run(format_workflow(args.jobs))
        constraint = f'PacktrainRun == "{run}" && JobUniverse == 5'
        pool.wait_for(lambda: len(pool.queue(constraint, "ProcId")) == args.jobs, "not all jobs are queued")
        supervisor = SupervisorProcess(lambda: pool_user.find_supervisors(pool))
        queued_pct = supervisor.measure_cpu_percent(QUEUED_MEASURE_S)
    started_at = time.monotonic()
    running_pct = supervisor.measure_cpu_percent(TIMEOUT_S)
    packtrain_s = time.monotonic() - started_at
    print_progress(
        f"thousand: packtrain took {packtrain_s:.1f} s; supervisor {queued_pct:.1f}% queued, {running_pct:.1f}% running"
    )
    n_succeeded = sum(job["status"] == "succeeded" for job in user.list_jobs(run))
    return {
        "thousand_jobs_lost": args.jobs - n_succeeded,
        "thousand_jobs_s": packtrain_s,
        "thousand_plain_s": plain_s,
        "supervisor_cpu_pct": max(queued_pct, running_pct),
        "supervisor_cpu_queued_pct": queued_pct,
        "supervisor_cpu_running_pct": running_pct,
        "supervisor_rss_mb": supervisor.peak_mb,
    }


def _remove_all_jobs(pool: CondorPool) -> None:
    """Remove all jobs from the queue, by force if needed."""
    for option in ((), ("-forcex",)):
        pool.run_as_user(["condor_rm", *option, "-constraint", "true"], check=False)
    pool.wait_for(lambda: not pool.queue("true", "ClusterId"), "jobs remain in the queue")


BENCHMARKS: dict[str, Callable[[CondorPool, Path, argparse.Namespace], dict[str, float]]] = {
    "submit": measure_submit,
    "overhead": measure_overhead,
    "cpu": measure_cpu,
    "thousand": measure_thousand_jobs,
}


def main() -> None:
    args = _parse_arguments()
    measure.exit_on_sigterm()
    metrics: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="packtrain-bench-") as folder, CondorPool(Path(folder) / "pool") as pool:
        for part in args.only:
            print_progress(f"{part}…")
            metrics |= BENCHMARKS[part](pool, Path(folder), args)
    results.report_results("htcondor", args, metrics, BOUNDS, n_submitted=args.n_submitted, jobs=args.jobs)


if __name__ == "__main__":
    main()
