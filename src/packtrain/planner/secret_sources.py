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
from packtrain.plan import Secret, Text
from packtrain.planner import aws_credentials
from packtrain.planner.local_paths import absolute
from packtrain.spec.diagnostics import ERROR, Origin, Problem, shown
from packtrain.spec.diagnostics import Path as Keys
from packtrain.spec.secret_references import Reference, has_reference, references, resolve
from packtrain.transfer.api import Reveal


@dataclass(frozen=True)
class SecretValue:
    """What stood in the workflow for one secret, and where."""

    text: str = field(repr=False)  # a literal may be in here
    label: str  # input.http.token
    file: str
    line: int
    column: int

    @property
    def is_literal(self) -> bool:
        return not has_reference(self.text)


@dataclass(frozen=True)
class Resolved:
    """Values by secret name; the problems say which could not be had."""

    values: Mapping[str, str] = field(repr=False)
    problems: tuple[Problem, ...] = ()


class Vault:
    """Gives each different secret text of a plan a name, which becomes its file's name."""

    def __init__(self) -> None:
        self.found: dict[str, SecretValue] = {}
        self._names: dict[str, str] = {}

    def put(self, text: str, origin: Origin, keys: Keys) -> Secret:
        if text not in self._names:
            place = origin.place(keys)
            name = self._free(_wish(text, keys))
            self._names[text] = name
            self.found[name] = SecretValue(text, shown(keys), origin.name, place.line, place.column)
        return Secret(self._names[text])

    def _free(self, wish: str) -> str:
        taken = sum(name == wish or name.startswith(f"{wish}.") for name in self.found)
        return f"{wish}.{taken + 1}" if taken else wish


def _wish(text: str, keys: Keys) -> str:
    """A name for people: that of the variable or file, else the key's."""
    named = references(text)
    wish = named[0].name.rpartition("/")[2] if named else shown(keys)
    return re.sub(r"[^A-Za-z0-9_-]+", "-", wish).strip("-") or "secret"


def resolve_secrets(
    secrets: Mapping[str, SecretValue], where: Path, environ: Mapping[str, str] = os.environ
) -> Resolved:
    """Read what the references name; files are relative to the workflow's folder `where`."""
    values: dict[str, str] = {}
    problems: list[Problem] = []
    for name, secret in secrets.items():
        try:
            values[name] = resolve(secret.text, lambda reference: _look_up(reference, where, environ))
        except LookupError as error:
            sentence, hint = error.args
            message = f"{secret.label} needs {sentence}"
            problems.append(Problem(secret.file, secret.line, secret.column, ERROR, message, hint))
    return Resolved(values, tuple(problems))


def _look_up(reference: Reference, where: Path, environ: Mapping[str, str]) -> str:
    if reference.kind == "env":
        value = environ.get(reference.name, "")
        if not value:
            raise LookupError(
                f"the environment variable {reference.name}, which is not set", f"export {reference.name}=…"
            )
        return value
    if reference.kind == "aws":
        return aws_credentials.look_up(reference.name)
    path = absolute(where, reference.name)
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


def revealer(values: Mapping[str, str]) -> Reveal:
    """For asking sources on the submit side."""

    def reveal(text: Text) -> str:
        if isinstance(text, str):
            return text
        if text.name not in values:
            raise FailedError("secret_missing", f"the secret {text.name} is not known")
        return values[text.name]

    return reveal
