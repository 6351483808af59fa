"""The user's own S3 credentials, as boto3 finds them, for workflows without keys.

boto3 reads the environment, the profiles of ~/.aws and SSO sessions; the metadata service is not asked, because that
takes seconds on machines without one. The plan contains references, `${aws:…}`, which are read when the run starts and
when it is resumed.
"""

from __future__ import annotations

import functools
import os
from typing import Any

ACCESS_KEY_REFERENCE, SECRET_KEY_REFERENCE, SESSION_TOKEN_REFERENCE = (
    "${aws:accessKeyId}",
    "${aws:secretAccessKey}",
    "${aws:sessionToken}",
)
_BOTO_ATTRIBUTES = {"accessKeyId": "access_key", "secretAccessKey": "secret_key", "sessionToken": "token"}
_RELEVANT_VARIABLE_PREFIXES = ("AWS_", "HOME")
_HINT = "run `aws configure` or `aws sso login`, or name the keys in the workflow"


def credential_references() -> tuple[str | None, str | None, str | None]:
    """Return references to the user's access key, secret key and session token; None for missing ones."""
    # Cached, because every job asks and boto3 takes a tenth of a second.
    return _cached_credential_references(
        tuple(sorted(item for item in os.environ.items() if item[0].startswith(_RELEVANT_VARIABLE_PREFIXES)))
    )


@functools.lru_cache(maxsize=1)
def _cached_credential_references(environ: tuple[tuple[str, str], ...]) -> tuple[str | None, str | None, str | None]:
    credentials = _load_credentials()
    if credentials is None:
        return None, None, None
    return ACCESS_KEY_REFERENCE, SECRET_KEY_REFERENCE, SESSION_TOKEN_REFERENCE if credentials.token else None


def resolve_credential(name: str) -> str:
    """Return the value of `${aws:name}`. Raises LookupError with a reason and a hint."""
    if name not in _BOTO_ATTRIBUTES:
        raise LookupError(f"${{aws:{name}}}, which is none of {', '.join(_BOTO_ATTRIBUTES)}", "correct the name")
    value = getattr(_load_credentials(), _BOTO_ATTRIBUTES[name], None)
    if not value:
        raise LookupError(f"the {name} of your AWS credentials, which boto3 cannot find", _HINT)
    return str(value)


def _load_credentials() -> Any:
    """Return a consistent set of credentials, or None without boto3 or credentials."""
    try:
        import boto3  # type: ignore[import-untyped]
        from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
        from botocore.session import Session  # type: ignore[import-untyped]
    except ImportError:
        return None
    try:
        session = Session()
        session.get_component("credential_provider").remove("iam-role")
        credentials = boto3.Session(botocore_session=session).get_credentials()
        return credentials.get_frozen_credentials() if credentials else None
    except BotoCoreError as error:
        raise LookupError(f"AWS credentials, which boto3 cannot get ({error})", _HINT) from error
