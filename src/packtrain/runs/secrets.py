"""The secrets of a run: read again before it resumes, deleted when it has ended.

The planner is imported inside functions, because it imports pydantic, which most commands do without.
"""

from __future__ import annotations

import os
import shutil

from packtrain.errors import UsageError
from packtrain.plan import RunFolder, SecretOrStr, read_plan
from packtrain.plan.secret_files import INHERITED_VARIABLES, write_inherited_variables
from packtrain.state import RunState
from packtrain.store import RunInfo
from packtrain.transfer.api import SecretResolver


def reload_secrets(run_info: RunInfo) -> None:
    """Read the secrets of a run again from the sources that the workflow names, before it resumes."""
    from packtrain.planner.credentials.secret_sources import read_secret_sources, resolve_secrets, write_secrets

    folder = RunFolder(run_info.folder)
    secret_sources, workflow_dir = read_secret_sources(folder.secret_sources)
    for name, secret in secret_sources.items():
        if secret.is_literal and not (folder.secrets / name).exists():
            raise _literal_secret_error(run_info, secret.key_path)
    references = {name: secret for name, secret in secret_sources.items() if not secret.is_literal}
    resolved = resolve_secrets(references, workflow_dir)
    if resolved.diagnostics:
        raise UsageError(str(resolved.diagnostics[0]))
    write_secrets(folder.secrets, resolved.values)
    has_inherited = any(job.environment.inherit for job in read_plan(folder.plan).jobs)
    if has_inherited and not (folder.secrets / INHERITED_VARIABLES).exists():
        write_inherited_variables(folder.secrets, os.environ)


def _literal_secret_error(run_info: RunInfo, key_path: str) -> UsageError:
    return UsageError(
        f"the secret {key_path} of the run {run_info.run} was written in the workflow itself and was deleted when the "
        "run ended; refer to it as ${env:…} or ${file:…} and run the workflow again"
    )


def delete_secrets(run_info: RunInfo, state: RunState) -> None:
    """Delete the secrets of a run if it is finished."""
    if state.is_finished:
        shutil.rmtree(RunFolder(run_info.folder).secrets, ignore_errors=True)


def make_secret_resolver(run_info: RunInfo) -> SecretResolver:
    """Return a resolver that reads secrets from the run's folder, or else from the sources that the workflow names."""
    from packtrain.planner.credentials.secret_sources import read_secret_sources, resolve_secrets, secret_resolver

    folder = RunFolder(run_info.folder)

    def resolve_secret(value: SecretOrStr) -> str:
        if isinstance(value, str):
            return value
        if (folder.secrets / value.name).exists():
            return (folder.secrets / value.name).read_text(encoding="utf-8")
        secret_sources, workflow_dir = read_secret_sources(folder.secret_sources)
        secret = secret_sources.get(value.name)
        if secret is not None and secret.is_literal:
            raise _literal_secret_error(run_info, secret.key_path)
        # Only this one: a command that reads outputs must not need the keys of the inputs.
        resolved = resolve_secrets({value.name: secret} if secret else {}, workflow_dir)
        if resolved.diagnostics:
            raise UsageError(str(resolved.diagnostics[0]))
        return secret_resolver(resolved.values)(value)

    return resolve_secret
