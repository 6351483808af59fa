"""References to secrets in a workflow (`${env:NAME}`, `${file:PATH}`, `${aws:KEY}`) and the keys that allow them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from packtrain.spec.models.field_types import SpecModel
from packtrain.spec.models.inputs_outputs import HttpInput, HttpOutput, OsdfInput, OsdfLocation, S3Location
from packtrain.spec.models.steps import Container, EnvVar

_REFERENCE_PATTERN = re.compile(r"\$\{(env|file|aws):([^}\n]+)\}")
_SECRET_HEADER_PATTERN = re.compile(r"auth|cookie|token|secret|password|key|credential|signature", re.IGNORECASE)

CONFIDENTIAL_KEYS: frozenset[tuple[type[SpecModel], str]] = frozenset(
    {
        (HttpInput, "token"),
        (HttpOutput, "token"),
        (OsdfLocation, "token"),
        (OsdfInput, "token"),
        (S3Location, "secretAccessKey"),
        (S3Location, "sessionToken"),
        (Container, "password"),
    }
)
"""Keys whose values are secrets even in plain text."""

REFERENCE_KEYS = CONFIDENTIAL_KEYS | {(S3Location, "accessKeyId"), (Container, "username"), (EnvVar, "value")}
"""Keys in which references are replaced, in addition to the values of `headers`."""


@dataclass(frozen=True)
class SecretReference:
    """Where a secret comes from."""

    kind: str  # env, file, aws
    name: str

    def __str__(self) -> str:
        return f"${{{self.kind}:{self.name}}}"


def find_references(text: str) -> list[SecretReference]:
    return [SecretReference(kind, name) for kind, name in _REFERENCE_PATTERN.findall(text)]


def has_reference(text: str) -> bool:
    return _REFERENCE_PATTERN.search(text) is not None


def resolve_references(text: str, lookup: Callable[[SecretReference], str]) -> str:
    """Replace the references in the text in one pass."""
    return _REFERENCE_PATTERN.sub(lambda match: lookup(SecretReference(match.group(1), match.group(2))), text)


def is_secret_header(name: str) -> bool:
    """Return whether a request header usually carries a secret."""
    return _SECRET_HEADER_PATTERN.search(name) is not None
