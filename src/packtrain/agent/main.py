"""The agent's command line. Imports little: the first event is out a moment after the start.

python3 -I -S agent.pyz PLAN.json [--job ID] [--decision ID] [--home FOLDER] [--scratch FOLDER]
                                  [--secrets FOLDER] [--site NAME] [--depot FOLDER [--depot-cap BYTES]]
                                  [--keep FOLDER] [--deadline UNIX_TIME|auto] [--live SECONDS] [--in-container]
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
from packtrain.agent.stop_request import Stop
from packtrain.errors import FormatError
from packtrain.events import FAILURE_KINDS, Event, Journal, kinds, new_emitter
from packtrain.plan import AttemptFolder, Job, Plan, read_plan
from packtrain.plan.claim import take
from packtrain.plan.local_inputs import at_home

if TYPE_CHECKING:
    from packtrain.agent.condor_slot import Slot
    from packtrain.agent.context import Terms
    from packtrain.transfer.cache import Depot

_AUTO = "auto"


def main(argv: list[str]) -> int:
    started = time.monotonic()
    options = _parse(argv)
    home = AttemptFolder(options.home.absolute())
    claim = take(home.claim)
    if claim is None:
        return _refuse("already_claimed", f"the attempt {home.root} was already started by another process")
    stop = Stop()
    stop.listen()
    try:
        plan = read_plan(options.plan)
        job = at_home(choose_job(plan, options.job), home.root)
    except FormatError as error:
        return _refuse("plan_unreadable", str(error))
    secrets = Secrets((options.secrets or options.plan.parent / "secrets").absolute())
    journal = Journal(home.journal, plan.run, job.id, new_emitter("agent"), secrets.redactor)
    slot = _slot()
    first = _tell_start(journal, options, slot)
    secrets.learn(os.environ)
    # Compiling the rest takes longer than all of the above: the first event does not wait for it.
    from packtrain.agent.attempt import run_attempt

    gc.freeze()
    gc.enable()
    box = Sandbox(_sandbox(options, home, journal.emitter), home)
    job = job if slot is None else _within_grace(job, slot)
    terms = _terms(options, slot, _speeds(plan, str(first.data["site"])))
    return run_attempt(job, box, journal, secrets, stop, claim, started, terms, first)


def _speeds(plan: Plan, site: str) -> dict[str, float]:
    """As they were seen at this site, else anywhere."""
    return {speed.host: speed.rate for where in ("", site) for speed in plan.speeds if speed.site == where}


def _slot() -> Slot | None:
    """None outside of HTCondor."""
    if "_CONDOR_JOB_AD" not in os.environ and "_CONDOR_MACHINE_AD" not in os.environ:
        return None
    from packtrain.agent.condor_slot import Slot

    return Slot()


def _within_grace(job: Job, slot: Slot) -> Job:
    return replace(job, limits=replace(job.limits, grace_s=slot.grace_s(job.limits.grace_s)))


def _terms(options: argparse.Namespace, slot: Slot | None, speeds: dict[str, float]) -> Terms:
    from packtrain.agent.context import Terms

    deadline = options.deadline
    return Terms(
        depot=_depot(options),
        keep=options.keep.absolute() if options.keep else None,
        deadline=(slot.deadline() if slot else None) if deadline == _AUTO else deadline,
        carries=slot is not None and slot.carries_checkpoints,
        in_container=options.in_container,
        live_s=options.live,
        speeds=speeds,
    )


def _depot(options: argparse.Namespace) -> Depot | None:
    if not options.depot:
        return None
    from packtrain.transfer.cache import DEFAULT_CAP, Depot

    return Depot(options.depot.absolute(), options.depot_cap or DEFAULT_CAP)


def _sandbox(options: argparse.Namespace, home: AttemptFolder, emitter: str) -> Path:
    scratch: Path | None = options.scratch
    return scratch.absolute() / f"packtrain-{emitter}" if scratch else home.sandbox


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="agent.pyz", description="Runs one attempt of one job of a packtrain plan.")
    parser.add_argument("plan", type=Path, help="the plan, a JSON file")
    parser.add_argument("--job", help="which job of the plan; may be left out if it has one only")
    parser.add_argument("--decision", default="manual", help="the id of the decision that asked for this attempt")
    parser.add_argument("--home", type=Path, default=Path("packtrain-attempt"), help="the attempt's folder; it stays")
    parser.add_argument("--scratch", type=Path, help="where the sandbox is made; by default in the attempt's folder")
    parser.add_argument("--secrets", type=Path, help="the folder of secrets; by default beside the plan")
    parser.add_argument("--site", default="", help="where the pool put this attempt; auto: as its ad says")
    parser.add_argument("--depot", type=Path, help="a folder of fetched data that jobs share")
    parser.add_argument("--depot-cap", type=int, help="how many bytes the depot may hold")
    parser.add_argument("--keep", type=Path, help="a folder where inputs stay when the job goes on in place (85)")
    parser.add_argument("--deadline", type=_time, help="when the engine ends the attempt: seconds since 1970, or auto")
    parser.add_argument("--live", type=float, default=0.0, help="tell how it goes by Chirp, every so many seconds")
    parser.add_argument("--in-container", action="store_true", help="the agent itself runs in the steps' image")
    parser.add_argument("--version", action="version", version=__version__)
    return parser.parse_args(argv)


def _time(text: str) -> float | str:
    return _AUTO if text == _AUTO else float(text)


def choose_job(plan: Plan, wanted: str | None) -> Job:
    """Raises FormatError."""
    found = [job for job in plan.jobs if wanted is None or job.id == wanted]
    if len(found) != 1:
        ids = ", ".join(job.id for job in plan.jobs[:10])
        raise FormatError(
            f"the plan has {len(found)} jobs for `--job {wanted or ''}`, not one; its first jobs are {ids}"
        )
    return found[0]


def _refuse(kind: str, detail: str) -> int:
    sys.stderr.write(f"packtrain: {detail}\n")
    return FAILURE_KINDS[kind].exit_code


def _tell_start(journal: Journal, options: argparse.Namespace, slot: Slot | None) -> Event:
    site = (slot.site if slot else "") if options.site == _AUTO else options.site
    return journal.emit(
        kinds.ATTEMPT_STARTED,
        decision=options.decision,
        host=os.uname().nodename,
        pid=os.getpid(),
        site=site,
        version=__version__,
        python=sys.version.split()[0],
    )
