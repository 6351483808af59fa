"""How a program ended, as a sentence and as the status that shells and users know."""

from __future__ import annotations

import signal

from packtrain.errors import EXIT_RESUME_IN_PLACE, FailedError

_SIGNAL_STATUS_BASE = 128  # a shell's status of a program that a signal ended: 128 + the signal's number
_SIGKILL_HINT = "often a sign of too little memory"


class StepError(FailedError):
    """A step failed. `status` is what its `catch` steps find in DEEPSQUARE_ERROR_CODE."""

    def __init__(self, kind: str, detail: str, status: int) -> None:
        super().__init__(kind, detail)
        self.status = status


class CheckpointExit(StepError):
    """A step's program saved a checkpoint and left on purpose (exit code 85)."""


def is_checkpoint_exit(error: BaseException) -> bool:
    """Whether a step ended with exit code 85, also if that came after a request to stop, which then is the error."""
    seen = (error, error.__context__)
    return any(isinstance(one, StepError) and one.status == EXIT_RESUME_IN_PLACE for one in seen)


def to_shell_status(exit_code: int) -> int:
    """As a shell would say it."""
    return exit_code if exit_code >= 0 else _SIGNAL_STATUS_BASE - exit_code


def describe_exit(exit_code: int) -> str:
    """What is said after `step "train" `."""
    if exit_code < 0:
        name = _signal_name(-exit_code)
        return f"was killed by signal {name}" + (f", {_SIGKILL_HINT}" if name == "SIGKILL" else "")
    if exit_code == _SIGNAL_STATUS_BASE + signal.SIGKILL:
        return f"ended with exit code {exit_code}: a program was killed by signal SIGKILL, {_SIGKILL_HINT}"
    return f"ended with exit code {exit_code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)
