"""Signatures of any request equal those of botocore."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from urllib.parse import quote, urlencode

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.transfer.backends.s3.sigv4 import AwsCredentials, sign_headers

text = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=20)
token = st.text("ABCDEFGHIJabcdefghij0123456789/+=", min_size=1, max_size=40)
values = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20)
header_names = st.sampled_from(["Range", "Content-Type", "X-Amz-Meta-Note", "If-None-Match"])
hosts = ["http://127.0.0.1:8333", "https://s3.example.org", "https://s3.example.org:443", "http://[::1]:9000"]


def botocore_headers(
    method: str, url: str, headers: dict, body: bytes, credentials: AwsCredentials, region: str
) -> dict:
    request = AWSRequest(method=method, url=url, headers=headers, data=body)
    request.context["client_config"] = SimpleNamespace(s3={"payload_signing_enabled": True})
    signer = botocore.auth.S3SigV4Auth(
        Credentials(credentials.access_key, credentials.secret_key, credentials.session_token), "s3", region
    )
    signer.add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


@settings(max_examples=300, deadline=None)
@given(
    method=st.sampled_from(["GET", "PUT", "HEAD", "POST", "DELETE"]),
    host=st.sampled_from(hosts),
    key=text,
    query=st.dictionaries(text.filter(bool), text, max_size=3),
    headers=st.dictionaries(header_names, values, max_size=4),
    body=st.binary(max_size=50),
    credentials=st.builds(AwsCredentials, token, token, st.none() | token),
    region=st.sampled_from(["us-east-1", "eu-central-2"]),
)
def test_signature_equals_botocore(method, host, key, query, headers, body, credentials, region):
    path = quote(f"/bucket/{key}", safe="/-_.~")
    url = f"{host}{path}" + (f"?{urlencode(query, quote_via=quote)}" if query else "")
    reference = botocore_headers(method, url, headers, body, credentials, region)
    payload = hashlib.sha256(body).hexdigest()
    signed = sign_headers(method, url, headers, payload, credentials, region, reference["x-amz-date"])
    assert {name.lower(): value for name, value in signed.items()} == {
        name: reference[name] for name in reference if name not in {header.lower() for header in headers}
    }
