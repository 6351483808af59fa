"""Secrets on the submit side: registered while planning, read when the run starts, stored in the run's `secrets/`.

A plan contains only names of secrets. `PlanResult.secrets` has their sources (references, or literals of the
workflow); only the files of `write_secrets` contain their values. `write_secret_sources` stores the references, so that
`packtrain resume` can read the secrets again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.fileutil import atomic_write
from packtrain.plan import Secret, SecretOrStr
from packtrain.planner.credentials import aws_credentials
from packtrain.planner.local_paths import resolve_path
from packtrain.spec.diagnostics import ERROR, Diagnostic, KeyPath, SourceMap, format_key_path
from packtrain.spec.secret_references import SecretReference, find_references, has_reference, resolve_references
from packtrain.transfer.api import SecretResolver


@dataclass(frozen=True)
class SecretSource:
    """The text of a secret in the workflow and its position."""

    text: str = field(repr=False)  # may contain a literal secret
    key_path: str  # input.http.token
    file: str
    line: int
    column: int

    @property
    def is_literal(self) -> bool:
        return not has_reference(self.text)


@dataclass(frozen=True)
class ResolvedSecrets:
    """Values by name of the secret, and diagnostics for those that could not be read."""

    values: Mapping[str, str] = field(repr=False)
    diagnostics: tuple[Diagnostic, ...] = ()


class SecretRegistry:
    """Gives each distinct secret of a plan a name, which is also its file name."""

    def __init__(self) -> None:
        self.sources: dict[str, SecretSource] = {}
        self._names: dict[tuple[str, str], str] = {}

    def register(self, text: str, source_map: SourceMap, key_path: KeyPath) -> Secret:
        """Return the secret for a text, registering it if it is new.

        A literal is a secret of its own for each key, so that messages name the key that needs it.
        """
        identity = (text, "" if has_reference(text) else format_key_path(key_path))
        if identity not in self._names:
            position = source_map.position(key_path)
            name = self._unique_name(_suggest_name(text, key_path))
            self._names[identity] = name
            self.sources[name] = SecretSource(
                text, format_key_path(key_path), source_map.filename, position.line, position.column
            )
        return Secret(self._names[identity])

    def _unique_name(self, base_name: str) -> str:
        taken = sum(name == base_name or name.startswith(f"{base_name}.") for name in self.sources)
        return f"{base_name}.{taken + 1}" if taken else base_name


def _suggest_name(text: str, key_path: KeyPath) -> str:
    """Return a readable name: that of the variable or file, else of the key."""
    references = find_references(text)
    name = references[0].name.rpartition("/")[2] if references else format_key_path(key_path)
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "secret"


def resolve_secrets(
    sources: Mapping[str, SecretSource], workflow_dir: Path, environ: Mapping[str, str] = os.environ
) -> ResolvedSecrets:
    """Read the values of all secrets; files are relative to `workflow_dir`."""
    values: dict[str, str] = {}
    diagnostics: list[Diagnostic] = []
    for name, secret in sources.items():
        try:
            values[name] = resolve_references(
                secret.text, lambda reference: _read_reference(reference, workflow_dir, environ)
            )
        except LookupError as error:
            reason, hint = error.args
            message = f"{secret.key_path} needs {reason}"
            diagnostics.append(Diagnostic(secret.file, secret.line, secret.column, ERROR, message, hint))
    return ResolvedSecrets(values, tuple(diagnostics))


def _read_reference(reference: SecretReference, base_dir: Path, environ: Mapping[str, str]) -> str:
    if reference.kind == "env":
        value = environ.get(reference.name, "")
        if not value:
            raise LookupError(
                f"the environment variable {reference.name}, which is not set", f"export {reference.name}=…"
            )
        return value
    if reference.kind == "aws":
        return aws_credentials.resolve_credential(reference.name)
    path = resolve_path(base_dir, reference.name)
    try:
        value = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise LookupError(
            f"the file {path}, which cannot be read ({reason})", "create it, readable by you only"
        ) from None
    if not value:
        raise LookupError(f"the file {path}, which is empty", "put the secret into it")
    return value


def write_secrets(folder: Path, values: Mapping[str, str]) -> None:
    """Write one file per secret, created with permissions for the owner only."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name, value in values.items():
        atomic_write(folder / name, value, mode=0o600)


def secret_resolver(secret_values: Mapping[str, str]) -> SecretResolver:
    """Return a resolver for contacting sources on the submit side."""

    def resolve_secret(text: SecretOrStr) -> str:
        if isinstance(text, str):
            return text
        if text.name not in secret_values:
            raise FailedError("secret_missing", f"the secret {text.name} is unknown")
        return secret_values[text.name]

    return resolve_secret


def write_secret_sources(path: Path, sources: Mapping[str, SecretSource], workflow_dir: Path) -> None:
    """Store where the secrets of a run come from, without literal values."""
    fields = {name: asdict(replace(s, text="") if s.is_literal else s) for name, s in sources.items()}
    document = {"workflow_dir": str(workflow_dir), "secrets": fields}
    atomic_write(path, json.dumps(document, indent=1) + "\n")


def read_secret_sources(path: Path) -> tuple[dict[str, SecretSource], Path]:
    """Return the sources of a run's secrets and the workflow's folder; the text of a literal is empty."""
    document = json.loads(path.read_text(encoding="utf-8"))
    sources = {name: SecretSource(**fields) for name, fields in document["secrets"].items()}
    return sources, Path(document["workflow_dir"])
