"""Where data comes from and goes: `input`, `inputs`, `output`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from packtrain.spec.models.field_types import (
    Bytes,
    Crc32c,
    FiniteFloat,
    Md5,
    NonEmptyPath,
    NonNegativeInt,
    RelativePath,
    Seconds,
    Sha256,
    SpecModel,
    Str,
    Url,
)

DIGEST_ALGORITHMS = ("sha256", "md5", "crc32c")


def _text_to_mapping(key: str) -> Any:
    """Text stands for a mapping with one key."""

    def convert(value: Any) -> Any:
        return {key: value} if isinstance(value, str) else value

    return convert


def _none_to_empty_mapping(value: Any) -> Any:
    """`key:` with nothing behind it is a mapping without keys."""
    return {} if value is None else value


def _check_bucket_url(value: str) -> str:
    if not value.startswith("s3://") or value.endswith("/") or len(value) < 6:
        raise ValueError(f"{value[:80]!r} should be s3://BUCKET, without a slash at the end")
    return value


def _check_osdf_url(value: str) -> str:
    if not value.startswith(("osdf://", "pelican://")):
        raise ValueError(f"{value[:80]!r} should start with osdf:/// or pelican://")
    return value


def _check_absolute_path(value: str) -> str:
    if not value.startswith("/") or ".." in value.split("/"):
        raise ValueError(f"{value[:80]!r} should start with / and have no `..`")
    return value


class HttpFile(SpecModel):
    """One of several files of an input."""

    url: Url
    """Address of the file."""
    name: RelativePath | None = None
    """Its name below the input's folder; by default the last part of the address."""
    sha256: Sha256 | None = None
    """Digest that the file must have; one of `sha256`, `md5`, `crc32c`, in hexadecimal or base64."""
    md5: Md5 | None = None
    """Its MD5."""
    crc32c: Crc32c | None = Field(default=None, alias="crc32c")
    """Its CRC-32C; for at most 1 GiB."""
    checksums: Url | None = None
    """Address of its checksums file (`packtrain checksums`): bad blocks alone are fetched again."""


class HttpInput(SpecModel):
    """Files from a web server. Give one of `url`, `urls`, `files`."""

    url: Url | None = None
    """Address of the file."""
    urls: Annotated[tuple[Url, ...], Field(min_length=1)] | None = None
    """Mirrors: addresses of one and the same file."""
    files: (
        Annotated[
            tuple[
                Annotated[HttpFile, BeforeValidator(_text_to_mapping("url"), json_schema_input_type=Url | HttpFile)],
                ...,
            ],
            Field(min_length=1),
        ]
        | None
    ) = None
    """Several files; each an address, or `url` with `name` and a digest."""
    headers: dict[Str, Str] = Field(default_factory=dict)
    """Request headers; values may be secrets."""
    token: Str | None = None
    """Bearer token, a secret; sent to the address's own host only."""
    sha256: Sha256 | None = None
    """Digest that the file must have; one of `sha256`, `md5`, `crc32c`, in hexadecimal or base64."""
    md5: Md5 | None = None
    """Its MD5."""
    crc32c: Crc32c | None = Field(default=None, alias="crc32c")
    """Its CRC-32C; for at most 1 GiB."""
    checksums: Url | None = None
    """Address of its checksums file (`packtrain checksums`): bad blocks alone are fetched again."""


class S3Location(SpecModel):
    """Everything below a path of a bucket."""

    region: Str
    """Region of the store, e.g. us-east-2."""
    bucket_url: Annotated[Str, AfterValidator(_check_bucket_url)]
    """s3://BUCKET, without a slash at the end."""
    path: Annotated[Str, AfterValidator(_check_absolute_path)]
    """Path in the bucket, starting with /."""
    endpoint_url: Url
    """Address of the S3 service."""
    access_key_id: Str | None = None
    """Access key; without one, yours as boto3 finds it, or else requests are not signed (public buckets)."""
    secret_access_key: Str | None = None
    """Secret key, a secret."""
    session_token: Str | None = None
    """Session token of temporary credentials, a secret."""
    delete_sync: bool = False
    """Delete at the destination what is gone at the source."""


class OsdfLocation(SpecModel):
    """An object of the Open Science Data Federation. Give one of `url`, `path`."""

    url: Annotated[Str, AfterValidator(_check_osdf_url)] | None = None
    """osdf:///path, or pelican://federation/path."""
    path: Annotated[Str, AfterValidator(_check_absolute_path)] | None = None
    """Path in the federation, starting with /."""
    token: Str | None = None
    """Bearer token, a secret."""


