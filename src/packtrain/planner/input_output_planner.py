"""Plan the inputs and outputs of a job: all URLs complete, all local paths absolute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from packtrain import plan
from packtrain.errors import UsageError
from packtrain.planner import stream_planner
from packtrain.planner.credentials.aws_credentials import credential_references
from packtrain.planner.local_paths import FILE, FOLDER, OTHER, classify_path, resolve_path
from packtrain.planner.plan_context import JobContext
from packtrain.spec.diagnostics import KeyPath, format_key_path
from packtrain.spec.models import inputs_outputs
from packtrain.spec.models.pixi import PixiServer
from packtrain.spec.models.workflow import Workflow
from packtrain.spec.secret_references import is_secret_header
from packtrain.transfer.archive.formats import format_from_name
from packtrain.transfer.urls import filename_from_url, is_folder_url, normalize_osdf_url

_PLUGIN_ENGINE = "htcondor"
_RESERVED_FOLDERS = ("output", "tmp", "reusable-inputs", "streams")  # used by the agent in the sandbox


@dataclass(frozen=True)
class _InputContents:
    """The files of an input, or the prefix that contains them."""

    files: tuple[plan.RemoteFile, ...] = ()
    prefix: plan.Location | None = None


def plan_inputs(workflow: Workflow, context: JobContext) -> tuple[plan.Input, ...]:
    """Plan `input` and `inputs`."""
    specs: list[tuple[str, inputs_outputs.Input, KeyPath]] = (
        [("", workflow.input, ("input",))] if workflow.input else []
    )
    specs += [(name, spec, ("inputs", name)) for name, spec in workflow.inputs.items()]
    return tuple(_plan_input(name, spec, key_path, workflow.input_mode, context) for name, spec, key_path in specs)


def _plan_input(
    name: str, spec: inputs_outputs.Input, key_path: KeyPath, chmod: int | None, context: JobContext
) -> plan.Input:
    kind = next(kind for kind in _CONTENT_PLANNERS if getattr(spec, kind) is not None)
    contents = _CONTENT_PLANNERS[kind](getattr(spec, kind), (*key_path, kind), context)
    if spec.mode == stream_planner.STREAM:
        contents = _plan_stream_contents(contents, key_path, context)
    else:
        _reject_crc32c(contents, getattr(spec, kind), (*key_path, kind), context)
    unpack = spec.unpack or ("never" if contents.prefix or spec.mode == stream_planner.STREAM else "auto")
    if unpack == "auto":
        _warn_about_archive_tools(contents, key_path, context)
    return plan.Input(
        name=name,
        folder=_input_folder(name, spec, key_path, context),
        files=contents.files,
        prefix=contents.prefix,
        unpack=unpack,
        nested=spec.nested,
        mode=spec.mode,
        transfer="plugin" if spec.plugin and context.plan_context.engine == _PLUGIN_ENGINE else spec.transfer,
        chmod=chmod,
        snapshot=spec.file is not None and spec.file.snapshot,
    )


def _input_folder(name: str, spec: inputs_outputs.Input, key_path: KeyPath, context: JobContext) -> str:
    """Return the input's folder in the sandbox; folders of the agent are rejected."""
    if spec.folder is None:
        return f"inputs/{name}" if name else "input"
    filled = PurePosixPath(context.fill_placeholders(spec.folder))
    if filled.is_absolute() or ".." in filled.parts or not filled.parts or filled.parts[0] in _RESERVED_FOLDERS:
        message = f"{format_key_path((*key_path, 'folder'))}: {filled} cannot be the folder of an input"
        context.report.error((*key_path, "folder"), message, "choose another name, for example work")
    return str(filled)


def _plan_stream_contents(contents: _InputContents, key_path: KeyPath, context: JobContext) -> _InputContents:
    """Return the archives or the folder that a training streams from."""
    for location in [contents.prefix] if contents.prefix else [file.locations[0] for file in contents.files]:
        if stream_planner.is_compressed(location.url):
            message = f"{filename_from_url(location.url)} is compressed, so single samples cannot be read from it"
            context.report.error((*key_path, "mode"), message, "use `mode: stage`, or repack it as a plain tar")
    for file in contents.files:
        if file.digest is not None:
            message = (
                f"with `mode: stream` {file.name} is not read completely, so its {file.digest.algorithm} is not checked"
            )
            context.report.warning(key_path, message, "remove it, or use `mode: stage`")
        if file.checksums is not None:
            message = f"with `mode: stream` the checksums file of {file.name} is expected next to it"
            context.report.warning(key_path, message, "remove `checksums`, or use `mode: stage`")
    try:
        if contents.prefix is not None:
            return _InputContents(*stream_planner.resolve_stream_prefix(contents.prefix))
        return _InputContents(tuple(shard for file in contents.files for shard in stream_planner.expand_shards(file)))
    except UsageError as error:
        context.report.error(key_path, str(error))
        return contents


