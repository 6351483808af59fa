"""Inputs and outputs of one job: every address complete, every local path absolute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from packtrain import plan
from packtrain.errors import UsageError
from packtrain.planner import stream_planner
from packtrain.planner.aws_credentials import own_references
from packtrain.planner.local_paths import FILE, FOLDER, OTHER, absolute, look
from packtrain.planner.plan_context import JobContext
from packtrain.spec.diagnostics import Path as Keys
from packtrain.spec.diagnostics import shown
from packtrain.spec.models import inputs_outputs
from packtrain.spec.models.workflow import Workflow
from packtrain.spec.secret_references import is_secret_header
from packtrain.transfer.urls import is_folder, name_of, rooted

_NOT_FOR_INPUTS = ("output", "tmp", "kept", "streams")  # the agent's own folders of the sandbox
_NEEDS_TOOL = {".7z": "7z", ".rar": "unrar"}


@dataclass(frozen=True)
class _Contents:
    items: tuple[plan.Item, ...] = ()
    prefix: plan.Ref | None = None


def plan_inputs(workflow: Workflow, job: JobContext) -> tuple[plan.Input, ...]:
    given: list[tuple[str, inputs_outputs.Input, Keys]] = [("", workflow.input, ("input",))] if workflow.input else []
    given += [(name, source, ("inputs", name)) for name, source in workflow.inputs.items()]
    return tuple(_input(name, source, keys, workflow.input_mode, job) for name, source, keys in given)


def _input(name: str, source: inputs_outputs.Input, keys: Keys, chmod: int | None, job: JobContext) -> plan.Input:
    kind = next(kind for kind in _CONTENTS if getattr(source, kind) is not None)
    contents = _CONTENTS[kind](getattr(source, kind), (*keys, kind), job)
    if source.mode == stream_planner.STREAM:
        contents = _to_stream(contents, keys, job)
    unpack = source.unpack or ("never" if contents.prefix or source.mode == stream_planner.STREAM else "auto")
    if unpack == "auto":
        _name_needed_tools(contents, keys, job)
    return plan.Input(
        name=name,
        folder=_folder(name, source, keys, job),
        items=contents.items,
        prefix=contents.prefix,
        unpack=unpack,
        nested=source.nested,
        mode=source.mode,
        delivery=source.delivery,
        chmod=chmod,
    )


def _folder(name: str, source: inputs_outputs.Input, keys: Keys, job: JobContext) -> str:
    """In the sandbox. What the agent keeps there itself is not for inputs."""
    if source.folder is None:
        return f"inputs/{name}" if name else "input"
    filled = PurePosixPath(job.fill(source.folder))
    if filled.is_absolute() or ".." in filled.parts or not filled.parts or filled.parts[0] in _NOT_FOR_INPUTS:
        message = f"{shown((*keys, 'folder'))}: {filled} is no folder for inputs"
        job.report.error((*keys, "folder"), message, "give it a name of its own, for example work")
    return str(filled)


def _to_stream(contents: _Contents, keys: Keys, job: JobContext) -> _Contents:
    """Archives, or a folder, whose samples a training reads."""
    for ref in [contents.prefix] if contents.prefix else [item.sources[0] for item in contents.items]:
        if stream_planner.is_packed(ref.url):
            message = f"{name_of(ref.url)} is compressed, so that samples cannot be read out of its middle"
            job.report.error((*keys, "mode"), message, "use `mode: stage`, or pack it anew as a plain tar")
    for item in contents.items:
        if item.digest is not None:
            message = f"with `mode: stream` {item.name} never comes whole: its {item.digest.algorithm} is not checked"
            job.report.warning(keys, message, "leave it out, or use `mode: stage`")
        if item.checksums is not None:
            message = f"with `mode: stream` the checksums file of {item.name} is looked for beside it"
            job.report.warning(keys, message, "leave `checksums` out, or use `mode: stage`")
    try:
        if contents.prefix is not None:
            return _Contents(*stream_planner.as_archives(contents.prefix))
        return _Contents(tuple(one for item in contents.items for one in stream_planner.shards(item)))
    except UsageError as error:
        job.report.error(keys, str(error))
        return contents


def _name_needed_tools(contents: _Contents, keys: Keys, job: JobContext) -> None:
    for item in contents.items:
        tool = _NEEDS_TOOL.get(PurePosixPath(item.name).suffix.lower())
        if tool:
            message = f"{item.name} can be unpacked only where the worker has the program {tool}"
            job.report.warning(keys, message, "make it a tar or zip, or say `unpack: never`")


def _http(source: inputs_outputs.HttpInput, keys: Keys, job: JobContext) -> _Contents:
    if source.files:
        items = tuple(_http_item((f.url,), f.name, f, source, keys, job) for f in source.files)
        _refuse_same_names(items, keys, job)
        return _Contents(items)
    urls = source.urls or (source.url or "",)
    return _Contents((_http_item(urls, None, source, source, keys, job),))


def _http_item(
    urls: tuple[str, ...],
    name: str | None,
    proof: inputs_outputs.HttpFile | inputs_outputs.HttpInput,
    access: inputs_outputs.HttpInput,
    keys: Keys,
    job: JobContext,
) -> plan.Item:
    sources = tuple(_http_ref(url, access, keys, job) for url in urls)
    sums = _http_ref(proof.checksums, access, keys, job) if proof.checksums else None
    return plan.Item(job.fill(name) if name else name_of(sources[0].url), sources, None, _digest(proof), sums)


def _http_ref(
    url: str, access: inputs_outputs.HttpInput | inputs_outputs.HttpOutput, keys: Keys, job: JobContext
) -> plan.Ref:
    headers = tuple(
        plan.Header(name, job.secret(value, (*keys, "headers", name), is_secret_header(name)))
        for name, value in access.headers.items()
    )
    return plan.Ref(job.fill(url), headers=headers, token=job.secret_or_none(access.token, (*keys, "token")))


def _refuse_same_names(items: tuple[plan.Item, ...], keys: Keys, job: JobContext) -> None:
    seen: set[str] = set()
    for position, item in enumerate(items):
        if item.name in seen:
            message = f"two files of {shown(keys)} would be named {item.name}"
            job.report.error((*keys, "files", position), message, "give one of them a `name`")
        seen.add(item.name)


def _digest(
    source: inputs_outputs.HttpFile | inputs_outputs.HttpInput | inputs_outputs.OsdfInput,
) -> plan.Digest | None:
    return next((plan.Digest(name, value) for name in inputs_outputs.DIGESTS if (value := getattr(source, name))), None)


def _s3(source: inputs_outputs.S3, keys: Keys, job: JobContext) -> _Contents:
    return _Contents(prefix=_s3_ref(source, keys, job))


def _s3_ref(source: inputs_outputs.S3, keys: Keys, job: JobContext) -> plan.Ref:
    given = (source.access_key_id, source.secret_access_key, source.session_token)
    access, secret, session = given if any(given) else _own_keys(keys, job)
    s3 = plan.S3Access(
        region=source.region,
        endpoint=source.endpoint_url.rstrip("/"),
        access_key=job.secret_or_none(access, (*keys, "accessKeyId"), confidential=False),
        secret_key=job.secret_or_none(secret, (*keys, "secretAccessKey")),
        session_token=job.secret_or_none(session, (*keys, "sessionToken")),
    )
    return plan.Ref(job.fill(source.bucket_url + source.path), s3=s3)


def _own_keys(keys: Keys, job: JobContext) -> tuple[str | None, str | None, str | None]:
    try:
        return own_references()
    except LookupError as error:
        sentence, hint = error.args
        job.report.warning(keys, f"{shown(keys)} would use {sentence}; requests are not signed", hint)
        return None, None, None


def _osdf(source: inputs_outputs.OsdfInput, keys: Keys, job: JobContext) -> _Contents:
    ref, digest = _osdf_ref(source, keys, job), _digest(source)
    if not is_folder(ref.url):
        sums = replace(ref, url=rooted(job.fill(source.checksums))) if source.checksums else None
        return _Contents((plan.Item(name_of(ref.url), (ref,), None, digest, sums),))
    if source.checksums is not None:
        job.report.error((*keys, "checksums"), "a checksums file is that of one object, but the address is of a folder")
    if digest is not None:
        message = f"{digest.algorithm} is the digest of one object, but the address is of a folder"
        job.report.error((*keys, digest.algorithm), message)
    return _Contents(prefix=ref)


def _osdf_ref(source: inputs_outputs.Osdf, keys: Keys, job: JobContext) -> plan.Ref:
    url = rooted(job.fill(source.url or f"osdf://{source.path}"))
    return plan.Ref(url, token=job.secret_or_none(source.token, (*keys, "token")))


def _file(source: inputs_outputs.File, keys: Keys, job: JobContext) -> _Contents:
    path = absolute(job.where, job.fill(source.path))
    ref = plan.Ref(path.as_uri())
    kind, reason = look(path)
    if kind == FOLDER:
        return _Contents(prefix=ref)
    if kind != FILE:
        message = f"{path} {reason or 'is neither a file nor a folder'}"
        job.report.error((*keys, "path"), message, "paths are relative to the workflow file")
    return _Contents((plan.Item(path.name or "data", (ref,)),))


def plan_output(workflow: Workflow, job: JobContext) -> plan.Output | None:
    if workflow.output is None:
        return _default_output(job)
    output = workflow.output
    kind = next(kind for kind in _REFS if getattr(output, kind) is not None)
    ref = _REFS[kind](getattr(output, kind), ("output", kind), job)
    delete = bool(output.s3 and output.s3.delete_sync)
    continuous = workflow.continuous_output_sync
    return plan.Output(ref, continuous=continuous, delete=delete, patience_s=output.patience)


def _default_output(job: JobContext) -> plan.Output | None:
    """The run's folder: written by the agent where it is at hand, else by whoever brings outputs home."""
    folder = job.setting.run_folder.job_output(job.values["job"])
    return plan.Output(plan.Ref(folder.absolute().as_uri()))


def _file_output(output: inputs_outputs.File, keys: Keys, job: JobContext) -> plan.Ref:
    path = absolute(job.where, job.fill(output.path))
    if look(path)[0] in (FILE, OTHER):
        job.report.error((*keys, "path"), f"{path} is a file; outputs go into a folder")
    return plan.Ref(path.as_uri())


def _http_output(output: inputs_outputs.HttpOutput, keys: Keys, job: JobContext) -> plan.Ref:
    return _http_ref(output.url, output, keys, job)


_CONTENTS: dict[str, Callable[..., _Contents]] = {"http": _http, "s3": _s3, "osdf": _osdf, "file": _file}
_REFS: dict[str, Callable[..., plan.Ref]] = {
    "s3": _s3_ref,
    "file": _file_output,
    "http": _http_output,
    "osdf": _osdf_ref,
}