class OsdfInput(OsdfLocation):
    """An object of the Open Science Data Federation; a / at its end or ?recursive means all below it."""

    sha256: Sha256 | None = None
    """Digest that the object must have; one of `sha256`, `md5`, `crc32c`, in hexadecimal or base64."""
    md5: Md5 | None = None
    """Its MD5."""
    crc32c: Crc32c | None = Field(default=None, alias="crc32c")
    """Its CRC-32C; for at most 1 GiB."""
    checksums: Annotated[Str, AfterValidator(_check_osdf_url)] | None = None
    """Address of its checksums file (`packtrain checksums`): bad blocks alone are fetched again."""


class LocalPath(SpecModel):
    """A file or a folder of this machine."""

    path: NonEmptyPath
    """Absolute, or relative to the workflow file's folder."""


class Input(SpecModel):
    """Data that is there before the first step. Give one of `http`, `s3`, `osdf`, `file`."""

    http: HttpInput | None = None
    """Files from a web server."""
    s3: S3Location | None = None
    """Everything below a path of a bucket."""
    osdf: OsdfInput | None = None
    """An object of the Open Science Data Federation."""
    file: LocalPath | None = None
    """A file or folder of this machine."""
    unpack: Literal["auto", "never"] | None = None
    """Unpack archives by type (auto), or leave them (never). Default: auto for files, never for s3 and folders."""
    nested: bool = False
    """A tar of tars: each inner tar becomes a folder."""
    mode: Literal["stage", "stream"] = "stage"
    """stage: copy before the steps start. stream: training reads samples where they are, from $PACKTRAIN_STREAM."""
    folder: RelativePath | None = None
    """Where it lands, below $STORAGE_PATH; by default input, or inputs/NAME."""
    transfer: Literal["auto", "native", "plugin", "agent"] = "auto"
    """Who carries the data: packtrain's agent, or HTCondor (native for files of this machine, plugin for addresses)."""


class HttpOutput(SpecModel):
    """Upload of one file, or of a zip of several, to an address."""

    url: Url
    """Address to which the upload is PUT."""
    headers: dict[Str, Str] = Field(default_factory=dict)
    """Request headers; values may be secrets."""
    token: Str | None = None
    """Bearer token, a secret."""


class Output(SpecModel):
    """Where the output folder goes. Give one of `s3`, `file`, `http`, `osdf`."""

    s3: S3Location | None = None
    """A path of a bucket."""
    file: LocalPath | None = None
    """A folder of this machine."""
    http: HttpOutput | None = None
    """An address that takes one file."""
    osdf: OsdfLocation | None = None
    """A path of the Open Science Data Federation."""
    retry_timeout: Seconds | None = None
    """How long the last copy is tried while nothing gets further, e.g. 2h; by default 5 minutes, here 15 seconds."""


class CheckpointConfig(SpecModel):
    """What the program saves in order to go on later."""

    path: RelativePath
    """File below the output folder; may be a pattern such as ckpt-*.pt."""
    min_interval: Seconds | None = None
    """Carry it away at most so often, e.g. 10m; by default each time that it is saved."""


class Bound(SpecModel):
    """A number in a JSON file: it must be there and finite, and within these."""

    min: FiniteFloat | None = None
    """Least value."""
    max: FiniteFloat | None = None
    """Greatest value."""


class ExpectedOutput(SpecModel):
    """What must exist at the end; otherwise the job has failed."""

    path: RelativePath
    """Below the output folder; may be a pattern such as *.pt."""
    min_size: Bytes = 1
    """Least size of each file, e.g. 1MB."""
    max_size: Bytes | None = None
    """Greatest size of each file."""
    min_count: NonNegativeInt = 1
    """Least number of files."""
    max_count: NonNegativeInt | None = None
    """Greatest number of files."""
    torch: bool = False
    """A file of torch.save that loads with weights_only, has tensors, and only finite values in them."""
    json_bounds: dict[Str, Annotated[Bound, BeforeValidator(_none_to_empty_mapping)]] | None = Field(
        default=None, alias="json"
    )
    """A JSON file; each key (dots lead deeper, e.g. test.accuracy) is a finite number with `min` and `max`."""
    archive: bool = False
    """An archive (tar, zip, gz, bz2, xz) that can be read to its end."""
    command: Str = ""
    """Shell command that must succeed for each file; it is in $PACKTRAIN_FILE."""


ExpectedOutputEntry = Annotated[
    ExpectedOutput, BeforeValidator(_text_to_mapping("path"), json_schema_input_type=Str | ExpectedOutput)
]
