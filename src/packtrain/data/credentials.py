"""Locations for URLs that the user names, with credentials from options and the environment."""

from __future__ import annotations

import functools
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from packtrain.errors import FailedError, UsageError
from packtrain.plan import Location, S3Access, Secret, SecretOrStr
from packtrain.planner.credentials import aws_credentials
from packtrain.transfer.urls import normalize_osdf_url, redact_url, url_origin, url_scheme

_TOKEN_SECRET = Secret("token")
_S3_ENV_VARS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_KEY_CACHE_TTL_S = 300
_SUPPORTED_SCHEMES = ("http", "https", "osdf", "pelican", "s3", "file")
_SCHEMES_WITH_HOST = ("http", "https", "pelican", "s3")


@dataclass(frozen=True)
class CredentialOptions:
    """Credentials for URLs. The token is sent to one host only; mirrors elsewhere never receive it."""

    token_env: str | None = None
    token_file: Path | None = None
    region: str | None = None
    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)

    def make_location(self, url: str, token_url: str) -> Location:
        """Return the location of `url`; it gets the token only if it has the origin of `token_url`."""
        url = normalize_osdf_url(_validate_url(url))
        if url_scheme(url) == "s3":
            return Location(url, s3=self._s3_access())
        has_token = any(source is not None for source in (self.token, self.token_env, self.token_file))
        return Location(
            url,
            token=_TOKEN_SECRET if has_token and url_origin(url) == url_origin(normalize_osdf_url(token_url)) else None,
        )

    def _s3_access(self) -> S3Access:
        region = self.region or _first_env_var("AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1"
        endpoint = self.endpoint or _first_env_var("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        return S3Access(region, (endpoint or f"https://s3.{region}.amazonaws.com").rstrip("/"), *_find_s3_key_secrets())

    def resolve_secret(self, value: SecretOrStr) -> str:
        """Return the value of a secret in a location that `make_location` made."""
        if isinstance(value, str):
            return value
        if value.name in _S3_ENV_VARS:
            return _read_env_var(value.name)
        if value != _TOKEN_SECRET:
            return _lookup_aws_key(value.name, int(time.monotonic() // _KEY_CACHE_TTL_S))
        if self.token is not None:
            return self.token
        return _read_env_var(self.token_env) if self.token_env is not None else _read_token_file(self.token_file)


def _validate_url(url: str) -> str:
    if url_scheme(url) in _SUPPORTED_SCHEMES and "://" in url:
        if url_scheme(url) in _SCHEMES_WITH_HOST and url.partition("://")[2][:1] in ("", "/"):
            raise UsageError(f"{url!r} has no host; write for example {url_scheme(url)}://host/path")
        return url
    if "://" in url:
        raise UsageError(f"{redact_url(url)} has an unsupported scheme; supported are {', '.join(_SUPPORTED_SCHEMES)}")
    raise UsageError(f"{url!r} is not a URL; write for example https://host/path or {Path(url).absolute().as_uri()}")


def _first_env_var(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _find_s3_key_secrets() -> list[Secret | None]:
    """Return the S3 keys: those in the environment, else those boto3 would find. With None, requests are not signed."""
    if os.environ.get(_S3_ENV_VARS[0]):
        return [Secret(name) if os.environ.get(name) else None for name in _S3_ENV_VARS]
    from packtrain.spec.secret_references import find_references  # takes 0.1 s to import

    try:
        references = aws_credentials.credential_references()
    except LookupError as error:
        raise FailedError("secret_missing", "s3:// needs " + "; ".join(error.args)) from None
    return [Secret(find_references(text)[0].name) if text else None for text in references]


@functools.lru_cache(maxsize=8)
def _lookup_aws_key(name: str, period: int) -> str:
    """Return a key; `period` makes the cache expire, because session keys are renewed."""
    try:
        return aws_credentials.resolve_credential(name)
    except LookupError as error:
        raise FailedError("secret_missing", "s3:// needs " + "; ".join(error.args)) from None


def _read_env_var(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise FailedError("secret_missing", f"the environment variable {name} is not set; export {name}=…")
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
