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
from packtrain.plan import Ref, S3Access, Secret, Text
from packtrain.planner import aws_credentials
from packtrain.transfer.urls import origin_of, rooted, scheme_of, shown

Function = TypeVar("Function", bound=Callable[..., Any])

_TOKEN = Secret("token")
_S3_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_KEYS_KEPT_S = 300
_SCHEMES = ("http", "https", "osdf", "pelican", "s3", "file")
_WITH_HOST = ("http", "https", "pelican", "s3")
_OPTIONS = (
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
class Access:
    """The token is for the host of one address only: `own`. Mirrors elsewhere never see it."""

    token_env: str | None = None
    token_file: Path | None = None
    region: str | None = None
    endpoint: str | None = None

    def ref(self, url: str, own: str) -> Ref:
        url = rooted(_checked(url))
        if scheme_of(url) == "s3":
            return Ref(url, s3=self._s3())
        has_token = self.token_env is not None or self.token_file is not None
        return Ref(url, token=_TOKEN if has_token and origin_of(url) == origin_of(rooted(own)) else None)

    def _s3(self) -> S3Access:
        region = self.region or _first("AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1"
        endpoint = self.endpoint or _first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        return S3Access(region, (endpoint or f"https://s3.{region}.amazonaws.com").rstrip("/"), *_s3_keys())

    def reveal(self, text: Text) -> str:
        if isinstance(text, str):
            return text
        if text.name in _S3_VARIABLES:
            return _variable(text.name)
        if text != _TOKEN:
            return _own_key(text.name, int(time.monotonic() // _KEYS_KEPT_S))
        return _variable(self.token_env) if self.token_env is not None else _contents(self.token_file)


def access_options(function: Function) -> Function:
    """Gives a command the options, and them to it as one argument `access`."""

    @functools.wraps(function)
    def call(
        token_env: str | None, token_file: Path | None, region: str | None, endpoint: str | None, **others: Any
    ) -> Any:
        if token_env is not None and token_file is not None:
            raise UsageError("give one of --token-env and --token-file, not both")
        return function(access=Access(token_env, token_file, region, endpoint), **others)

    for option in reversed(_OPTIONS):
        option(call)
    return call  # type: ignore[return-value]


def _checked(url: str) -> str:
    if scheme_of(url) in _SCHEMES and "://" in url:
        if scheme_of(url) in _WITH_HOST and url.partition("://")[2][:1] in ("", "/"):
            raise UsageError(f"{url!r} names no host; write for example {scheme_of(url)}://host/path")
        return url
    if "://" in url:
        raise UsageError(f"{shown(url)} has a scheme that is not one of {', '.join(_SCHEMES)}")
    raise UsageError(f"{url!r} is no address; write for example https://host/path or {Path(url).absolute().as_uri()}")


def _first(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _s3_keys() -> list[Secret | None]:
    """The keys of the environment, else this user's as boto3 finds them; all None: requests are not signed."""
    if os.environ.get(_S3_VARIABLES[0]):
        return [Secret(name) if os.environ.get(name) else None for name in _S3_VARIABLES]
    from packtrain.spec.secret_references import references  # a tenth of a second, which nothing else here is worth

    try:
        found = aws_credentials.own_references()
    except LookupError as error:
        raise FailedError("secret_missing", "s3:// needs " + "; ".join(error.args)) from None
    return [Secret(references(text)[0].name) if text else None for text in found]


@functools.lru_cache(maxsize=8)
def _own_key(name: str, period: int) -> str:
    """Looked up again in each period: keys of a session are renewed."""
    try:
        return aws_credentials.look_up(name)
    except LookupError as error:
        raise FailedError("secret_missing", "s3:// needs " + "; ".join(error.args)) from None


def _variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise FailedError("secret_missing", f"the environment variable {name} is not set: export {name}=…")
    return value


def _contents(path: Path | None) -> str:
    assert path is not None
    try:
        value = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise FailedError("secret_missing", f"the token file {path} cannot be read: {reason}") from None
    if not value:
        raise FailedError("secret_missing", f"the token file {path} is empty")
    return value
