"""A stand-in for the agent in tests of engines: claims the attempt, writes a journal and exits on SIGTERM.

The "plan" that it gets contains its behavior: `succeed`, `hang` (until SIGTERM), `stubborn` (ignores SIGTERM), `deaf`
(ignores all signals), `allocate` (uses 400 MB and hangs) or `mute` (exits without a claim).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from packtrain.events import FAILURE_KINDS, Failure, Journal, Redactor, kinds
from packtrain.plan import AttemptFolder
from packtrain.plan.claim import acquire_claim


def main() -> int:
    options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    folder, behavior = Path(options["--attempt-folder"]), Path(sys.argv[1]).read_text().strip()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    if behavior == "mute":
        return FAILURE_KINDS["python_missing"].exit_code
    execution = int(options.get("--execution", "1"))
    if acquire_claim(AttemptFolder(folder).execution_claim(execution)) is None:
        return FAILURE_KINDS["already_claimed"].exit_code
    (folder / "sandbox").mkdir(exist_ok=True)
    (folder / "environment.json").write_text(json.dumps(dict(os.environ)))
    journal = Journal(folder / "journal.jsonl", "run-1", "0", f"agent-{os.getpid()}", Redactor())
    journal.emit(kinds.AGENT_STARTED, attempt=options["--attempt-id"], pid=os.getpid(), site=options["--site"])
    return _end_attempt(journal, behavior)


def _end_attempt(journal: Journal, behavior: str) -> int:
    if behavior == "succeed":
        journal.emit(kinds.AGENT_ENDED, outcome="succeeded", exit_code=0)
        return 0
    if behavior == "deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        signal.pause()
    memory = bytearray(400_000_000 if behavior == "allocate" else 0)
    signal.sigwait({signal.SIGTERM})
    del memory
    if behavior == "stubborn":
        journal.emit(kinds.NOTICE, text="SIGTERM is ignored")
        signal.sigwait({signal.SIGUSR1})
    failure = Failure.from_kind("terminated", "steps", "SIGTERM")
    journal.emit(kinds.AGENT_ENDED, outcome="failed", exit_code=failure.exit_code, failure=failure.to_data())
    return failure.exit_code


sys.exit(main())
