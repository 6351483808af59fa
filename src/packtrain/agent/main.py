"""The agent's command line. Imports little: the first event is out a moment after the start.

python3 -I -S agent.pyz PLAN.json [--job ID] [--decision ID] [--home FOLDER] [--scratch FOLDER]
                                  [--secrets FOLDER] [--site NAME] [--depot FOLDER [--depot-cap BYTES]]
                                  [--keep FOLDER] [--deadline UNIX_TIME]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from packtrain import __version__
from packtrain.agent.claim import take
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stop import Stop
from packtrain.errors import FormatError
from packtrain.events import FAILURE_KINDS, Journal, kinds, new_emitter
from packtrain.plan import AttemptFolder, Job, Plan, read_plan


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
        job = choose_job(plan, options.job)
    except FormatError as error:
        return _refuse("plan_unreadable", str(error))
    secrets = Secrets((options.secrets or options.plan.parent / "secrets").absolute())
    redactor = secrets.redactor
    journal = Journal(home.journal, plan.run, job.id, new_emitter("agent"), redactor)
    _tell_start(journal, options)
    # Compiling the rest takes longer than all of the above: the first event does not wait for it.
    from packtrain.agent.stages import run_attempt
    from packtrain.transfer.depot import DEFAULT_CAP, Depot

    box = Sandbox(_sandbox(options, home, journal.emitter), home)
    depot = Depot(options.depot.absolute(), options.depot_cap or DEFAULT_CAP) if options.depot else None
    keep = options.keep.absolute() if options.keep else None
    return run_attempt(job, box, journal, secrets, redactor, stop, claim, started, depot, keep, options.deadline)


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
    parser.add_argument("--site", default="", help="where the pool put this attempt")
    parser.add_argument("--depot", type=Path, help="a folder of fetched data that jobs share")
    parser.add_argument("--depot-cap", type=int, help="how many bytes the depot may hold")
    parser.add_argument("--keep", type=Path, help="a folder where inputs stay when the job goes on in place (85)")
    parser.add_argument("--deadline", type=float, help="when the engine ends the attempt, in seconds since 1970")
    parser.add_argument("--version", action="version", version=__version__)
    return parser.parse_args(argv)


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


def _tell_start(journal: Journal, options: argparse.Namespace) -> None:
    journal.emit(
        kinds.ATTEMPT_STARTED,
        decision=options.decision,
        host=os.uname().nodename,
        pid=os.getpid(),
        site=options.site,
        version=__version__,
        python=sys.version.split()[0],
    )
