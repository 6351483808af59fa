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
from harness.measure import tell
from harness.on_pool import Person, Supervisor
from harness.results import Bounds

from testbed.condor_config import SITES, Site
from testbed.condor_pool import Pool
from testbed.http_server import Origin

BOUNDS: Bounds = {
    "submit_10k_s": ("-", 15.0),
    "job_overhead_s": ("-", 1.0),
    "agent_cpu_s": ("-", 0.3),
    "thousand_jobs_lost": ("-", 0),
    "supervisor_cpu_pct": ("-", 5.0),
    "supervisor_rss_mb": ("-", 150.0),
}
IN_A_ROW = 10  # jobs one after another
QUEUED_S = 30.0  # how long the supervisor of waiting jobs is looked at
CAP_S = 900.0
BARE = "executable = /bin/{}\ntransfer_executable = false\noutput = plain.out\nerror = plain.err\n"
TRUE, SLEEP = BARE.format("true"), BARE.format("sleep") + "arguments = 2\n"
WORKFLOW = """name: bench
resources: {{tasks: 1, cpusPerTask: {cpus}, memPerCpu: 64, gpus: 0}}
count: {count}
{more}
steps: [{{run: {{command: {command}}}}}]
"""


def _arguments() -> argparse.Namespace:
    parser = results.parser("packtrain on a pool", PARTS)
    parser.add_argument("--many", type=int, default=10_000, help="jobs that are only submitted")
    parser.add_argument("--jobs", type=int, default=1000, help="jobs that run")
    return parser.parse_args()


def _workflow(count: int, *, cpus: int = 1, more: str = "", command: str = "'true'") -> str:
    return WORKFLOW.format(count=count, cpus=cpus, more=more, command=command)


def _there(site: Site) -> str:
    return f'GLIDEIN_ResourceName == "{site.name}"'


def _only_at(site: Site) -> str:
    return f"htcondor: {{requirements: '{_there(site)}'}}"


def submit(pool: Pool, folder: Path, given: argparse.Namespace) -> dict[str, float]:
    """The sites take nothing meanwhile: they would be other machines."""
    person = Person(pool, folder / "submit")
    with pool.configured(START="False"):
        began = time.monotonic()
        run = person.start(_workflow(given.many))
        accepted = time.monotonic() - began
        while sum(bool(job["attempts"]) for job in person.jobs(run)) < given.many:
            tell(f"submit: {time.monotonic() - began:.1f} s")
        taken = time.monotonic() - began
        asked = time.monotonic()
        person.jobs(run)
        listing = time.monotonic() - asked
        _remove(pool)
    return {"submit_10k_s": taken, "run_command_s": accepted, "ps_10k_s": listing}


def overhead(pool: Pool, folder: Path, given: argparse.Namespace) -> dict[str, float]:
    """Both take one whole site, so that each job waits for the one before it. They work for 2 s: after a job that
    ends at once HTCondor pauses for a second, which would hide what the agent costs."""
    person, site = Person(pool, folder / "overhead"), SITES[1]
    text = f"{SLEEP}request_cpus = {site.cpus}\nrequirements = {_there(site)}\nqueue {IN_A_ROW}\n"
    bare = on_pool.span(on_pool.await_ends(person.submit(text), IN_A_ROW, CAP_S))
    run = person.start(_workflow(IN_A_ROW, cpus=site.cpus, more=_only_at(site), command="sleep 2"))
    ours = on_pool.span(on_pool.await_ends(person.user_log(run), IN_A_ROW, CAP_S))
    _check(person.await_end(run, CAP_S))
    tell(f"overhead: {IN_A_ROW} bare jobs {bare:.1f} s, {IN_A_ROW} of packtrain {ours:.1f} s")
    return {"job_overhead_s": (ours - bare) / IN_A_ROW, "bare_job_s": bare / IN_A_ROW}


def cpu(pool: Pool, folder: Path, given: argparse.Namespace) -> dict[str, float]:
    """HTCondor knows whole seconds only: a wrapper of the site takes the time. One job after another: two that share a
    core would each seem to take more of it."""
    person, times, site = Person(pool, folder / "cpu"), folder / "times", SITES[1]
    for name in ("www", "times"):
        (folder / name).mkdir()
    (folder / "www/data.bin").write_bytes(os.urandom(1 << 20))
    with Origin(folder / "www") as origin, pool.configured(USER_JOB_WRAPPER=on_pool.write_wrapper(folder, times)):
        more = f'input: {{http: {{url: "{origin.url}/data.bin"}}}}\n{_only_at(site)}'
        run = person.start(_workflow(5, cpus=site.cpus, more=more))
        _check(person.await_end(run, CAP_S))
    return {"agent_cpu_s": statistics.median(map(on_pool.cpu_of_children, times.iterdir()))}


def thousand(pool: Pool, folder: Path, given: argparse.Namespace) -> dict[str, float]:
    person = Person(pool, folder / "thousand")
    began = time.monotonic()
    on_pool.await_ends(person.submit(f"{TRUE}queue {given.jobs}\n"), given.jobs, CAP_S)
    bare = time.monotonic() - began
    tell(f"thousand: plain condor_submit took {bare:.1f} s")
    with pool.configured(START="False"):
        run = person.start(_workflow(given.jobs))
        mine = f'PacktrainRun == "{run}" && JobUniverse == 5'
        pool.await_some(lambda: len(pool.queue(mine, "ProcId")) == given.jobs, "not all are queued")
        supervisor = Supervisor(pool)
        queued = supervisor.share(QUEUED_S)
    began = time.monotonic()
    running = supervisor.share(CAP_S)
    ours = time.monotonic() - began
    tell(f"thousand: packtrain took {ours:.1f} s; the supervisor {queued:.1f}% queued, {running:.1f}% running")
    done = sum(job["status"] == "succeeded" for job in person.jobs(run))
    return {
        "thousand_jobs_lost": given.jobs - done,
        "thousand_jobs_s": ours,
        "thousand_plain_s": bare,
        "supervisor_cpu_pct": max(queued, running),
        "supervisor_cpu_queued_pct": queued,
        "supervisor_cpu_running_pct": running,
        "supervisor_rss_mb": supervisor.peak_mb,
    }


def _check(jobs: Sequence[Mapping[str, Any]]) -> None:
    """Jobs that fail are quick: then there is nothing to measure."""
    if failed := [job for job in jobs if job["status"] != "succeeded"]:
        raise SystemExit(f"{len(failed)} of {len(jobs)} jobs did not succeed; the first: {failed[0]}")


def _remove(pool: Pool) -> None:
    """Everything from the queue, whoever objects."""
    for option in ((), ("-forcex",)):
        pool.run(["condor_rm", *option, "-constraint", "true"], check=False)
    pool.await_some(lambda: not pool.queue("true", "ClusterId"), "jobs stay in the queue")


PARTS: dict[str, Callable[[Pool, Path, argparse.Namespace], dict[str, float]]] = {
    "submit": submit,
    "overhead": overhead,
    "cpu": cpu,
    "thousand": thousand,
}


def main() -> None:
    given = _arguments()
    measure.leave_in_order()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="packtrain-bench-") as folder, Pool(Path(folder) / "pool") as pool:
        for part in given.only:
            tell(f"{part}…")
            figures |= PARTS[part](pool, Path(folder), given)
    results.give("htcondor", given, figures, BOUNDS, many=given.many, jobs=given.jobs)


if __name__ == "__main__":
    main()
