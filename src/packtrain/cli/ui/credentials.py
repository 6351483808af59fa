"""Options for credentials of URLs on the command line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from packtrain.data.credentials import CredentialOptions
from packtrain.errors import UsageError

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_CREDENTIAL_OPTIONS = (
    click.option("--token-env", metavar="NAME", help="Send the bearer token in this environment variable."),
    click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        help="Send the bearer token in this file; it is read on every use.",
    ),
    click.option("--region", help="Region of s3:// URLs; by default from the environment."),
    click.option("--endpoint", metavar="URL", help="Endpoint of s3:// URLs; by default from the environment."),
)


def credential_options(function: CommandT) -> CommandT:
    """Add the credential options to a command, which receives them as one argument `credentials`."""

    @functools.wraps(function)
    def wrapper(
        token_env: str | None, token_file: Path | None, region: str | None, endpoint: str | None, **kwargs: Any
    ) -> Any:
        if token_env is not None and token_file is not None:
            raise UsageError("--token-env and --token-file exclude each other")
        return function(credentials=CredentialOptions(token_env, token_file, region, endpoint), **kwargs)

    for option in reversed(_CREDENTIAL_OPTIONS):
        option(wrapper)
    return wrapper  # type: ignore[return-value]
