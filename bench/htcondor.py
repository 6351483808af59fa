"""packtrain on a real HTCondor pool of three sites, beside plain condor_submit.

    python bench/htcondor.py --json [--only submit,overhead,cpu,thousand] [--many 10000] [--jobs 1000]

Prints one JSON line; progress and what falls short on stderr:

submit_10k_s         from `packtrain run --detach` until `packtrain ps` lists 10,000 submitted jobs (≤ 15)
job_overhead_s       a job of packtrain that runs `sleep 2`, against a bare one, one after another in one slot (≤ 1.0)
agent_cpu_s          CPU of a job that fetches 1 MB and runs `true`, all its processes (≤ 0.3)
thousand_jobs_lost   of 1,000 jobs, those that `ps` does not list as succeeded (0)
supervisor_cpu_pct   of one core, with 1,000 jobs queued, and with 1,000 jobs being run; the larger (≤ 5)
supervisor_rss_mb    the most that it had (≤ 150)
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import measure, on_pool, results
from harness.measure import print_progress
from harness.on_pool import PoolUser, SupervisorProcess
from harness.results import Bounds

from testbed.condor_config import SITES, PoolSite
from testbed.condor_pool import CondorPool
from testbed.http_server import HttpServer

BOUNDS: Bounds = {
    "submit_10k_s": ("-", 15.0),
    "job_overhead_s": ("-", 1.0),
    "agent_cpu_s": ("-", 0.3),
    "thousand_jobs_lost": ("-", 0),
    "supervisor_cpu_pct": ("-", 5.0),
    "supervisor_rss_mb": ("-", 150.0),
}
N_SEQUENTIAL_JOBS = 10  # jobs one after another
QUEUED_MEASURE_S = 30.0  # how long the supervisor of waiting jobs is looked at
TIMEOUT_S = 900.0
BARE_SUBMIT = "executable = /bin/{}\ntransfer_executable = false\noutput = plain.out\nerror = plain.err\n"
TRUE_SUBMIT, SLEEP_SUBMIT = BARE_SUBMIT.format("true"), BARE_SUBMIT.format("sleep") + "arguments = 2\n"
WORKFLOW = """name: bench
resources: {{tasks: 1, cpusPerTask: {cpus}, memPerCpu: 64, gpus: 0}}
count: {count}
{more}
steps: [{{run: {{command: {command}}}}}]
"""


def _parse_arguments() -> argparse.Namespace:
    parser = results.make_parser("packtrain on a pool", BENCHMARKS)
    parser.add_argument("--many", type=int, default=10_000, help="jobs that are only submitted")
    parser.add_argument("--jobs", type=int, default=1000, help="jobs that run")
    return parser.parse_args()


def _format_workflow(count: int, *, cpus: int = 1, more: str = "", command: str = "'true'") -> str:
    return WORKFLOW.format(count=count, cpus=cpus, more=more, command=command)


def _site_requirement(site: PoolSite) -> str:
    return f'GLIDEIN_ResourceName == "{site.name}"'


def _pin_to_site(site: PoolSite) -> str:
    return f"htcondor: {{requirements: '{_site_requirement(site)}'}}"


def measure_submit(pool: CondorPool, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """The sites take nothing meanwhile: they would be other machines."""
    person = PoolUser(pool, folder / "submit")
    with pool.override_config(START="False"):
        began = time.monotonic()
        run = person.start_run(_format_workflow(args.many))
        accepted = time.monotonic() - began
        while sum(bool(job["attempts"]) for job in person.list_jobs(run)) < args.many:
            print_progress(f"submit: {time.monotonic() - began:.1f} s")
        taken = time.monotonic() - began
        asked = time.monotonic()
        person.list_jobs(run)
        listing = time.monotonic() - asked
        _remove_all_jobs(pool)
    return {"submit_10k_s": taken, "run_command_s": accepted, "ps_10k_s": listing}


def measure_overhead(pool: CondorPool, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Both take one whole site, so that each job waits for the one before it. They work for 2 s: after a job that
    ends at once HTCondor pauses for a second, which would hide what the agent costs."""
    person, site = PoolUser(pool, folder / "overhead"), SITES[1]
    text = f"{SLEEP_SUBMIT}request_cpus = {site.cpus}\nrequirements = {_site_requirement(site)}\nqueue {N_SEQUENTIAL_JOBS}\n"
    bare = on_pool.execution_span_s(on_pool.wait_for_jobs(person.condor_submit(text), N_SEQUENTIAL_JOBS, TIMEOUT_S))
    run = person.start_run(
        _format_workflow(N_SEQUENTIAL_JOBS, cpus=site.cpus, more=_pin_to_site(site), command="sleep 2")
    )
    ours = on_pool.execution_span_s(on_pool.wait_for_jobs(person.user_log_path(run), N_SEQUENTIAL_JOBS, TIMEOUT_S))
    _check_succeeded(person.wait_for_run(run, TIMEOUT_S))
    print_progress(
        f"overhead: {N_SEQUENTIAL_JOBS} bare jobs {bare:.1f} s, {N_SEQUENTIAL_JOBS} of packtrain {ours:.1f} s"
    )
    return {"job_overhead_s": (ours - bare) / N_SEQUENTIAL_JOBS, "bare_job_s": bare / N_SEQUENTIAL_JOBS}


