"""AWS Signature Version 4 as a pure function of request, keys and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlsplit

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_ALGORITHM = "AWS4-HMAC-SHA256"
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class AwsCredentials:
    """An access key, its secret key, and the session token of temporary credentials."""

    access_key: str
    secret_key: str
    session_token: str | None = None


def sign_headers(
    method: str,
    url: str,
    headers: Mapping[str, str],
    payload_sha256: str,
    credentials: AwsCredentials,
    region: str,
    timestamp: str,
) -> dict[str, str]:
    """Return the headers to add, including Authorization.

    Args:
        method: The HTTP method.
        url: The URL of the request.
        headers: Further headers to sign.
        payload_sha256: The SHA-256 of the body, in hex.
        credentials: The keys.
        region: The AWS region.
        timestamp: The time in the form 20240131T235959Z.
    """
    added = {"X-Amz-Date": timestamp, "X-Amz-Content-SHA256": payload_sha256}
    if credentials.session_token:
        added["X-Amz-Security-Token"] = credentials.session_token
    signed = {name.lower(): " ".join(value.split()) for name, value in {**headers, **added}.items()}
    signed["host"] = _host_header(url)
    names = ";".join(sorted(signed))
    scope = f"{timestamp[:8]}/{region}/s3/aws4_request"
    text = "\n".join((_ALGORITHM, timestamp, scope, _sha256(_canonical_request(method, url, signed, payload_sha256))))
    signature = _hmac(_signing_key(credentials.secret_key, timestamp[:8], region), text).hex()
    credential = f"{credentials.access_key}/{scope}"
    added["Authorization"] = f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return added


def _canonical_request(method: str, url: str, headers: Mapping[str, str], payload_sha256: str) -> str:
    parts = urlsplit(url)
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(parts.query, True))
    query = "&".join(f"{key}={value}" for key, value in pairs)
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    return "\n".join((method, parts.path or "/", query, lines, ";".join(sorted(headers)), payload_sha256))


def _host_header(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    default = f":{_DEFAULT_PORTS.get(parts.scheme)}"
    return host[: -len(default)] if host.endswith(default) else host


def _signing_key(secret_key: str, date: str, region: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in (date, region, "s3", "aws4_request"):
        key = _hmac(key, part)
    return key


def _hmac(key: bytes, text: str) -> bytes:
    import hmac

    return hmac.digest(key, text.encode(), "sha256")


def _sha256(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()
