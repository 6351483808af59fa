"""Translates the program of a job, its arguments and its environment variables."""

from __future__ import annotations

import re
import shlex
from typing import Any

from packtrain.condor.submitfile.file_transfer import WORK_DIR, base_name
from packtrain.condor.submitfile.parsed_submit import ParsedSubmit
from packtrain.condor.submitfile.syntax.macros import PLACEHOLDER, MacroError
from packtrain.condor.submitfile.syntax.quoting import QuotingError, quote_for_shell, split_arguments, split_environment
from packtrain.spec.converted_file import WorkflowDraft
from packtrain.spec.secret_references import has_reference

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXPORTED_NAMES = ("PATH", "LD_LIBRARY_PATH")
_RUN_VARIABLES = {"job": "PACKTRAIN_JOB", "run": "PACKTRAIN_RUN"}


def add_program(submit: ParsedSubmit, draft: WorkflowDraft) -> dict[str, Any]:
    """Add the variables and the only step to the workflow, and return the step's `run` document."""
    exports = _add_environment(submit, draft)
    run: dict[str, Any] = {"command": _build_command(submit, exports), "workDir": WORK_DIR}
    gpus = draft.document["resources"]["gpus"]  # type: ignore[index]
    resources = {"resources": {"gpusPerTask": gpus}} if gpus else {}
    step: dict[str, Any] = {"name": _step_name(submit), **resources, "run": run}
    draft.set_value(("steps",), [step], submit.position("executable"))
    return run


def _step_name(submit: ParsedSubmit) -> str:
    executable = submit.job_table.values_per_job(submit.template("executable"))[0]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", base_name(executable)).strip("-.") or "program"


def _build_command(submit: ParsedSubmit, exports: list[str]) -> str:
    if not submit.has("executable"):
        submit.error("executable", "there is no executable", "add the program: executable = run.sh")
    executable = submit.template("executable")
    lines = ['export _CONDOR_SCRATCH_DIR="$PWD"', *exports]
    if submit.flag("transfer_executable", True):
        program = _quote_template(submit, f"./{base_name(executable)}")
        lines.append(f"chmod +x {program}")
    else:
        program = _quote_template(submit, executable)
    command = ["exec", program, *_shell_arguments(submit)]
    if submit.has("input") and submit.template("input") != "/dev/null":
        command += ["<", _quote_template(submit, base_name(submit.template("input")))]
    return "\n".join([*lines, " ".join(command)]) + "\n"


def _quote_template(submit: ParsedSubmit, template: str) -> str:
    return quote_for_shell(template, _variable_name, submit.job_table.template_fields)


def _variable_name(name: str) -> str:
    """Return the environment variable that has the value of a template field in a step."""
    return _RUN_VARIABLES.get(name) or "PACKTRAIN_POINT_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def _shell_arguments(submit: ParsedSubmit) -> list[str]:
    """Return the arguments for the shell: with variables if that gives the same arguments for each job.

    If not, for example because a variable contains several arguments, the quoted arguments of each job become a column
    of the job table.
    """
    raw_value, table = submit.raw_value("arguments"), submit.job_table
    try:
        templates = _try_split_arguments(submit.template("arguments"))
        lists = [split_arguments(table.value_for_job(raw_value, job)) for job in range(len(table))]
        if templates is not None:
            expanded = list(zip(*map(table.values_per_job, templates), strict=True))
            if expanded == [tuple(arguments) for arguments in lists if templates]:
                return [_quote_template(submit, template) for template in templates]
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
    if any(map(_has_placeholder, lists)):
        raise MacroError("$(Cluster) cannot be combined with several arguments in one macro")
    template = submit.job_table.column_template("arguments", [shlex.join(arguments) for arguments in lists])
    return PLACEHOLDER.sub(lambda match: f"{{{match.group(1)}}}", template)


def _has_placeholder(arguments: list[str]) -> bool:
    return any(PLACEHOLDER.search(argument) for argument in arguments)


def _add_environment(submit: ParsedSubmit, draft: WorkflowDraft) -> list[str]:
    """Add variables to `env`, and return shell lines for those that `env` cannot express."""
    if submit.has("getenv") and submit.common_value("getenv").lower() not in ("false", "no", "f", "0"):
        draft.set_value(("htcondor", "getenv"), submit.common_value("getenv"), submit.position("getenv"))
        message = "getenv has an effect only on a pool: local jobs get only a few of your variables"
        submit.warning("getenv", message, "use environment")
    try:
        variables = split_environment(submit.template("environment"))
    except QuotingError as error:
        submit.error("environment", str(error))
        return []
    plain: list[dict[str, str]] = []
    exports: list[str] = []
    for key, value in variables:
        if not _IDENTIFIER.fullmatch(key):
            submit.error("environment", f"environment: {key[:40]!r} is not a valid variable name")
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
