"""Models of inputs, outputs, checkpoints and expected outputs."""

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
    """Return a converter from text to a mapping with one key."""

    def convert(value: Any) -> Any:
        return {key: value} if isinstance(value, str) else value

    return convert


def _none_to_empty_mapping(value: Any) -> Any:
    """Treat `key:` without a value as an empty mapping."""
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
    """URL of the file."""
    name: RelativePath | None = None
    """Its name below the input's folder (default: the last part of the URL)."""
    sha256: Sha256 | None = None
    """Required digest: one of `sha256`, `md5`, `crc32c`, in hexadecimal or base64."""
    md5: Md5 | None = None
    """Its MD5."""
    crc32c: Crc32c | None = Field(default=None, alias="crc32c")
    """Its CRC-32C; for at most 1 GiB."""
    checksums: Url | None = None
    """URL of its block checksums (`packtrain checksums`), with which only bad blocks are fetched again."""


class HttpInput(SpecModel):
    """Files from a web server. Give one of `url`, `urls`, `files`."""

    url: Url | None = None
    """URL of the file."""
    urls: Annotated[tuple[Url, ...], Field(min_length=1)] | None = None
    """Mirrors: URLs of the same file."""
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
    """Several files; each a URL, or `url` with `name` and a digest."""
    headers: dict[Str, Str] = Field(default_factory=dict)
    """Request headers; values may be secrets."""
    token: Str | None = None
    """Bearer token, a secret; sent only to the host of the URL."""
    sha256: Sha256 | None = None
    """Required digest: one of `sha256`, `md5`, `crc32c`, in hexadecimal or base64."""
    md5: Md5 | None = None
    """Its MD5."""
    crc32c: Crc32c | None = Field(default=None, alias="crc32c")
    """Its CRC-32C; for at most 1 GiB."""
    checksums: Url | None = None
    """URL of its block checksums (`packtrain checksums`), with which only bad blocks are fetched again."""


class S3Location(SpecModel):
    """All objects below a path of a bucket."""

    region: Str
    """Region, e.g. us-east-2."""
    bucket_url: Annotated[Str, AfterValidator(_check_bucket_url)]
    """s3://BUCKET, without a slash at the end."""
    path: Annotated[Str, AfterValidator(_check_absolute_path)]
    """Path in the bucket, starting with /."""
    endpoint_url: Url
    """URL of the S3 service."""
    access_key_id: Str | None = None
    """Access key (default: as boto3 finds it, else unsigned requests for public buckets)."""
    secret_access_key: Str | None = None
    """Secret key, a secret."""
    session_token: Str | None = None
    """Session token of temporary credentials, a secret."""
    delete_sync: bool = False
    """Delete objects at the destination that were deleted at the source."""


class OsdfLocation(SpecModel):
    """An object of the Open Science Data Federation. Give one of `url`, `path`."""

    url: Annotated[Str, AfterValidator(_check_osdf_url)] | None = None
    """osdf:///path, or pelican://federation/path."""
    path: Annotated[Str, AfterValidator(_check_absolute_path)] | None = None
    """Path in the federation, starting with /."""
    token: Str | None = None
    """Bearer token, a secret."""


class OsdfInput(OsdfLocation):
    """An object of the Open Science Data Federation; a trailing / or ?recursive means all objects below it."""

    sha256: Sha256 | None = None
    """Required digest: one of `sha256`, `md5`, `crc32c`, in hexadecimal or base64."""
    md5: Md5 | None = None
    """Its MD5."""
    crc32c: Crc32c | None = Field(default=None, alias="crc32c")
    """Its CRC-32C; for at most 1 GiB."""
    checksums: Annotated[Str, AfterValidator(_check_osdf_url)] | None = None
    """URL of its block checksums (`packtrain checksums`), with which only bad blocks are fetched again."""


class LocalPath(SpecModel):
    """A file or folder on this machine."""

    path: NonEmptyPath
    """Absolute, or relative to the workflow file's folder."""


class LocalInput(LocalPath):
    """A file or folder on this machine."""

    snapshot: bool = False
    """Copy the file when the run is created, so that later changes do not affect its jobs."""


class PluginUrl(SpecModel):
    """A URL that only the transfer plugins of an HTCondor pool can fetch."""

    url: Annotated[Str, Field(pattern=r"^[A-Za-z][A-Za-z0-9.+-]*://\S+$")]
    """For example file:///staging/me/data.tar, a path on the execution points."""


