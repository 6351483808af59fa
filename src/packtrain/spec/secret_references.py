"""Secrets in a workflow are references, `${env:NAME}`, `${file:PATH}` and `${aws:KEY}`; here is where they may be."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from packtrain.spec.models.field_types import Model
from packtrain.spec.models.inputs_outputs import S3, HttpInput, HttpOutput, Osdf, OsdfInput
from packtrain.spec.models.steps import Container, EnvVar

_REFERENCE = re.compile(r"\$\{(env|file|aws):([^}\n]+)\}")
_SECRET_HEADER = re.compile(r"auth|cookie|token|secret|password|key|credential|signature", re.IGNORECASE)

CONFIDENTIAL: frozenset[tuple[type[Model], str]] = frozenset(
    {
        (HttpInput, "token"),
        (HttpOutput, "token"),
        (Osdf, "token"),
        (OsdfInput, "token"),
        (S3, "secretAccessKey"),
        (S3, "sessionToken"),
        (Container, "password"),
    }
)
"""What is a secret even when it stands in the file in clear."""

ALLOWED = CONFIDENTIAL | {(S3, "accessKeyId"), (Container, "username"), (EnvVar, "value")}
"""Where references are filled in; besides these, in the values of `headers`."""


@dataclass(frozen=True)
class Reference:
    kind: str  # env, file, aws
    name: str

    def __str__(self) -> str:
        return f"${{{self.kind}:{self.name}}}"


def references(text: str) -> list[Reference]:
    return [Reference(kind, name) for kind, name in _REFERENCE.findall(text)]


def has_reference(text: str) -> bool:
    return _REFERENCE.search(text) is not None


def resolve(text: str, look_up: Callable[[Reference], str]) -> str:
    """The text with its references replaced; what they yield is not looked at again."""
    return _REFERENCE.sub(lambda found: look_up(Reference(found.group(1), found.group(2))), text)


def is_secret_header(name: str) -> bool:
    """Whether the value of a request header is a secret even in clear."""
    return _SECRET_HEADER.search(name) is not None
