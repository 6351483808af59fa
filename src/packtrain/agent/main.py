"""The agent's command line. It imports little, so that the first event is written right after the start.

python3 -I -S agent.pyz PLAN.json [--job ID] [--attempt-id ID] [--attempt-folder FOLDER] [--execution N]
                                  [--scratch FOLDER] [--secrets FOLDER] [--site NAME|auto]
                                  [--cache FOLDER [--cache-limit BYTES]] [--reuse-folder FOLDER]
                                  [--deadline UNIX_TIME|auto] [--announced SECONDS] [--kill-wait SECONDS]
                                  [--live-interval SECONDS] [--in-container]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packtrain import __version__
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stop_request import StopRequest
from packtrain.errors import EXIT_OK, EXIT_RESUME_IN_PLACE, FormatError
from packtrain.events import FAILURE_KINDS, Event, Journal, JournalReader, kinds, new_emitter_id
from packtrain.plan import AttemptFolder, Job, Plan, read_plan
from packtrain.plan.claim import acquire_claim, hand_over_claim
from packtrain.plan.local_inputs import resolve_local_inputs

if TYPE_CHECKING:
    from packtrain.agent.condor_slot import CondorSlot
    from packtrain.agent.context import AttemptContext
    from packtrain.agent.live.reporter import LiveReporter
    from packtrain.transfer.cache import DownloadCache

_AUTO = "auto"
_REPORT_TIME_S = 5.0  # for the agent's report after the steps have ended


def main(argv: list[str]) -> int:
    """Run the job that the arguments name and return the agent's exit code."""
    started_at = time.monotonic()
    options = _parse_arguments(argv)
    attempt_folder = AttemptFolder(options.attempt_folder)
    claim_fd = acquire_claim(attempt_folder.execution_claim(options.execution))
    if claim_fd is None:
        return _report_failure(
            "already_claimed", f"the attempt {attempt_folder.root} was already started by another process"
        )
    stop = StopRequest(options.announced)
    stop.install_signal_handlers()
    try:
        plan = read_plan(options.plan)
        job = resolve_local_inputs(choose_job(plan, options.job), attempt_folder.root)
    except FormatError as error:
        return _report_failure("plan_unreadable", str(error))
    exit_code = _run_job(options, plan, job, attempt_folder, claim_fd, stop, started_at)
    if exit_code == EXIT_RESUME_IN_PLACE:
        hand_over_claim(claim_fd)
    return exit_code


def _run_job(
    options: argparse.Namespace,
    plan: Plan,
    job: Job,
    attempt_folder: AttemptFolder,
    claim_fd: int,
    stop: StopRequest,
    started_at: float,
) -> int:
    secrets = Secrets(options.secrets or options.plan.parent / "secrets")
    journal = Journal(attempt_folder.journal, plan.run, job.id, new_emitter_id("agent"), secrets.redactor)
    slot = _read_slot()
    start_event = _emit_started(journal, options, slot)
    if options.execution > 1 and (earlier_end := _find_success(attempt_folder.journal)):
        journal.emit(kinds.AGENT_ENDED, **earlier_end)
        return EXIT_OK
    secrets.redact_condor_tokens(os.environ)
    # Importing the other modules takes longer than everything above, so the first event does not wait for it.
    import logging

    from packtrain.agent.agent_log import AgentLog, WarningHandler
    from packtrain.agent.attempt import AttemptRunner
    from packtrain.agent.context import AttemptContext, has_checkpoint_store
    from packtrain.agent.processes.guard import Guard
    from packtrain.agent.processes.process_table import ProcessTable
    from packtrain.transfer.engine.source_stats import set_expected_speeds

    guard = Guard.start((claim_fd,))  # it forks, so no thread may run yet
    job = _limit_grace(job, slot, options.kill_wait)
    sandbox = Sandbox(_sandbox_root(options, journal.emitter), attempt_folder)
    moves_checkpoint = slot is not None and slot.transfers_checkpoints
    needs_checkpoint = moves_checkpoint and job.checkpoint is not None and not has_checkpoint_store(job)
    log = AgentLog(attempt_folder.agent_log, secrets.redactor)
    logging.getLogger("packtrain").addHandler(WarningHandler(log))
    context = AttemptContext(
        job,
        sandbox,
        journal,
        log,
        secrets,
        stop,
        ProcessTable(guard, job.limits.grace_s),
        _open_download_cache(options),
        reuse_folder=options.reuse_folder or (sandbox.reuse_folder if moves_checkpoint else None),
        deadline_at=_engine_deadline(slot) if options.deadline == _AUTO else options.deadline,
        transferred_checkpoint=attempt_folder.checkpoint if needs_checkpoint else None,
        in_container=options.in_container,
        started_at=started_at,
    )
    set_expected_speeds(_host_speeds(plan, str(start_event.data["site"])))
    if options.scratch:
        _use_scratch(context, options)
    live = _start_live_reporter(context, start_event, options.live_interval)
    exit_code = AttemptRunner(context).run()
    guard.quit()
    if live is not None:
        live.stop()
    return exit_code


