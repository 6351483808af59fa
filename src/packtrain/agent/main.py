"""The agent's command line. It imports little, so that the first event is written right after the start.

python3 -I -S agent.pyz PLAN.json [--job ID] [--attempt-id ID] [--attempt-folder FOLDER] [--scratch FOLDER]
                                  [--secrets FOLDER] [--site NAME|auto] [--cache FOLDER [--cache-limit BYTES]]
                                  [--reuse-folder FOLDER] [--deadline UNIX_TIME|auto] [--live-interval SECONDS]
                                  [--in-container]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain import __version__
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stop_request import StopRequest
from packtrain.errors import FormatError
from packtrain.events import FAILURE_KINDS, Event, Journal, kinds, new_emitter_id
from packtrain.plan import AttemptFolder, Job, Plan, read_plan
from packtrain.plan.claim import acquire_claim
from packtrain.plan.local_inputs import resolve_local_inputs

if TYPE_CHECKING:
    from packtrain.agent.condor_slot import CondorSlot
    from packtrain.agent.context import EngineOptions
    from packtrain.transfer.cache import DownloadCache

_AUTO = "auto"


def main(argv: list[str]) -> int:
    """Run the job that the arguments name and return the agent's exit code."""
    started_at = time.monotonic()
    options = _parse_arguments(argv)
    attempt_folder = AttemptFolder(options.attempt_folder.absolute())
    claim_fd = acquire_claim(attempt_folder.claim)
    if claim_fd is None:
        return _report_failure(
            "already_claimed", f"the attempt {attempt_folder.root} was already started by another process"
        )
    stop = StopRequest()
    stop.install_signal_handlers()
    try:
        plan = read_plan(options.plan)
        job = resolve_local_inputs(choose_job(plan, options.job), attempt_folder.root)
    except FormatError as error:
        return _report_failure("plan_unreadable", str(error))
    secrets = Secrets((options.secrets or options.plan.parent / "secrets").absolute())
    journal = Journal(attempt_folder.journal, plan.run, job.id, new_emitter_id("agent"), secrets.redactor)
    slot = _read_slot()
    start_event = _emit_started(journal, options, slot)
    secrets.redact_condor_tokens(os.environ)
    # Importing the other modules takes longer than everything above, so the first event does not wait for it.
    from packtrain.agent.attempt import run_attempt

    sandbox = Sandbox(_sandbox_root(options, attempt_folder, journal.emitter), attempt_folder)
    job = job if slot is None else _limit_grace(job, slot)
    engine_options = _engine_options(options, slot, _host_speeds(plan, str(start_event.data["site"])))
    return run_attempt(job, sandbox, journal, secrets, stop, claim_fd, started_at, engine_options, start_event)


def _host_speeds(plan: Plan, site: str) -> dict[str, float]:
    """Return bytes per second by host: as measured at this site, or at any site where this one has no figure."""
    return {
        speed.host: speed.bytes_per_s
        for measured_at in ("", site)
        for speed in plan.host_speeds
        if speed.site == measured_at
    }


def _read_slot() -> CondorSlot | None:
    """Return the HTCondor slot that the agent runs in, or None outside of HTCondor."""
    if "_CONDOR_JOB_AD" not in os.environ and "_CONDOR_MACHINE_AD" not in os.environ:
        return None
    from packtrain.agent.condor_slot import CondorSlot

    return CondorSlot()


def _limit_grace(job: Job, slot: CondorSlot) -> Job:
    return replace(job, limits=replace(job.limits, grace_s=slot.grace_s(job.limits.grace_s)))


def _engine_options(
    options: argparse.Namespace, slot: CondorSlot | None, host_speeds: dict[str, float]
) -> EngineOptions:
    from packtrain.agent.context import EngineOptions

    deadline = options.deadline
    return EngineOptions(
        download_cache=_open_download_cache(options),
        reuse_folder=options.reuse_folder.absolute() if options.reuse_folder else None,
        deadline_at=(slot.deadline_at() if slot else None) if deadline == _AUTO else deadline,
        transfers_checkpoints=slot is not None and slot.transfers_checkpoints,
        in_container=options.in_container,
        live_interval_s=options.live_interval,
        host_speeds=host_speeds,
    )


def _open_download_cache(options: argparse.Namespace) -> DownloadCache | None:
    if not options.cache:
        return None
    from packtrain.transfer.cache import DEFAULT_MAX_BYTES, DownloadCache

    return DownloadCache(options.cache.absolute(), options.cache_limit or DEFAULT_MAX_BYTES)


def _sandbox_root(options: argparse.Namespace, attempt_folder: AttemptFolder, emitter: str) -> Path:
    scratch: Path | None = options.scratch
    return scratch.absolute() / f"packtrain-{emitter}" if scratch else attempt_folder.sandbox


def _parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="agent.pyz", description="Run one job of a packtrain plan.")
    parser.add_argument("plan", type=Path, help="the plan, a JSON file")
    parser.add_argument("--job", help="id of the job to run; optional if the plan has only one job")
    parser.add_argument("--attempt-id", default="manual", help="id of the attempt, JOB-N")
    parser.add_argument(
        "--attempt-folder",
        type=Path,
        default=Path("packtrain-attempt"),
        help="folder for the journal, logs and outputs; it is not removed",
    )
    parser.add_argument(
        "--scratch", type=Path, help="folder in which to create the sandbox (default: the attempt folder)"
    )
    parser.add_argument("--secrets", type=Path, help="folder of secret files (default: `secrets` next to the plan)")
    parser.add_argument(
        "--site", default="", help="name of the site that runs the attempt; auto: read it from the machine's ClassAd"
    )
    parser.add_argument("--cache", type=Path, help="download cache that jobs on this machine share")
    parser.add_argument("--cache-limit", type=int, help="maximum size of the download cache, in bytes")
    parser.add_argument(
        "--reuse-folder", type=Path, help="folder that keeps the inputs when the job resumes in place (exit code 85)"
    )
    parser.add_argument(
        "--deadline", type=_parse_deadline, help="when the engine ends the attempt: seconds since 1970, or auto"
    )
    parser.add_argument(
        "--live-interval",
        type=float,
        default=0.0,
        help="minimum time between progress reports over Chirp, in seconds (default: 0, no reports)",
    )
    parser.add_argument("--in-container", action="store_true", help="the agent itself runs in the steps' image")
    parser.add_argument("--version", action="version", version=__version__)
    return parser.parse_args(argv)


def _parse_deadline(text: str) -> float | str:
    return _AUTO if text == _AUTO else float(text)


def choose_job(plan: Plan, job_id: str | None) -> Job:
    """Return the job with this id, or the only job of the plan. Raises FormatError."""
    matches = [job for job in plan.jobs if job_id is None or job.id == job_id]
    if len(matches) != 1:
        first_ids = ", ".join(job.id for job in plan.jobs[:10])
        raise FormatError(
            f"the plan has {len(matches)} jobs for `--job {job_id or ''}`, not one; its first jobs are {first_ids}"
        )
    return matches[0]


def _report_failure(kind: str, detail: str) -> int:
    sys.stderr.write(f"packtrain: {detail}\n")
    return FAILURE_KINDS[kind].exit_code


def _emit_started(journal: Journal, options: argparse.Namespace, slot: CondorSlot | None) -> Event:
    site = (slot.site if slot else "") if options.site == _AUTO else options.site
    return journal.emit(
        kinds.AGENT_STARTED,
        attempt=options.attempt_id,
        host=os.uname().nodename,
        pid=os.getpid(),
        site=site,
        version=__version__,
        python=sys.version.split()[0],
    )