class Input(SpecModel):
    """Data that is available before the first step. Give one of `http`, `s3`, `osdf`, `file`, `plugin`."""

    http: HttpInput | None = None
    """Files from a web server."""
    s3: S3Location | None = None
    """All objects below a path of a bucket."""
    osdf: OsdfInput | None = None
    """An object of the Open Science Data Federation."""
    file: LocalInput | None = None
    """A file or folder on this machine."""
    plugin: PluginUrl | None = None
    """A URL of another kind, for the transfer plugins of an HTCondor pool."""
    unpack: Literal["auto", "never"] | None = None
    """Unpack archives (auto) or not (never). Default: auto for files, never for s3 and folders."""
    nested: bool = False
    """A tar of tars: each inner tar becomes a folder."""
    mode: Literal["stage", "stream"] = "stage"
    """stage: copy before the steps start. stream: the training reads samples remotely, see $PACKTRAIN_STREAM."""
    folder: RelativePath | None = None
    """Its folder below $STORAGE_PATH (default: input, or inputs/NAME)."""
    transfer: Literal["auto", "condor", "plugin", "agent"] = "auto"
    """Who transfers it: agent, or HTCondor (condor: files of this machine; plugin: URLs)."""


class HttpOutput(SpecModel):
    """Upload of one file, or of a zip of several, to a URL."""

    url: Url
    """URL for the PUT request."""
    headers: dict[Str, Str] = Field(default_factory=dict)
    """Request headers; values may be secrets."""
    token: Str | None = None
    """Bearer token, a secret."""


class Output(SpecModel):
    """Destination of the output folder. Give one of `s3`, `file`, `http`, `osdf`."""

    s3: S3Location | None = None
    """A path in a bucket."""
    file: LocalPath | None = None
    """A folder on this machine."""
    http: HttpOutput | None = None
    """A URL that accepts one file."""
    osdf: OsdfLocation | None = None
    """A path in the Open Science Data Federation."""
    retry_timeout: Seconds | None = None
    """How long the final upload is retried without progress, e.g. 2h (default 5m; 15s locally)."""


class CheckpointConfig(SpecModel):
    """The checkpoint files that the program saves. Give one of `path`, `paths`."""

    path: RelativePath | None = None
    """File below the output folder; may be a pattern such as ckpt-*.pt."""
    paths: Annotated[tuple[RelativePath, ...], Field(min_length=1)] | None = None
    """Several files or patterns that together are one checkpoint."""
    folder: RelativePath = "output"
    """Folder of the sandbox that the paths are relative to, e.g. the `workDir` of the step."""
    when: Literal["saved", "exit", "exitOrEvict"] = "saved"
    """When the files are a checkpoint: `saved` (whenever they changed), `exit` (after `exitCode` only) or
    `exitOrEvict` (also when the job is stopped)."""
    exit_code: Annotated[int, Field(ge=0, le=255)] = 85
    """Exit code of a program that saved a checkpoint and wants to continue; 0: it has none."""
    min_interval: Seconds | None = None
    """Minimum time between uploads, e.g. 10m (default: every checkpoint is uploaded)."""


class Bound(SpecModel):
    """Bounds of a number in a JSON file, which must exist and be finite."""

    min: FiniteFloat | None = None
    """Minimum value."""
    max: FiniteFloat | None = None
    """Maximum value."""


class ExpectedOutput(SpecModel):
    """A file that must exist at the end; otherwise the job has failed."""

    path: RelativePath
    """Below the output folder; may be a pattern such as *.pt."""
    min_size: Bytes = 1
    """Minimum size of each file, e.g. 1MB."""
    max_size: Bytes | None = None
    """Maximum size of each file."""
    min_count: NonNegativeInt = 1
    """Minimum number of files."""
    max_count: NonNegativeInt | None = None
    """Maximum number of files."""
    torch: bool = False
    """The file is from torch.save, loads with weights_only, and has tensors with finite values only."""
    json_bounds: dict[Str, Annotated[Bound, BeforeValidator(_none_to_empty_mapping)]] | None = Field(
        default=None, alias="json"
    )
    """The file is JSON; each key (with dots, e.g. test.accuracy) is a finite number within `min` and `max`."""
    archive: bool = False
    """The file is a complete archive (tar, zip, gz, bz2, xz)."""
    command: Str = ""
    """Shell command that must succeed for each file, whose path is in $PACKTRAIN_FILE."""


ExpectedOutputEntry = Annotated[
    ExpectedOutput, BeforeValidator(_text_to_mapping("path"), json_schema_input_type=Str | ExpectedOutput)
]
