"""Checks that involve several keys, run on the raw document (see `model_walk`).

The tables at the top list alternatives; `CROSS_CHECKS` at the end lists the checks of each model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from packtrain.spec import secret_references
from packtrain.spec.diagnostics import DiagnosticReport, KeyPath, did_you_mean, format_key_path
from packtrain.spec.model_walk import ModelNode, model_keys
from packtrain.spec.models.field_types import SpecModel, source_text
from packtrain.spec.models.inputs_outputs import (
    DIGEST_ALGORITHMS,
    Bound,
    CheckpointConfig,
    HttpFile,
    HttpInput,
    HttpOutput,
    Input,
    OsdfInput,
    OsdfLocation,
    Output,
    S3Location,
)
from packtrain.spec.models.pixi import PixiServer
from packtrain.spec.models.steps import ForAction, LaunchAction, NetworkInterface, RunAction, Step, UseAction
from packtrain.spec.models.workflow import EnvironmentConfig, Matrix, Workflow, WorkflowModule
from packtrain.spec.placeholders import BUILTIN_PLACEHOLDERS

EXACTLY_ONE_OF: dict[type[SpecModel], tuple[str, ...]] = {
    Step: ("run", "steps", "for", "launch", "use"),
    ForAction: ("items", "range"),
    Input: ("http", "s3", "osdf", "file", "plugin"),
    Output: ("s3", "file", "http", "osdf"),
    HttpInput: ("url", "urls", "files"),
    CheckpointConfig: ("path", "paths"),
    OsdfLocation: ("url", "path"),
    OsdfInput: ("url", "path"),
    NetworkInterface: ("wireguard", "bore", "vnet"),
    PixiServer: ("http", "s3", "osdf", "file"),
}
AT_MOST_ONE_OF: dict[type[SpecModel], tuple[str, ...]] = {
    **dict.fromkeys((HttpFile, HttpInput, OsdfInput), DIGEST_ALGORITHMS),
    EnvironmentConfig: ("container", "pixi"),
    RunAction: ("command", "task"),
}
_STEP_LIST_KEYS = ("steps", "catch", "finally")
_SHELL_KEYS = ("command", "if", "setup")
_INVALID_WITH_STREAM: dict[str, tuple[Any, ...]] = {
    "unpack": ("auto",),
    "nested": (True,),
    "transfer": ("condor", "plugin"),
}
_STREAM_CONFLICT_REASONS = {
    "unpack": "a streamed input is not copied, so there is nothing to unpack; remove it",
    "nested": "a streamed input always includes tars inside the tar; remove it",
    "transfer": "the training reads the data itself; remove it",
}
_PLAINTEXT_SECRET_HINT = "write ${env:NAME} or ${file:PATH} instead"  # noqa: S105


def run_cross_checks(nodes: list[ModelNode], report: DiagnosticReport) -> None:
    """Run all checks and add their diagnostics to the report."""
    for node in nodes:
        _check_exactly_one(node, report)
        _check_at_most_one(node, AT_MOST_ONE_OF.get(node.model, ()), report)
        _check_secrets(node, report)
        for rule in CROSS_CHECKS.get(node.model, ()):
            rule(node, report)


def _check_exactly_one(node: ModelNode, report: DiagnosticReport) -> None:
    choices = EXACTLY_ONE_OF.get(node.model, ())
    given = [key for key in choices if node.raw.get(key) is not None]
    misspelt = any("did you mean" in did_you_mean(key, choices) for key in set(node.raw) - model_keys(node.model))
    if choices and not given and not misspelt:
        report.key_error(node.path, f"{format_key_path(node.path)} needs one of {', '.join(choices)}")
    _check_at_most_one(node, choices, report)


def _check_at_most_one(node: ModelNode, choices: tuple[str, ...], report: DiagnosticReport) -> None:
    given = [key for key in choices if node.raw.get(key) is not None]
    for key in given[1:]:
        report.key_error(
            (*node.path, key),
            f"{format_key_path(node.path)} has both {given[0]!r} and {key!r}; give only one of them",
        )


def _check_secrets(node: ModelNode, report: DiagnosticReport) -> None:
    for key, text in _iter_strings(node):
        path = (*node.path, *key)
        allowed = (
            key[0] == "headers" or (node.model, key[0]) in secret_references.REFERENCE_KEYS or key[0] in _SHELL_KEYS
        )
        if secret_references.has_reference(text):
            if not allowed:
                report.error(
                    path,
                    f"{format_key_path(path)} cannot hold a secret: ${{env:…}} and ${{file:…}} are not replaced here",
                )
        elif (node.model, key[0]) in secret_references.CONFIDENTIAL_KEYS or _is_secret_header(key):
            report.warning(
                path,
                f"{format_key_path(path)} is a secret in plain text, visible to everyone who can read the file",
                _PLAINTEXT_SECRET_HINT,
            )


def _is_secret_header(key: KeyPath) -> bool:
    return key[0] == "headers" and len(key) == 2 and secret_references.is_secret_header(str(key[1]))


def _iter_strings(node: ModelNode) -> Iterator[tuple[KeyPath, str]]:
    for key, value in node.raw.items():
        if isinstance(value, str):
            yield (key,), value
    for name, value in node.get_mapping("headers").items():
        if isinstance(value, str) and node.model in (HttpInput, HttpOutput):
            yield ("headers", name), value


def _check_stream_options(node: ModelNode, report: DiagnosticReport) -> None:
    """Reject options that only apply to inputs that are copied."""
    if node.raw.get("mode") != "stream":
        return
    for key, invalid_values in _INVALID_WITH_STREAM.items():
        if node.raw.get(key) in invalid_values:
            report.key_error(
                (*node.path, key),
                f"{format_key_path((*node.path, key))} with `mode: stream`: {_STREAM_CONFLICT_REASONS[key]}",
            )


def _check_file_transfer(node: ModelNode, report: DiagnosticReport) -> None:
    if "file" in node.raw and node.raw.get("transfer") == "plugin":
        message = "`transfer: plugin` is for URLs, but this is a file of this machine"
        report.error((*node.path, "transfer"), message, "use condor or agent, or `plugin: {url: file:///…}`")


def _check_s3_credentials(node: ModelNode, report: DiagnosticReport) -> None:
    pair = ("accessKeyId", "secretAccessKey")
    given = [key for key in pair if node.raw.get(key) is not None]
    if len(given) == 1 or (not given and node.raw.get("sessionToken") is not None):
        report.key_error(node.path, f"{format_key_path(node.path)} needs both of {' and '.join(pair)}, or neither")


def _check_multi_file_digest(node: ModelNode, report: DiagnosticReport) -> None:
    for key in (*DIGEST_ALGORITHMS, "checksums") if node.raw.get("files") is not None else ():
        if node.raw.get(key) is not None:
            relation = "is the digest of" if key in DIGEST_ALGORITHMS else "belongs to"
            report.key_error((*node.path, key), f"{key} {relation} one file", "give each of `files` its own")


def _check_continuous_sync(node: ModelNode, report: DiagnosticReport) -> None:
    kinds = set(node.get_mapping("output"))
    if node.raw.get("continuousOutputSync") is True and not {"s3", "file"} & kinds:
        reason = f"an {'/'.join(sorted(kinds))} output is uploaded at the end" if kinds else "there is no output"
        message = f"continuousOutputSync has no effect: {reason}"
        report.key_warning(("continuousOutputSync",), message, "s3 and file outputs are uploaded while the job runs")


def _check_checkpoint_output(node: ModelNode, report: DiagnosticReport) -> None:
    if node.raw.get("checkpoint") is not None and "http" in node.get_mapping("output"):
        message = "an http output stores only one checkpoint, which is lost if a job dies while replacing it"
        report.key_warning(("checkpoint",), message, "s3 and file outputs keep two")


def _check_expect_limits(node: ModelNode, report: DiagnosticReport) -> None:
    for position, entry in enumerate(node.get_list("expect")):
        for low, high in (("minCount", "maxCount"), ("minSize", "maxSize")) if isinstance(entry, dict) else ():
            minimum, maximum = entry.get(low), entry.get(high)
            if isinstance(minimum, int) and isinstance(maximum, int) and minimum > maximum:
                report.error(("expect", position, low), f"{low} {minimum} is greater than {high} {maximum}")


def _check_number_bounds(node: ModelNode, report: DiagnosticReport) -> None:
    low, high = node.raw.get("min"), node.raw.get("max")
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low > high:
        report.error((*node.path, "min"), f"min {source_text(low)} is greater than max {source_text(high)}")


def _check_matrix_names(node: ModelNode, report: DiagnosticReport) -> None:
    names = [key for key in node.raw if key not in ("include", "exclude")]
    if not names and not node.get_list("include"):
        report.key_error(node.path, "the matrix has no values", "write for example lr: [0.1, 0.01]")
    for key in names:
        if key in BUILTIN_PLACEHOLDERS or not (key.isascii() and key.isidentifier()):
            message = f"{key!r} cannot name matrix values"
            report.key_error(
                (*node.path, key), message, f"use letters, digits and _, but not {', '.join(BUILTIN_PLACEHOLDERS)}"
            )
        _check_duplicates(node.get_list(key), (*node.path, key), report)
    _check_duplicates(node.get_list("include"), (*node.path, "include"), report)


def _check_matrix_excludes(node: ModelNode, report: DiagnosticReport) -> None:
    """Warn about excludes without effect; values are compared as written, so 0.10 does not exclude 0.1."""
    for position, entry in enumerate(node.get_list("exclude")):
        for key, value in entry.items() if isinstance(entry, dict) else ():
            path = (*node.path, "exclude", position, key)
            if key not in node.raw:
                hint = did_you_mean(key, set(node.raw) - {"exclude"})
                report.key_error(path, f"the matrix has no {key!r} to exclude", hint)
            elif source_text(value) not in [source_text(known) for known in node.get_list(key)]:
                report.warning(path, f"matrix.{key} has no value {source_text(value)!r}, so this excludes nothing")


def _check_duplicates(values: list[Any], path: KeyPath, report: DiagnosticReport) -> None:
    seen: dict[str, int] = {}
    for position, value in enumerate(values):
        text = getattr(value, "text", None) or repr(value)
        if text in seen:
            report.error(
                (*path, position), f"{format_key_path(path)} has this value twice, so two jobs would be identical"
            )
        seen[text] = position


def _check_handles(node: ModelNode, report: DiagnosticReport) -> None:
    """Check that dependsOn names handles of earlier steps of the same level, which rules out cycles."""
    for key in _STEP_LIST_KEYS:
        _check_level_handles(node.get_list(key), (*node.path, key), report)


def _check_level_handles(steps: list[Any], path: KeyPath, report: DiagnosticReport) -> None:
    """Handles are compared without regard to case, as in DeepSquare."""
    level_handles = {handle.lower(): handle for step in steps if (handle := _handle_name(step)) is not None}
    earlier_handles: set[str] = set()
    for position, step in enumerate(steps):
        _check_depends_on(step, (*path, position), earlier_handles, level_handles, report)
        handle = _handle_name(step)
        if handle is None:
            continue
        if handle.lower() in earlier_handles:
            report.error(
                (*path, position, "launch", "handleName"),
                f"the handle {handle!r} is used twice in {format_key_path(path)}",
            )
        earlier_handles.add(handle.lower())


def _handle_name(step: Any) -> str | None:
    launch = step.get("launch") if isinstance(step, dict) else None
    handle = launch.get("handleName") if isinstance(launch, dict) else None
    return handle if isinstance(handle, str) else None


def _check_depends_on(
    step: Any, path: KeyPath, earlier_handles: set[str], level_handles: dict[str, str], report: DiagnosticReport
) -> None:
    depends_on = step.get("dependsOn") if isinstance(step, dict) else None
    for position, name in enumerate(depends_on if isinstance(depends_on, list) else ()):
        if not isinstance(name, str) or name.lower() in earlier_handles:
            continue
        name_path = (*path, "dependsOn", position)
        if name.lower() in level_handles:
            report.error(name_path, f"{name!r} is launched by this or a later step", "put the launch first")
        else:
            hint = did_you_mean(name, level_handles.values())
            report.error(name_path, f"no step of this level launches {name!r}", hint)


def _check_unused_resources(node: ModelNode, report: DiagnosticReport) -> None:
    if node.raw.get("resources") is not None and node.raw.get("run") is None:
        report.key_warning((*node.path, "resources"), "resources of a step without `run` have no effect")


def _check_task(node: ModelNode, report: DiagnosticReport) -> None:
    if "command" not in node.raw and "task" not in node.raw:
        report.key_error(node.path, f"{format_key_path(node.path)} needs the key 'command'")
    for key in ("container", "shell") if node.raw.get("task") is not None else ():
        if node.raw.get(key) is not None:
            message = "a Pixi task runs in its environment, with /bin/sh"
            report.key_error((*node.path, key), message, f"remove `{key}`, or write a command")
    if node.raw.get("args") and node.raw.get("task") is None:
        report.key_error((*node.path, "args"), "`args` are arguments of a task", "add them to the command")


def _check_module_inputs(node: ModelNode, report: DiagnosticReport) -> None:
    keys = [entry.get("key") for entry in node.get_list("inputs") if isinstance(entry, dict)]
    _check_duplicates(keys, (*node.path, "inputs"), report)


CrossCheck = Callable[[ModelNode, DiagnosticReport], None]

CROSS_CHECKS: dict[type[SpecModel], tuple[CrossCheck, ...]] = {
    Workflow: (_check_continuous_sync, _check_checkpoint_output, _check_expect_limits, _check_handles),
    WorkflowModule: (_check_module_inputs, _check_handles),
    Step: (_check_handles, _check_unused_resources),
    ForAction: (_check_handles,),
    LaunchAction: (_check_handles,),
    UseAction: (_check_handles,),
    RunAction: (_check_task,),
    Matrix: (_check_matrix_names, _check_matrix_excludes),
    Input: (
        _check_stream_options,
        _check_file_transfer,
    ),
    S3Location: (_check_s3_credentials,),
    Bound: (_check_number_bounds,),
    HttpInput: (_check_multi_file_digest,),
}