def _reject_crc32c(contents: _InputContents, spec: object, key_path: KeyPath, context: JobContext) -> None:
    """Report digests that no job can check: the agent uses the standard library only, which has no crc32c."""
    for position, file in enumerate(contents.files):
        if file.digest is not None and file.digest.algorithm == "crc32c":
            parent = (*key_path, "files", position) if getattr(spec, "files", ()) else key_path
            message = f"a job cannot check the crc32c of {file.name}, because Python has no crc32c"
            context.report.error((*parent, "crc32c"), message, "give its sha256 or md5 instead")


def _warn_about_archive_tools(contents: _InputContents, key_path: KeyPath, context: JobContext) -> None:
    for file in contents.files:
        archive_format = format_from_name(file.name)
        if archive_format and archive_format.tool:
            message = f"{file.name} can be unpacked only on nodes that have the program {archive_format.tool}"
            context.report.warning(key_path, message, "convert it to a tar or zip, or set `unpack: never`")


def _http_contents(spec: inputs_outputs.HttpInput, key_path: KeyPath, context: JobContext) -> _InputContents:
    if spec.files:
        files = tuple(_http_file((f.url,), f.name, f, spec, key_path, context) for f in spec.files)
        _check_unique_names(files, key_path, context)
        return _InputContents(files)
    urls = spec.urls or (spec.url or "",)
    return _InputContents((_http_file(urls, None, spec, spec, key_path, context),))


def _http_file(
    urls: tuple[str, ...],
    name: str | None,
    digest_spec: inputs_outputs.HttpFile | inputs_outputs.HttpInput,
    access: inputs_outputs.HttpInput,
    key_path: KeyPath,
    context: JobContext,
) -> plan.RemoteFile:
    locations = tuple(_http_location(url, access, key_path, context) for url in urls)
    checksums = _http_location(digest_spec.checksums, access, key_path, context) if digest_spec.checksums else None
    return plan.RemoteFile(
        context.fill_placeholders(name) if name else filename_from_url(locations[0].url),
        locations,
        None,
        _find_digest(digest_spec),
        checksums,
    )


def _http_location(
    url: str, access: inputs_outputs.HttpInput | inputs_outputs.HttpOutput, key_path: KeyPath, context: JobContext
) -> plan.Location:
    headers = tuple(
        plan.HttpHeader(name, context.register_secret(value, (*key_path, "headers", name), is_secret_header(name)))
        for name, value in access.headers.items()
    )
    return plan.Location(
        context.fill_placeholders(url),
        headers=headers,
        token=context.register_optional_secret(access.token, (*key_path, "token")),
    )


def _check_unique_names(files: tuple[plan.RemoteFile, ...], key_path: KeyPath, context: JobContext) -> None:
    seen: set[str] = set()
    for position, file in enumerate(files):
        if file.name in seen:
            message = f"two files of {format_key_path(key_path)} have the name {file.name}"
            context.report.error((*key_path, "files", position), message, "give one of them a `name`")
        seen.add(file.name)


def _find_digest(
    spec: inputs_outputs.HttpFile | inputs_outputs.HttpInput | inputs_outputs.OsdfInput,
) -> plan.Digest | None:
    return next(
        (plan.Digest(name, value) for name in inputs_outputs.DIGEST_ALGORITHMS if (value := getattr(spec, name))), None
    )


def _s3_contents(spec: inputs_outputs.S3Location, key_path: KeyPath, context: JobContext) -> _InputContents:
    return _InputContents(prefix=_s3_location(spec, key_path, context))


def _s3_location(spec: inputs_outputs.S3Location, key_path: KeyPath, context: JobContext) -> plan.Location:
    credentials = (spec.access_key_id, spec.secret_access_key, spec.session_token)
    access, secret, session = credentials if any(credentials) else _user_credentials(key_path, context)
    s3 = plan.S3Access(
        region=spec.region,
        endpoint=spec.endpoint_url.rstrip("/"),
        access_key=context.register_optional_secret(access, (*key_path, "accessKeyId"), confidential=False),
        secret_key=context.register_optional_secret(secret, (*key_path, "secretAccessKey")),
        session_token=context.register_optional_secret(session, (*key_path, "sessionToken")),
    )
    return plan.Location(context.fill_placeholders(spec.bucket_url + spec.path), s3=s3)


def _user_credentials(key_path: KeyPath, context: JobContext) -> tuple[str | None, str | None, str | None]:
    try:
        return credential_references()
    except LookupError as error:
        reason, hint = error.args
        context.report.warning(
            key_path, f"{format_key_path(key_path)} would use {reason}; requests are not signed", hint
        )
        return None, None, None


