"""Secrets on their way: collected while planning, read when the run starts, kept in the run's `secrets/`.

A plan names secrets only. Their texts (references, or literals that stood in the workflow) live in
`Planned.secrets`; their values in the files that `write_secrets` makes, and nowhere else."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.plan import Secret, SecretOrStr
from packtrain.planner import aws_credentials
from packtrain.planner.local_paths import resolve_path
from packtrain.spec.diagnostics import ERROR, Diagnostic, SourceMap, format_key_path
from packtrain.spec.diagnostics import KeyPath as Keys
from packtrain.spec.secret_references import SecretReference, find_references, has_reference, resolve_references
from packtrain.transfer.api import SecretResolver


@dataclass(frozen=True)
class SecretSource:
    """What stood in the workflow for one secret, and where."""

    text: str = field(repr=False)  # a literal may be in here
    key_path: str  # input.http.token
    file: str
    line: int
    column: int

    @property
    def is_literal(self) -> bool:
        return not has_reference(self.text)


@dataclass(frozen=True)
class ResolvedSecrets:
    """Values by secret name; the problems say which could not be had."""

    values: Mapping[str, str] = field(repr=False)
    diagnostics: tuple[Diagnostic, ...] = ()


class SecretRegistry:
    """Gives each different secret text of a plan a name, which becomes its file's name."""

    def __init__(self) -> None:
        self.sources: dict[str, SecretSource] = {}
        self._names_by_text: dict[str, str] = {}

    def register(self, text: str, source_map: SourceMap, key_path: Keys) -> Secret:
        if text not in self._names_by_text:
            place = source_map.position(key_path)
            name = self._unique_name(_suggest_name(text, key_path))
            self._names_by_text[text] = name
            self.sources[name] = SecretSource(
                text, format_key_path(key_path), source_map.filename, place.line, place.column
            )
        return Secret(self._names_by_text[text])

    def _unique_name(self, base_name: str) -> str:
        taken = sum(name == base_name or name.startswith(f"{base_name}.") for name in self.sources)
        return f"{base_name}.{taken + 1}" if taken else base_name


def _suggest_name(text: str, key_path: Keys) -> str:
    """A name for people: that of the variable or file, else the key's."""
    named = find_references(text)
    wish = named[0].name.rpartition("/")[2] if named else format_key_path(key_path)
    return re.sub(r"[^A-Za-z0-9_-]+", "-", wish).strip("-") or "secret"


def resolve_secrets(
    sources: Mapping[str, SecretSource], workflow_dir: Path, environ: Mapping[str, str] = os.environ
) -> ResolvedSecrets:
    """Read what the references name; files are relative to the workflow's folder `where`."""
    values: dict[str, str] = {}
    problems: list[Diagnostic] = []
    for name, secret in sources.items():
        try:
            values[name] = resolve_references(
                secret.text, lambda reference: _read_reference(reference, workflow_dir, environ)
            )
        except LookupError as error:
            sentence, hint = error.args
            message = f"{secret.key_path} needs {sentence}"
            problems.append(Diagnostic(secret.file, secret.line, secret.column, ERROR, message, hint))
    return ResolvedSecrets(values, tuple(problems))


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
    """One file a secret, readable by the owner only from its first moment on."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name, value in values.items():
        temporary = folder / f".{name}.{os.getpid()}.new"
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(value)
        temporary.replace(folder / name)


def secret_resolver(secret_values: Mapping[str, str]) -> SecretResolver:
    """For asking sources on the submit side."""

    def resolve_secret(text: SecretOrStr) -> str:
        if isinstance(text, str):
            return text
        if text.name not in secret_values:
            raise FailedError("secret_missing", f"the secret {text.name} is not known")
        return secret_values[text.name]

    return resolve_secret
