"""The command of a job: the program, its arguments, its variables."""

from __future__ import annotations

import re
import shlex
from typing import Any

from packtrain.condor.submitfile.file_transfer import WORK, last_of
from packtrain.condor.submitfile.macros import MARK, MacroError
from packtrain.condor.submitfile.parsed_submit import Draft, Told
from packtrain.condor.submitfile.quoting import QuotingError, shell_word, split_arguments, split_environment
from packtrain.spec.secret_references import has_reference

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_BY_ENV = ("PATH", "LD_LIBRARY_PATH")
_OF_RUN = {"job": "PACKTRAIN_JOB", "run": "PACKTRAIN_RUN"}


def put_program(told: Told, draft: Draft) -> dict[str, Any]:
    """The workflow's variables and its one step; the step's `run` is returned for what follows."""
    exports = _put_environment(told, draft)
    run: dict[str, Any] = {"command": _command(told, exports), "workDir": WORK}
    gpus = draft.value["resources"]["gpus"]  # type: ignore[index]
    share = {"resources": {"gpusPerTask": gpus}} if gpus else {}
    step: dict[str, Any] = {"name": _step_name(told), **share, "run": run}
    draft.put(("steps",), [step], told.place("executable"))
    return run


def _step_name(told: Told) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", last_of(told.jobs.of_each(told.template("executable"))[0]))
    return name.strip("-.") or "program"


def _command(told: Told, exports: list[str]) -> str:
    if not told.has("executable"):
        told.error("executable", "there is no executable", "name the program: executable = run.sh")
    executable = told.template("executable")
    lines = ['export _CONDOR_SCRATCH_DIR="$PWD"', *exports]
    if told.flag("transfer_executable", True):
        program = _word(told, f"./{last_of(executable)}")
        lines.append(f"chmod +x {program}")
    else:
        program = _word(told, executable)
    words = ["exec", program, *_arguments(told)]
    if told.has("input") and told.template("input") != "/dev/null":
        words += ["<", _word(told, last_of(told.template("input")))]
    return "\n".join([*lines, " ".join(words)]) + "\n"


def _word(told: Told, template: str) -> str:
    return shell_word(template, _variable, told.jobs.fields)


def _variable(name: str) -> str:
    """As the agent names it for the steps."""
    return _OF_RUN.get(name) or "PACKTRAIN_POINT_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def _arguments(told: Told) -> list[str]:
    """Words with variables in them, if that is what each job would get; else the words of each job, quoted."""
    raw = told.raw("arguments")
    try:
        symbolic = _split_or_nothing(told.template("arguments"))
        lists = [split_arguments(told.jobs.concrete(raw, job)) for job in range(len(told.jobs))]
        if symbolic is not None and list(zip(*map(told.jobs.of_each, symbolic), strict=True)) == [
            tuple(each) for each in lists if symbolic
        ]:
            return [_word(told, template) for template in symbolic]
        return [_as_written(told, lists)]
    except (MacroError, QuotingError) as error:
        told.error("arguments", f"arguments: {error}")
        return []


def _split_or_nothing(template: str) -> list[str] | None:
    try:
        return split_arguments(template)
    except QuotingError:
        return None


def _as_written(told: Told, lists: list[list[str]]) -> str:
    joined = [MARK.sub('"$PACKTRAIN_RUN"', shlex.join(each)) if not _has_mark(each) else "" for each in lists]
    if any(map(_has_mark, lists)):
        raise MacroError("the run's name together with a list of arguments in one value is too much")
    return MARK.sub(lambda found: f"{{{found.group(1)}}}", told.jobs.column("arguments", joined))


def _has_mark(words: list[str]) -> bool:
    return any(MARK.search(word) for word in words)


def _put_environment(told: Told, draft: Draft) -> list[str]:
    """What `env` cannot say is exported by the command itself."""
    if told.has("getenv") and told.fixed("getenv").lower() not in ("false", "no", "f", "0"):
        draft.put(("htcondor", "getenv"), told.fixed("getenv"), told.place("getenv"))
        told.warning("getenv", "getenv counts in a pool only: here, jobs see few of your variables", "use environment")
    try:
        variables = split_environment(told.template("environment"))
    except QuotingError as error:
        told.error("environment", str(error))
        return []
    plain: list[dict[str, str]] = []
    exports: list[str] = []
    for key, value in variables:
        if not _IDENTIFIER.fullmatch(key):
            told.error("environment", f"environment: {key[:40]!r} cannot be the name of a variable")
        elif key in _NOT_BY_ENV or has_reference(value) or any(f"{{{f}}}" in value for f in told.jobs.fields):
            exports.append(f"export {key}={_word(told, value)}")
        else:
            plain.append({"key": key, "value": told.braces("environment", value)})
    if plain:
        draft.put(("env",), plain, told.place("environment"))
    return exports