def _osdf_contents(spec: inputs_outputs.OsdfInput, key_path: KeyPath, context: JobContext) -> _InputContents:
    location, digest = _osdf_location(spec, key_path, context), _find_digest(spec)
    if not is_folder_url(location.url):
        checksums = (
            replace(location, url=normalize_osdf_url(context.fill_placeholders(spec.checksums)))
            if spec.checksums
            else None
        )
        return _InputContents((plan.RemoteFile(filename_from_url(location.url), (location,), None, digest, checksums),))
    if spec.checksums is not None:
        context.report.error(
            (*key_path, "checksums"), "a checksums file belongs to one object, but the URL is a folder"
        )
    if digest is not None:
        message = f"{digest.algorithm} is the digest of one object, but the URL is a folder"
        context.report.error((*key_path, digest.algorithm), message)
    return _InputContents(prefix=location)


def _osdf_location(spec: inputs_outputs.OsdfLocation, key_path: KeyPath, context: JobContext) -> plan.Location:
    url = normalize_osdf_url(context.fill_placeholders(spec.url or f"osdf://{spec.path}"))
    return plan.Location(url, token=context.register_optional_secret(spec.token, (*key_path, "token")))


def _file_contents(spec: inputs_outputs.LocalInput, key_path: KeyPath, context: JobContext) -> _InputContents:
    path = resolve_path(context.base_dir, context.fill_placeholders(spec.path))
    location = plan.Location(path.as_uri())
    kind, reason = classify_path(path)
    if kind == FOLDER:
        if spec.snapshot:
            context.report.error(
                (*key_path, "snapshot"), f"{path} is a folder; only a file can be copied", "remove the key"
            )
        return _InputContents(prefix=location)
    if kind != FILE:
        message = f"{path} {reason or 'is neither a file nor a folder'}"
        context.report.error((*key_path, "path"), message, "paths are relative to the workflow file")
    return _InputContents((plan.RemoteFile(path.name or "data", (location,)),))


def _plugin_contents(spec: inputs_outputs.PluginUrl, key_path: KeyPath, context: JobContext) -> _InputContents:
    """Plan a URL for HTCondor's plugins. Other engines can use it only if it is a file of this machine."""
    url, engine = context.fill_placeholders(spec.url), context.plan_context.engine
    name = PurePosixPath(urlsplit(url).path).name
    if engine != _PLUGIN_ENGINE and not (url.lower().startswith("file:") and Path(urlsplit(url).path).is_file()):
        message = f"{url} can be fetched only by the transfer plugins of an HTCondor pool, not with `--on {engine}`"
        context.report.error((*key_path, "url"), message, "use --on htcondor")
    if not name:
        context.report.error((*key_path, "url"), f"{url} names no file")
    return _InputContents((plan.RemoteFile(name or "data", (plan.Location(url),)),))


def plan_output(workflow: Workflow, context: JobContext) -> plan.Output | None:
    """Plan `output`; without one, the run's folder."""
    if workflow.output is None:
        return _default_output(context)
    output = workflow.output
    location = plan_location(output, ("output",), context)
    delete = bool(output.s3 and output.s3.delete_sync)
    continuous = workflow.continuous_output_sync and bool(output.s3 or output.file)
    return plan.Output(location, continuous_sync=continuous, delete_sync=delete, retry_timeout_s=output.retry_timeout)


def plan_location(spec: inputs_outputs.Output | PixiServer, key_path: KeyPath, context: JobContext) -> plan.Location:
    """Return the location that one of the keys `s3`, `file`, `http`, `osdf` describes."""
    kind = next(kind for kind in _OUTPUT_PLANNERS if getattr(spec, kind) is not None)
    return _OUTPUT_PLANNERS[kind](getattr(spec, kind), (*key_path, kind), context)


def _default_output(context: JobContext) -> plan.Output | None:
    """Return the run's folder, which the agent writes to if it is shared, else the engine after retrieval."""
    folder = context.plan_context.run_folder.job_output(context.template_values["job"])
    return plan.Output(plan.Location(folder.absolute().as_uri()))


def _file_output_location(spec: inputs_outputs.LocalPath, key_path: KeyPath, context: JobContext) -> plan.Location:
    path = resolve_path(context.base_dir, context.fill_placeholders(spec.path))
    if classify_path(path)[0] in (FILE, OTHER):
        context.report.error((*key_path, "path"), f"{path} is a file; outputs need a folder")
    return plan.Location(path.as_uri())


def _http_output_location(spec: inputs_outputs.HttpOutput, key_path: KeyPath, context: JobContext) -> plan.Location:
    return _http_location(spec.url, spec, key_path, context)


_CONTENT_PLANNERS: dict[str, Callable[..., _InputContents]] = {
    "http": _http_contents,
    "s3": _s3_contents,
    "osdf": _osdf_contents,
    "file": _file_contents,
    "plugin": _plugin_contents,
}
_OUTPUT_PLANNERS: dict[str, Callable[..., plan.Location]] = {
    "s3": _s3_location,
    "file": _file_output_location,
    "http": _http_output_location,
    "osdf": _osdf_location,
}