def _sandbox_root(options: argparse.Namespace, emitter: str) -> Path:
    if not options.scratch:
        return AttemptFolder(options.attempt_folder).sandbox
    from packtrain.agent.abandoned_sandboxes import SANDBOX_PREFIX

    return Path(options.scratch / f"{SANDBOX_PREFIX}{emitter}")


def _use_scratch(context: AttemptContext, options: argparse.Namespace) -> None:
    """Mark the sandbox as this execution's, and remove those that killed agents left in the scratch folder."""
    from packtrain.agent.abandoned_sandboxes import remove_abandoned_sandboxes, write_owner

    try:
        write_owner(context.sandbox.root, context.sandbox.attempt_folder.execution_claim(options.execution))
        for path in remove_abandoned_sandboxes(options.scratch):
            context.emit_notice("probe", f"removed {path}, which a killed agent had left")
    except OSError as error:  # the probe reports an unusable folder
        context.log.write(f"the scratch folder {options.scratch}: {error}")


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


def _engine_deadline(slot: CondorSlot | None) -> float | None:
    """Return when HTCondor or Slurm ends the job, in seconds since 1970, or None if that is unknown."""
    end_time = os.environ.get("SLURM_JOB_END_TIME", "")
    return slot.deadline_at() if slot else float(end_time) if end_time.isdigit() else None


def _limit_grace(job: Job, slot: CondorSlot | None, kill_wait_s: float) -> Job:
    """Return the job with a grace period that ends before the pool kills the agent."""
    grace_s = slot.grace_s(job.limits.grace_s) if slot else job.limits.grace_s
    if kill_wait_s:
        grace_s = min(grace_s, max(kill_wait_s / 2, kill_wait_s - _REPORT_TIME_S))
    return replace(job, limits=replace(job.limits, grace_s=grace_s))


def _find_success(journal: Path) -> dict[str, Any] | None:
    """Return the data of the event with which an earlier execution of the attempt reported its success.

    A pool may restart an attempt that has just succeeded, for example because it preempts the job at that moment.
    """
    ends = (event.data for event in JournalReader(journal).read() if event.kind == kinds.AGENT_ENDED)
    return next((dict(data) for data in ends if data.get("outcome") == "succeeded"), None)


def _start_live_reporter(context: AttemptContext, start_event: Event, min_interval_s: float) -> LiveReporter | None:
    """Start reporting progress over Chirp. Return None if it is switched off or there is no Chirp proxy."""
    if not min_interval_s:
        return None
    from packtrain.agent.live.chirp import find_config
    from packtrain.agent.live.reporter import LiveReporter, chirp_connector

    config = find_config(os.environ)
    if config is None:
        context.log.write("live: there is no Chirp proxy; progress is visible only after the journal is retrieved")
        return None
    logs = context.sandbox.attempt_folder.logs
    live = LiveReporter(chirp_connector(config), min_interval_s, logs, context.log.write)
    live.on_event(start_event)
    context.journal.set_listener(live.on_event)
    return live.start()


def _open_download_cache(options: argparse.Namespace) -> DownloadCache | None:
    if not options.cache:
        return None
    from packtrain.transfer.cache import DEFAULT_MAX_BYTES, DownloadCache

    return DownloadCache(options.cache, options.cache_limit or DEFAULT_MAX_BYTES)


def _parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="agent.pyz", description="Run one job of a packtrain plan.")
    parser.add_argument("plan", type=_absolute_path, help="the plan, a JSON file")
    parser.add_argument("--job", help="id of the job to run; optional if the plan has only one job")
    parser.add_argument("--attempt-id", default="manual", help="id of the attempt, JOB-N")
    parser.add_argument(
        "--attempt-folder",
        type=_absolute_path,
        default="packtrain-attempt",
        help="folder for the journal, logs and outputs; it is not removed",
    )
    parser.add_argument(
        "--execution", type=int, default=1, help="number of the execution, if the engine restarts attempts"
    )
    parser.add_argument(
        "--scratch", type=_absolute_path, help="folder in which to create the sandbox (default: the attempt folder)"
    )
    parser.add_argument(
        "--secrets", type=_absolute_path, help="folder of secret files (default: `secrets` next to the plan)"
    )
    parser.add_argument(
        "--site", default="", help="name of the site that runs the attempt; auto: read it from the machine's ClassAd"
    )
    parser.add_argument("--cache", type=_absolute_path, help="download cache that jobs on this machine share")
    parser.add_argument("--cache-limit", type=int, help="maximum size of the download cache, in bytes")
    parser.add_argument(
        "--reuse-folder",
        type=_absolute_path,
        help="folder that keeps the inputs when the job resumes in place (exit code 85)",
    )
    parser.add_argument(
        "--deadline", type=_parse_deadline, help="when the engine ends the attempt: seconds since 1970, or auto"
    )
    parser.add_argument(
        "--announced", type=float, default=0.0, help="how long before the end SIGUSR1 announces it, in seconds"
    )
    parser.add_argument(
        "--kill-wait", type=float, default=0.0, help="time between the engine's SIGTERM and SIGKILL, in seconds"
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


def _absolute_path(text: str) -> Path:
    return Path(text).absolute()


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
