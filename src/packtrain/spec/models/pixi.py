"""Models of Pixi environments."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from packtrain.spec.models.field_types import FolderName, NonEmptyPath, RelativePath, SpecModel, Str, Url
from packtrain.spec.models.inputs_outputs import HttpOutput, LocalPath, OsdfLocation, S3Location


def _text_to_server(value: Any) -> Any:
    """Return text as the key that its beginning names."""
    if not isinstance(value, str):
        return value
    if value.startswith(("http://", "https://")):
        return {"http": {"url": value}}
    return {"osdf": {"url": value}} if value.startswith(("osdf://", "pelican://")) else {"file": {"path": value}}


def _check_manifest(value: str) -> str:
    if not value.endswith(".toml"):
        raise ValueError(f"{value[:80]!r} should be a pixi.toml or pyproject.toml")
    return value


class PixiServer(SpecModel):
    """A place that has packages. Give one of `http`, `s3`, `osdf`, `file`."""

    http: HttpOutput | None = None
    """A folder of a web server."""
    s3: S3Location | None = None
    """A path in a bucket."""
    osdf: OsdfLocation | None = None
    """A path in the Open Science Data Federation."""
    file: LocalPath | None = None
    """A folder that all nodes see."""


class PixiConfig(SpecModel):
    """A locked environment of a Pixi workspace."""

    manifest: Annotated[NonEmptyPath, AfterValidator(_check_manifest)] = "pixi.toml"
    """The pixi.toml or pyproject.toml, with pixi.lock next to it; relative to the workflow file."""
    environment: FolderName = "default"
    """Name of the environment."""
    mirrors: dict[
        Url, Annotated[PixiServer, BeforeValidator(_text_to_server, json_schema_input_type=Str | PixiServer)]
    ] = Field(default_factory=dict)
    """Servers that are tried first, by the URL of the channel or index that they mirror."""
    store: Annotated[PixiServer, BeforeValidator(_text_to_server)] | None = None
    """A place that gets every package once, at submission, and from which jobs fetch: `s3`, `osdf` or `file`."""
    use: Literal["install", "site"] = "install"
    """install: the agent installs the packages. site: the node's own `pixi` does."""
    files: tuple[RelativePath, ...] = ()
    """Files of the workspace that jobs get (default: all that git does not ignore)."""
