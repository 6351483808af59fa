"""The command of a job: the program, its arguments, its variables."""

from __future__ import annotations

import re
import shlex
from typing import Any

from packtrain.condor.submitfile.file_transfer import WORK_DIR, base_name
from packtrain.condor.submitfile.macros import PLACEHOLDER, MacroError
from packtrain.condor.submitfile.parsed_submit import ParsedSubmit, WorkflowDraft
from packtrain.condor.submitfile.quoting import QuotingError, quote_for_shell, split_arguments, split_environment
from packtrain.spec.secret_references import has_reference

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXPORTED_NAMES = ("PATH", "LD_LIBRARY_PATH")
_RUN_VARIABLES = {"job": "PACKTRAIN_JOB", "run": "PACKTRAIN_RUN"}


def add_program(submit: ParsedSubmit, draft: WorkflowDraft) -> dict[str, Any]:
    """The workflow's variables and its one step; the step's `run` is returned for what follows."""
    exports = _add_environment(submit, draft)
    run: dict[str, Any] = {"command": _build_command(submit, exports), "workDir": WORK_DIR}
    gpus = draft.document["resources"]["gpus"]  # type: ignore[index]
    share = {"resources": {"gpusPerTask": gpus}} if gpus else {}
    step: dict[str, Any] = {"name": _step_name(submit), **share, "run": run}
    draft.set_value(("steps",), [step], submit.position("executable"))
    return run


def _step_name(submit: ParsedSubmit) -> str:
    name = re.sub(
        r"[^A-Za-z0-9._-]+", "-", base_name(submit.job_table.values_per_job(submit.template("executable"))[0])
    )
    return name.strip("-.") or "program"


def _build_command(submit: ParsedSubmit, exports: list[str]) -> str:
    if not submit.has("executable"):
        submit.error("executable", "there is no executable", "name the program: executable = run.sh")
    executable = submit.template("executable")
    lines = ['export _CONDOR_SCRATCH_DIR="$PWD"', *exports]
    if submit.flag("transfer_executable", True):
        program = _quote_template(submit, f"./{base_name(executable)}")
        lines.append(f"chmod +x {program}")
    else:
        program = _quote_template(submit, executable)
    words = ["exec", program, *_shell_arguments(submit)]
    if submit.has("input") and submit.template("input") != "/dev/null":
        words += ["<", _quote_template(submit, base_name(submit.template("input")))]
    return "\n".join([*lines, " ".join(words)]) + "\n"


def _quote_template(submit: ParsedSubmit, template: str) -> str:
    return quote_for_shell(template, _variable_name, submit.job_table.template_fields)


def _variable_name(name: str) -> str:
    """As the agent names it for the steps."""
    return _RUN_VARIABLES.get(name) or "PACKTRAIN_POINT_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def _shell_arguments(submit: ParsedSubmit) -> list[str]:
    """Words with variables in them, if that is what each job would get; else the words of each job, quoted."""
    raw = submit.raw_value("arguments")
    try:
        symbolic = _try_split_arguments(submit.template("arguments"))
        lists = [split_arguments(submit.job_table.value_for_job(raw, job)) for job in range(len(submit.job_table))]
        if symbolic is not None and list(zip(*map(submit.job_table.values_per_job, symbolic), strict=True)) == [
            tuple(each) for each in lists if symbolic
        ]:
            return [_quote_template(submit, template) for template in symbolic]
        return [_arguments_column(submit, lists)]
    except (MacroError, QuotingError) as error:
        submit.error("arguments", f"arguments: {error}")
        return []


def _try_split_arguments(template: str) -> list[str] | None:
    try:
        return split_arguments(template)
    except QuotingError:
        return None


def _arguments_column(submit: ParsedSubmit, lists: list[list[str]]) -> str:
    joined = [
        PLACEHOLDER.sub('"$PACKTRAIN_RUN"', shlex.join(each)) if not _has_placeholder(each) else "" for each in lists
    ]
    if any(map(_has_placeholder, lists)):
        raise MacroError("the run's name together with a list of arguments in one value is too much")
    return PLACEHOLDER.sub(lambda found: f"{{{found.group(1)}}}", submit.job_table.column_template("arguments", joined))


def _has_placeholder(arguments: list[str]) -> bool:
    return any(PLACEHOLDER.search(word) for word in arguments)


def _add_environment(submit: ParsedSubmit, draft: WorkflowDraft) -> list[str]:
    """What `env` cannot say is exported by the command itself."""
    if submit.has("getenv") and submit.common_value("getenv").lower() not in ("false", "no", "f", "0"):
        draft.set_value(("htcondor", "getenv"), submit.common_value("getenv"), submit.position("getenv"))
        submit.warning(
            "getenv", "getenv counts in a pool only: here, jobs see few of your variables", "use environment"
        )
    try:
        variables = split_environment(submit.template("environment"))
    except QuotingError as error:
        submit.error("environment", str(error))
        return []
    plain: list[dict[str, str]] = []
    exports: list[str] = []
    for key, value in variables:
        if not _IDENTIFIER.fullmatch(key):
            submit.error("environment", f"environment: {key[:40]!r} cannot be the name of a variable")
        elif (
            key in _EXPORTED_NAMES
            or has_reference(value)
            or any(f"{{{f}}}" in value for f in submit.job_table.template_fields)
        ):
            exports.append(f"export {key}={_quote_template(submit, value)}")
        else:
            plain.append({"key": key, "value": submit.to_workflow_text("environment", value)})
    if plain:
        draft.set_value(("env",), plain, submit.position("environment"))
    return exports
