"""Plays the agent for tests of an engine: claims the attempt as the real one does, writes a journal, obeys TERM.

The "plan" that it is given holds one word: succeed, hang, stubborn (TERM does not end it), mute (it never claims).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from packtrain.events import FAILURE_KINDS, Failure, Journal, Redactor, kinds
from packtrain.plan.claim import acquire_claim


def main() -> int:
    options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    home, word = Path(options["--attempt-folder"]), Path(sys.argv[1]).read_text().strip()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    if word == "mute":
        return FAILURE_KINDS["python_missing"].exit_code
    if acquire_claim(home / "claim") is None:
        return FAILURE_KINDS["already_claimed"].exit_code
    (home / "sandbox").mkdir()
    (home / "environment.json").write_text(json.dumps(dict(os.environ)))
    journal = Journal(home / "journal.jsonl", "run-1", "0", f"agent-{os.getpid()}", Redactor())
    journal.emit(kinds.AGENT_STARTED, decision=options["--attempt-id"], pid=os.getpid(), site=options["--site"])
    return _end_attempt(journal, word)


def _end_attempt(journal: Journal, behavior: str) -> int:
    if behavior == "succeed":
        journal.emit(kinds.AGENT_ENDED, outcome="succeeded", exit_code=0)
        return 0
    signal.sigwait({signal.SIGTERM})
    if behavior == "stubborn":
        journal.emit(kinds.NOTICE, text="TERM is not for me")
        signal.sigwait({signal.SIGUSR1})
    failure = Failure.from_kind("terminated", "steps", "TERM")
    journal.emit(kinds.AGENT_ENDED, outcome="failed", exit_code=failure.exit_code, failure=failure.to_data())
    return failure.exit_code


sys.exit(main())
