"""The agent's command line. Imports little: the first event is out a moment after the start.

python3 -I -S agent.pyz PLAN.json [--job ID] [--attempt-id ID] [--attempt-folder FOLDER] [--scratch FOLDER]
                                  [--secrets FOLDER] [--site NAME] [--cache FOLDER [--cache-limit BYTES]]
                                  [--reuse-folder FOLDER] [--deadline UNIX_TIME|auto] [--live-interval SECONDS] [--in-container]
"""

from __future__ import annotations

import argparse
import gc
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
    started = time.monotonic()
    options = _parse_arguments(argv)
    home = AttemptFolder(options.home.absolute())
    claim = acquire_claim(home.claim)
    if claim is None:
        return _report_failure("already_claimed", f"the attempt {home.root} was already started by another process")
    stop = StopRequest()
    stop.install_signal_handlers()
    try:
        plan = read_plan(options.plan)
        job = resolve_local_inputs(choose_job(plan, options.job), home.root)
    except FormatError as error:
        return _report_failure("plan_unreadable", str(error))
    secrets = Secrets((options.secrets or options.plan.parent / "secrets").absolute())
    journal = Journal(home.journal, plan.run, job.id, new_emitter_id("agent"), secrets.redactor)
    slot = _read_slot()
    first = _emit_started(journal, options, slot)
    secrets.redact_condor_tokens(os.environ)
    # Compiling the rest takes longer than all of the above: the first event does not wait for it.
    from packtrain.agent.attempt import run_attempt

    gc.freeze()
    gc.enable()
    box = Sandbox(_sandbox_root(options, home, journal.emitter), home)
    job = job if slot is None else _limit_grace(job, slot)
    terms = _engine_options(options, slot, _host_speeds(plan, str(first.data["site"])))
    return run_attempt(job, box, journal, secrets, stop, claim, started, terms, first)


def _host_speeds(plan: Plan, site: str) -> dict[str, float]:
    """As they were seen at this site, else anywhere."""
    return {speed.host: speed.bytes_per_s for where in ("", site) for speed in plan.host_speeds if speed.site == where}


def _read_slot() -> CondorSlot | None:
    """None outside of HTCondor."""
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
        reuse_folder=options.keep.absolute() if options.keep else None,
        deadline_at=(slot.deadline_at() if slot else None) if deadline == _AUTO else deadline,
        transfers_checkpoints=slot is not None and slot.transfers_checkpoints,
        in_container=options.in_container,
        live_interval_s=options.live,
        host_speeds=host_speeds,
    )


def _open_download_cache(options: argparse.Namespace) -> DownloadCache | None:
    if not options.depot:
        return None
    from packtrain.transfer.cache import DEFAULT_MAX_BYTES, DownloadCache

    return DownloadCache(options.depot.absolute(), options.depot_cap or DEFAULT_MAX_BYTES)


def _sandbox_root(options: argparse.Namespace, attempt_folder: AttemptFolder, emitter: str) -> Path:
    scratch: Path | None = options.scratch
    return scratch.absolute() / f"packtrain-{emitter}" if scratch else attempt_folder.sandbox


def _parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="agent.pyz", description="Runs one attempt of one job of a packtrain plan.")
    parser.add_argument("plan", type=Path, help="the plan, a JSON file")
    parser.add_argument("--job", help="which job of the plan; may be left out if it has one only")
    parser.add_argument("--attempt-id", default="manual", help="the id of the decision that asked for this attempt")
    parser.add_argument(
        "--attempt-folder", type=Path, default=Path("packtrain-attempt"), help="the attempt's folder; it stays"
    )
    parser.add_argument("--scratch", type=Path, help="where the sandbox is made; by default in the attempt's folder")
    parser.add_argument("--secrets", type=Path, help="the folder of secrets; by default beside the plan")
    parser.add_argument("--site", default="", help="where the pool put this attempt; auto: as its ad says")
    parser.add_argument("--cache", type=Path, help="a folder of fetched data that jobs share")
    parser.add_argument("--cache-limit", type=int, help="how many bytes the depot may hold")
    parser.add_argument(
        "--reuse-folder", type=Path, help="a folder where inputs stay when the job goes on in place (85)"
    )
    parser.add_argument(
        "--deadline", type=_parse_deadline, help="when the engine ends the attempt: seconds since 1970, or auto"
    )
    parser.add_argument(
        "--live-interval", type=float, default=0.0, help="tell how it goes by Chirp, every so many seconds"
    )
    parser.add_argument("--in-container", action="store_true", help="the agent itself runs in the steps' image")
    parser.add_argument("--version", action="version", version=__version__)
    return parser.parse_args(argv)


def _parse_deadline(text: str) -> float | str:
    return _AUTO if text == _AUTO else float(text)


def choose_job(plan: Plan, job_id: str | None) -> Job:
    """Raises FormatError."""
    found = [job for job in plan.jobs if job_id is None or job.id == job_id]
    if len(found) != 1:
        ids = ", ".join(job.id for job in plan.jobs[:10])
        raise FormatError(
            f"the plan has {len(found)} jobs for `--job {job_id or ''}`, not one; its first jobs are {ids}"
        )
    return found[0]


def _report_failure(kind: str, detail: str) -> int:
    sys.stderr.write(f"packtrain: {detail}\n")
    return FAILURE_KINDS[kind].exit_code


def _emit_started(journal: Journal, options: argparse.Namespace, slot: CondorSlot | None) -> Event:
    site = (slot.site if slot else "") if options.site == _AUTO else options.site
    return journal.emit(
        kinds.AGENT_STARTED,
        decision=options.decision,
        host=os.uname().nodename,
        pid=os.getpid(),
        site=site,
        version=__version__,
        python=sys.version.split()[0],
    )
