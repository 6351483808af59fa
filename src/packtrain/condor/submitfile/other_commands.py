"""Handles the submit commands that are not translated: passes them through to HTCondor, ignores or rejects them."""

from __future__ import annotations

from packtrain.condor.submitfile import commands
from packtrain.condor.submitfile.parsed_submit import ParsedSubmit
from packtrain.condor.submitfile.syntax import macros
from packtrain.condor.submitfile.syntax.submit_reader import SubmitCommand
from packtrain.spec.converted_file import WorkflowDraft
from packtrain.spec.diagnostics import did_you_mean


def add_other_commands(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    """Add passed-through commands to the `htcondor` section, and report all others."""
    for name, command in submit.description.commands.items():
        key = commands.canonical_name(name)
        if key in commands.TRANSLATED:
            continue
        rejection = commands.REJECTED.get(key)
        if rejection is None and key.startswith(commands.REJECTED_PREFIXES):
            rejection = ("packtrain runs programs in the pool itself", "use condor_submit")
        if rejection:
            reason, hint = rejection
            submit.error(key, f"{command.key} is not supported: {reason}", hint)
        elif key in commands.IGNORED:
            submit.warning(key, f"{command.key} is ignored: {commands.IGNORED[key]}")
        elif commands.is_passed_through(key):
            _pass_through(submit, draft, key, command)
        else:
            _warn_unused(submit, name, command.key)


def _pass_through(submit: ParsedSubmit, draft: WorkflowDraft, key: str, command: SubmitCommand) -> None:
    try:
        value = submit.job_table.to_condor_text(command.value).strip()
    except macros.PerJobValueError:
        message = f"{command.key} differs from job to job, so it cannot be passed through to HTCondor"
        submit.error(key, message, "use the same value for all jobs")
    except macros.MacroError as error:
        submit.error(key, f"{command.key}: {error}")
    else:
        if key in commands.PATH_COMMANDS and value and not value.startswith("/"):
            value = str(submit.context.folder / value)  # HTCondor would resolve it in the attempt folder
        if "\n" in value:
            submit.error(key, f"{command.key} has several lines, so it cannot be passed through to HTCondor")
        elif value:
            draft.set_value(("htcondor", command.key), value, submit.position(key))


def _warn_unused(submit: ParsedSubmit, name: str, written_key: str) -> None:
    """Warn about an unknown key that no macro uses: it is probably misspelled."""
    used_names = set(submit.description.referenced_names)
    for command in submit.description.commands.values():
        used_names |= macros.referenced_names(command.value)
    if name not in used_names:
        submit.warning(name, f"nothing uses {written_key}", _spelling_hint(name))


def _spelling_hint(name: str) -> str:
    hint = did_you_mean(name, commands.KNOWN_COMMANDS)
    return hint if "did you mean" in hint else "check its spelling"