def measure_cpu(pool: CondorPool, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """HTCondor knows whole seconds only: a wrapper of the site takes the time. One job after another: two that share a
    core would each seem to take more of it."""
    person, times, site = PoolUser(pool, folder / "cpu"), folder / "times", SITES[1]
    for name in ("www", "times"):
        (folder / name).mkdir()
    (folder / "www/data.bin").write_bytes(os.urandom(1 << 20))
    with (
        HttpServer(folder / "www") as origin,
        pool.override_config(USER_JOB_WRAPPER=on_pool.write_job_wrapper(folder, times)),
    ):
        more = f'input: {{http: {{url: "{origin.url}/data.bin"}}}}\n{_pin_to_site(site)}'
        run = person.start_run(_format_workflow(5, cpus=site.cpus, more=more))
        _check_succeeded(person.wait_for_run(run, TIMEOUT_S))
    return {"agent_cpu_s": statistics.median(map(on_pool.parse_children_cpu_s, times.iterdir()))}


def measure_thousand_jobs(pool: CondorPool, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    person = PoolUser(pool, folder / "thousand")
    began = time.monotonic()
    on_pool.wait_for_jobs(person.condor_submit(f"{TRUE_SUBMIT}queue {args.jobs}\n"), args.jobs, TIMEOUT_S)
    bare = time.monotonic() - began
    print_progress(f"thousand: plain condor_submit took {bare:.1f} s")
    with pool.override_config(START="False"):
        run = person.start_run(_format_workflow(args.jobs))
        mine = f'PacktrainRun == "{run}" && JobUniverse == 5'
        pool.wait_for(lambda: len(pool.queue(mine, "ProcId")) == args.jobs, "not all are queued")
        supervisor = SupervisorProcess(pool)
        queued = supervisor.measure_cpu_percent(QUEUED_MEASURE_S)
    began = time.monotonic()
    running = supervisor.measure_cpu_percent(TIMEOUT_S)
    ours = time.monotonic() - began
    print_progress(
        f"thousand: packtrain took {ours:.1f} s; the supervisor {queued:.1f}% queued, {running:.1f}% running"
    )
    done = sum(job["status"] == "succeeded" for job in person.list_jobs(run))
    return {
        "thousand_jobs_lost": args.jobs - done,
        "thousand_jobs_s": ours,
        "thousand_plain_s": bare,
        "supervisor_cpu_pct": max(queued, running),
        "supervisor_cpu_queued_pct": queued,
        "supervisor_cpu_running_pct": running,
        "supervisor_rss_mb": supervisor.peak_mb,
    }


def _check_succeeded(jobs: Sequence[Mapping[str, Any]]) -> None:
    """Jobs that fail are quick: then there is nothing to measure."""
    if failed := [job for job in jobs if job["status"] != "succeeded"]:
        raise SystemExit(f"{len(failed)} of {len(jobs)} jobs did not succeed; the first: {failed[0]}")


def _remove_all_jobs(pool: CondorPool) -> None:
    """Everything from the queue, whoever objects."""
    for option in ((), ("-forcex",)):
        pool.run_as_user(["condor_rm", *option, "-constraint", "true"], check=False)
    pool.wait_for(lambda: not pool.queue("true", "ClusterId"), "jobs stay in the queue")


BENCHMARKS: dict[str, Callable[[CondorPool, Path, argparse.Namespace], dict[str, float]]] = {
    "submit": measure_submit,
    "overhead": measure_overhead,
    "cpu": measure_cpu,
    "thousand": measure_thousand_jobs,
}


def main() -> None:
    given = _parse_arguments()
    measure.exit_on_sigterm()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="packtrain-bench-") as folder, CondorPool(Path(folder) / "pool") as pool:
        for part in given.only:
            print_progress(f"{part}…")
            figures |= BENCHMARKS[part](pool, Path(folder), given)
    results.report_results("htcondor", given, figures, BOUNDS, many=given.many, jobs=given.jobs)


if __name__ == "__main__":
    main()
