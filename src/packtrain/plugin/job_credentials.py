"""Convert the URLs of a submit file to locations with credentials.

osdf:///path   pelican://federation/path   http(s)://…   s3://bucket/key   s3://endpoint/bucket/key
NAME+SCHEME://…      with the credential NAME of the job ($_CONDOR_CREDS/NAME.use)
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.plan import Location, S3Access, Secret, SecretOrStr
from packtrain.transfer.credentials import credential_path, read_service_token
from packtrain.transfer.urls import redact_url

SCHEMES = ("osdf", "pelican", "http", "https", "s3")
_AWS_S3_HOST = re.compile(r"(?:(?P<bucket>[^/]+?)\.)?s3[.-](?:(?P<region>[a-z0-9-]+)\.)?amazonaws\.com(?:\.cn)?")
_S3_KEY_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_S3_KEY_FIELDS = ("access_key_id", "secret_access_key", "session_token")
_DEFAULT_REGION = "us-east-1"


class JobCredentials:
    """Makes locations from URLs and reads their secrets for each connection, because HTCondor renews them."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ

    def location_from_url(self, url: str) -> Location:
        """Return the location of a URL. Raises FailedError("unsupported")."""
        scheme, colon, rest = url.partition("://")
        name, _, scheme = scheme.rpartition("+")
        if not colon or scheme.lower() not in SCHEMES:
            raise FailedError(
                "unsupported", f"{redact_url(url)} is not a URL with one of the schemes {', '.join(SCHEMES)}"
            )
        plain = f"{scheme.lower()}://{rest}"
        if scheme.lower() == "s3":
            return self._s3_location(rest, name)
        return Location(plain, token=Secret(name) if name else None)

    def resolve_secret(self, value: SecretOrStr) -> str:
        """Return the value of a secret, or the text unchanged."""
        if not isinstance(value, Secret):
            return value
        name, slash, key = value.name.partition("/")
        if not slash:
            return read_service_token(name, self._environ)
        return self._environ[key] if not name else _read_credential_field(credential_path(name, self._environ), key)

    def _s3_location(self, host_and_path: str, service: str) -> Location:
        host, _, path = host_and_path.partition("/")
        region = self._environ.get("AWS_REGION") or self._environ.get("AWS_DEFAULT_REGION") or _DEFAULT_REGION
        endpoint = self._environ.get("AWS_ENDPOINT_URL_S3") or self._environ.get("AWS_ENDPOINT_URL") or ""
        match = _AWS_S3_HOST.fullmatch(host)
        if match:
            region = match.group("region") or region
            host, _, path = (match.group("bucket"), "", path) if match.group("bucket") else path.partition("/")
            endpoint = ""
        elif not endpoint and "." in host:  # HTCondor's form: s3://endpoint/bucket/key
            endpoint = f"https://{host}"
            host, _, path = path.partition("/")
        endpoint = (endpoint or f"https://s3.{region}.amazonaws.com").rstrip("/")
        return Location(f"s3://{host}/{path}", s3=S3Access(region, endpoint, *self._s3_keys(service)))

    def _s3_keys(self, service: str) -> list[Secret | None]:
        """Return the S3 keys; None for missing ones, in which case requests are not signed."""
        if service:
            fields = _read_credential(credential_path(service, self._environ))
            return [Secret(f"{service}/{key}") if key in fields else None for key in _S3_KEY_FIELDS]
        return [Secret(f"/{variable}") if self._environ.get(variable) else None for variable in _S3_KEY_VARIABLES]


def _read_credential_field(file: Path, field: str) -> str:
    try:
        return str(_read_credential(file)[field])
    except KeyError:
        raise FailedError("secret_missing", f"the credential {file.name} of the job has no {field!r}") from None


def _read_credential(file: Path) -> Mapping[str, object]:
    """Read a JSON object, as HTCondor's OAuth files and condor_store_cred credentials are."""
    try:
        credential = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(credential, dict):
            raise ValueError("it is not a JSON object")
        return credential
    except (OSError, ValueError, RecursionError) as error:
        raise FailedError("secret_missing", f"the credential {file.name} of the job cannot be read: {error}") from None
