"""What an address of a submit file stands for, and what lets one in there.

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
from packtrain.plan import Ref, S3Access, Secret, Text
from packtrain.transfer.bearer_tokens import credential_file, named_token
from packtrain.transfer.urls import shown

SCHEMES = ("osdf", "pelican", "http", "https", "s3")
_AMAZON = re.compile(r"(?:(?P<bucket>[^/]+?)\.)?s3[.-](?:(?P<region>[a-z0-9-]+)\.)?amazonaws\.com(?:\.cn)?")
_S3_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_S3_KEYS = ("access_key_id", "secret_access_key", "session_token")
_DEFAULT_REGION = "us-east-1"


class Access:
    """Makes refs of addresses, and reveals their secrets anew for each connection: HTCondor renews them."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ

    def ref(self, url: str) -> Ref:
        """Raises FailedError: unsupported."""
        scheme, colon, rest = url.partition("://")
        name, _, scheme = scheme.rpartition("+")
        if not colon or scheme.lower() not in SCHEMES:
            raise FailedError("unsupported", f"{shown(url)} is no address of {', '.join(SCHEMES)}")
        plain = f"{scheme.lower()}://{rest}"
        if scheme.lower() == "s3":
            return self._s3(rest, name)
        return Ref(plain, token=Secret(name) if name else None)

    def reveal(self, text: Text) -> str:
        if not isinstance(text, Secret):
            return text
        name, slash, key = text.name.partition("/")
        if not slash:
            return named_token(name, self._environ)
        return self._environ[key] if not name else _key_of(credential_file(name, self._environ), key)

    def _s3(self, rest: str, name: str) -> Ref:
        host, _, path = rest.partition("/")
        region = self._environ.get("AWS_REGION") or self._environ.get("AWS_DEFAULT_REGION") or _DEFAULT_REGION
        endpoint = self._environ.get("AWS_ENDPOINT_URL_S3") or self._environ.get("AWS_ENDPOINT_URL") or ""
        amazon = _AMAZON.fullmatch(host)
        if amazon:
            region = amazon.group("region") or region
            host, _, path = (amazon.group("bucket"), "", path) if amazon.group("bucket") else path.partition("/")
            endpoint = ""
        elif not endpoint and "." in host:  # as HTCondor reads it: the service comes first
            endpoint = f"https://{host}"
            host, _, path = path.partition("/")
        endpoint = (endpoint or f"https://s3.{region}.amazonaws.com").rstrip("/")
        return Ref(f"s3://{host}/{path}", s3=S3Access(region, endpoint, *self._s3_keys(name)))

    def _s3_keys(self, name: str) -> list[Secret | None]:
        """None: requests are not signed."""
        if name:
            given = _read(credential_file(name, self._environ))
            return [Secret(f"{name}/{key}") if key in given else None for key in _S3_KEYS]
        return [Secret(f"/{variable}") if self._environ.get(variable) else None for variable in _S3_VARIABLES]


def _key_of(file: Path, key: str) -> str:
    try:
        return str(_read(file)[key])
    except KeyError:
        raise FailedError("secret_missing", f"the credential {file.name} of the job has no {key!r}") from None


def _read(file: Path) -> Mapping[str, object]:
    """A JSON object; HTCondor's oauth files are some, and so is what a user stores with condor_store_cred."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it is no JSON object")
        return found
    except (OSError, ValueError, RecursionError) as error:
        raise FailedError("secret_missing", f"the credential {file.name} of the job cannot be read: {error}") from None
