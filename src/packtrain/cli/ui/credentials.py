"""Addresses given on the command line: what it takes to be let in comes from options and the environment."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from packtrain.errors import FailedError, UsageError
from packtrain.plan import Location, S3Access, Secret, SecretOrStr
from packtrain.planner import aws_credentials
from packtrain.transfer.urls import normalize_osdf_url, redact_url, url_origin, url_scheme

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_TOKEN_SECRET = Secret("token")
_S3_ENV_VARS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_KEY_CACHE_TTL_S = 300
_SUPPORTED_SCHEMES = ("http", "https", "osdf", "pelican", "s3", "file")
_SCHEMES_WITH_HOST = ("http", "https", "pelican", "s3")
_CREDENTIAL_OPTIONS = (
    click.option("--token-env", metavar="NAME", help="Send the bearer token that this variable holds."),
    click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        help="Send the bearer token of this file, read when it is used.",
    ),
    click.option("--region", help="Region of s3:// addresses; by default as the environment says."),
    click.option("--endpoint", metavar="URL", help="Service of s3:// addresses; by default as the environment says."),
)


@dataclass(frozen=True)
class CredentialOptions:
    """The token is for the host of one address only: `own`. Mirrors elsewhere never see it."""

    token_env: str | None = None
    token_file: Path | None = None
    region: str | None = None
    endpoint: str | None = None

    def make_location(self, url: str, token_url: str) -> Location:
        url = normalize_osdf_url(_validate_url(url))
        if url_scheme(url) == "s3":
            return Location(url, s3=self._s3_access())
        has_token = self.token_env is not None or self.token_file is not None
        return Location(
            url,
            token=_TOKEN_SECRET if has_token and url_origin(url) == url_origin(normalize_osdf_url(token_url)) else None,
        )

    def _s3_access(self) -> S3Access:
        region = self.region or _first_env_var("AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1"
        endpoint = self.endpoint or _first_env_var("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        return S3Access(region, (endpoint or f"https://s3.{region}.amazonaws.com").rstrip("/"), *_find_s3_key_secrets())

    def resolve_secret(self, value: SecretOrStr) -> str:
        if isinstance(value, str):
            return value
        if value.name in _S3_ENV_VARS:
            return _read_env_var(value.name)
        if value != _TOKEN_SECRET:
            return _lookup_aws_key(value.name, int(time.monotonic() // _KEY_CACHE_TTL_S))
        return _read_env_var(self.token_env) if self.token_env is not None else _read_token_file(self.token_file)


def credential_options(function: CommandT) -> CommandT:
    """Gives a command the options, and them to it as one argument `access`."""

    @functools.wraps(function)
    def wrapper(
        token_env: str | None, token_file: Path | None, region: str | None, endpoint: str | None, **kwargs: Any
    ) -> Any:
        if token_env is not None and token_file is not None:
            raise UsageError("give one of --token-env and --token-file, not both")
        return function(access=CredentialOptions(token_env, token_file, region, endpoint), **kwargs)

    for option in reversed(_CREDENTIAL_OPTIONS):
        option(wrapper)
    return wrapper  # type: ignore[return-value]


def _validate_url(url: str) -> str:
    if url_scheme(url) in _SUPPORTED_SCHEMES and "://" in url:
        if url_scheme(url) in _SCHEMES_WITH_HOST and url.partition("://")[2][:1] in ("", "/"):
            raise UsageError(f"{url!r} names no host; write for example {url_scheme(url)}://host/path")
        return url
    if "://" in url:
        raise UsageError(f"{redact_url(url)} has a scheme that is not one of {', '.join(_SUPPORTED_SCHEMES)}")
    raise UsageError(f"{url!r} is no address; write for example https://host/path or {Path(url).absolute().as_uri()}")


def _first_env_var(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _find_s3_key_secrets() -> list[Secret | None]:
    """The keys of the environment, else this user's as boto3 finds them; all None: requests are not signed."""
    if os.environ.get(_S3_ENV_VARS[0]):
        return [Secret(name) if os.environ.get(name) else None for name in _S3_ENV_VARS]
    from packtrain.spec.secret_references import (
        find_references,  # a tenth of a second, which nothing else here is worth
    )

    try:
        found = aws_credentials.credential_references()
    except LookupError as error:
        raise FailedError("secret_missing", "s3:// needs " + "; ".join(error.args)) from None
    return [Secret(find_references(text)[0].name) if text else None for text in found]


@functools.lru_cache(maxsize=8)
def _lookup_aws_key(name: str, period: int) -> str:
    """Looked up again in each period: keys of a session are renewed."""
    try:
        return aws_credentials.resolve_credential(name)
    except LookupError as error:
        raise FailedError("secret_missing", "s3:// needs " + "; ".join(error.args)) from None


def _read_env_var(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise FailedError("secret_missing", f"the environment variable {name} is not set: export {name}=…")
    return value


def _read_token_file(path: Path | None) -> str:
    assert path is not None
    try:
        value = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise FailedError("secret_missing", f"the token file {path} cannot be read: {reason}") from None
    if not value:
        raise FailedError("secret_missing", f"the token file {path} is empty")
    return value
