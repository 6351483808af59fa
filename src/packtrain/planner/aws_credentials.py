"""S3 keys that the workflow does not name: those of this user, as boto3 finds them.

Looked for in the environment, in the profiles of ~/.aws, and in SSO sessions; not at the machine's metadata
service, which would cost every other machine seconds. The plan gets references, `${aws:…}`, that are read when the
run starts and again when it is resumed."""

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
    """References to this user's access key, secret key and session token; None for what there is not."""
    # Asked for each of many jobs, while looking takes a tenth of a second.
    return _cached_credential_references(
        tuple(sorted(item for item in os.environ.items() if item[0].startswith(_RELEVANT_VARIABLE_PREFIXES)))
    )


@functools.lru_cache(maxsize=1)
def _cached_credential_references(environ: tuple[tuple[str, str], ...]) -> tuple[str | None, str | None, str | None]:
    found = _load_credentials()
    if found is None:
        return None, None, None
    return ACCESS_KEY_REFERENCE, SECRET_KEY_REFERENCE, SESSION_TOKEN_REFERENCE if found.token else None


def resolve_credential(name: str) -> str:
    """The value of `${aws:name}`. Raises LookupError with a sentence and a hint."""
    if name not in _BOTO_ATTRIBUTES:
        raise LookupError(f"${{aws:{name}}}, which is none of {', '.join(_BOTO_ATTRIBUTES)}", "mend the name")
    value = getattr(_load_credentials(), _BOTO_ATTRIBUTES[name], None)
    if not value:
        raise LookupError(f"the {name} of your AWS credentials, which boto3 does not find", _HINT)
    return str(value)


def _load_credentials() -> Any:
    """Frozen, so that its parts belong together; None without boto3 or without credentials."""
    try:
        import boto3  # type: ignore[import-untyped]
        from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
        from botocore.session import Session  # type: ignore[import-untyped]
    except ImportError:
        return None
    try:
        session = Session()
        session.get_component("credential_provider").remove("iam-role")
        found = boto3.Session(botocore_session=session).get_credentials()
        return found.get_frozen_credentials() if found else None
    except BotoCoreError as error:
        raise LookupError(f"AWS credentials, which boto3 cannot get ({error})", _HINT) from error
