"""Rules that concern several keys, run on the raw document (see `walk`): the first tables list choices,
the last one the rules by model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from packtrain.spec import secret_references
from packtrain.spec.diagnostics import Path, Report, did_you_mean, shown
from packtrain.spec.model_walk import Node, keys_of
from packtrain.spec.models.field_types import Model, written
from packtrain.spec.models.inputs_outputs import (
    DIGESTS,
    S3,
    Bound,
    HttpFile,
    HttpInput,
    HttpOutput,
    Input,
    Osdf,
    OsdfInput,
    Output,
)
from packtrain.spec.models.steps import For, Launch, NetworkInterface, Step, Use
from packtrain.spec.models.workflow import Matrix, Module, Workflow
from packtrain.spec.placeholders import BUILT_IN

ONE_OF: dict[type[Model], tuple[str, ...]] = {
    Step: ("run", "steps", "for", "launch", "use"),
    For: ("items", "range"),
    Input: ("http", "s3", "osdf", "file"),
    Output: ("s3", "file", "http", "osdf"),
    HttpInput: ("url", "urls", "files"),
    Osdf: ("url", "path"),
    OsdfInput: ("url", "path"),
    NetworkInterface: ("wireguard", "bore", "vnet"),
}
AT_MOST_ONE_OF: dict[type[Model], tuple[str, ...]] = dict.fromkeys((HttpFile, HttpInput, OsdfInput), DIGESTS)
_STEP_LISTS = ("steps", "catch", "finally")
_SHELL_TEXT = ("command", "if", "setup")
_NOT_STREAMED: dict[str, tuple[Any, ...]] = {
    "unpack": ("auto",),
    "nested": (True,),
    "delivery": ("native", "plugin"),
}
_WHY_NOT = {
    "unpack": "nothing is copied, so there is nothing to unpack; leave it out",
    "nested": "tars inside of the tar are seen by themselves; leave it out",
    "delivery": "the training reads the data itself, so nobody else can carry them; leave it out",
}
_CLEAR = "write ${env:NAME} or ${file:PATH} instead"


def apply(nodes: list[Node], report: Report) -> None:
    for node in nodes:
        _one_of(node, report)
        _only_one(node, AT_MOST_ONE_OF.get(node.model, ()), report)
        _secrets(node, report)
        for rule in RULES.get(node.model, ()):
            rule(node, report)


def _one_of(node: Node, report: Report) -> None:
    choices = ONE_OF.get(node.model, ())
    given = [key for key in choices if node.raw.get(key) is not None]
    misspelt = any("did you mean" in did_you_mean(key, choices) for key in set(node.raw) - keys_of(node.model))
    if choices and not given and not misspelt:
        report.key_error(node.path, f"{shown(node.path)} needs one of {', '.join(choices)}")
    _only_one(node, choices, report)


def _only_one(node: Node, choices: tuple[str, ...], report: Report) -> None:
    given = [key for key in choices if node.raw.get(key) is not None]
    for key in given[1:]:
        report.key_error(
            (*node.path, key), f"{shown(node.path)} has both {given[0]!r} and {key!r}; only one of them can be"
        )


def _secrets(node: Node, report: Report) -> None:
    for key, text in _texts(node):
        path = (*node.path, *key)
        allowed = key[0] == "headers" or (node.model, key[0]) in secret_references.ALLOWED or key[0] in _SHELL_TEXT
        if secret_references.has_reference(text):
            if not allowed:
                report.error(
                    path, f"{shown(path)} is no place for a secret: nothing fills in ${{env:…}} or ${{file:…}} here"
                )
        elif (node.model, key[0]) in secret_references.CONFIDENTIAL or _is_secret_header(key):
            report.warning(path, f"{shown(path)} stands here in clear, for everyone who sees the file", _CLEAR)


def _is_secret_header(key: Path) -> bool:
    return key[0] == "headers" and len(key) == 2 and secret_references.is_secret_header(str(key[1]))


def _texts(node: Node) -> Iterator[tuple[Path, str]]:
    for key, value in node.raw.items():
        if isinstance(value, str):
            yield (key,), value
    for name, value in node.mapping("headers").items():
        if isinstance(value, str) and node.model in (HttpInput, HttpOutput):
            yield ("headers", name), value


def _streamed(node: Node, report: Report) -> None:
    """What is never copied can be neither unpacked nor carried."""
    if node.raw.get("mode") != "stream":
        return
    for key, wrong in _NOT_STREAMED.items():
        if node.raw.get(key) in wrong:
            report.key_error((*node.path, key), f"{shown((*node.path, key))} and `mode: stream`: {_WHY_NOT[key]}")


def _credentials(node: Node, report: Report) -> None:
    pair = ("accessKeyId", "secretAccessKey")
    given = [key for key in pair if node.raw.get(key) is not None]
    if len(given) == 1 or (not given and node.raw.get("sessionToken") is not None):
        report.key_error(node.path, f"{shown(node.path)} needs both of {' and '.join(pair)}, or neither")


def _digest_of_many(node: Node, report: Report) -> None:
    for key in (*DIGESTS, "checksums") if node.raw.get("files") is not None else ():
        if node.raw.get(key) is not None:
            what = "is the digest of" if key in DIGESTS else "belongs to"
            report.key_error((*node.path, key), f"{key} {what} one file", "give each of `files` its own")


def _sync(node: Node, report: Report) -> None:
    output = node.mapping("output")
    if node.raw.get("continuousOutputSync") is True and not {"s3", "file"} & set(output):
        message = "continuousOutputSync needs an output that takes files one by one: s3 or file"
        report.key_error(("continuousOutputSync",), message)


def _checkpoint(node: Node, report: Report) -> None:
    if node.raw.get("checkpoint") is not None and "http" in node.mapping("output"):
        message = "checkpoint with an http output: it keeps one, which is lost if a job dies while it is replaced"
        report.key_warning(("checkpoint",), message, "an s3 or file output keeps two")


def _expect_order(node: Node, report: Report) -> None:
    for position, entry in enumerate(node.entries("expect")):
        for low, high in (("minCount", "maxCount"), ("minSize", "maxSize")) if isinstance(entry, dict) else ():
            least, most = entry.get(low), entry.get(high)
            if isinstance(least, int) and isinstance(most, int) and least > most:
                report.error(("expect", position, low), f"{low} {least} is greater than {high} {most}")


def _bound_order(node: Node, report: Report) -> None:
    least, most = node.raw.get("min"), node.raw.get("max")
    if isinstance(least, (int, float)) and isinstance(most, (int, float)) and least > most:
        report.error((*node.path, "min"), f"min {written(least)} is greater than max {written(most)}")


def _matrix_names(node: Node, report: Report) -> None:
    names = [key for key in node.raw if key not in ("include", "exclude")]
    if not names and not node.entries("include"):
        report.key_error(node.path, "the matrix names no values", "write for example lr: [0.1, 0.01]")
    for key in names:
        if key in BUILT_IN or not (key.isascii() and key.isidentifier()):
            message = f"{key!r} cannot name matrix values"
            report.key_error((*node.path, key), message, f"use letters, digits and _, but not {', '.join(BUILT_IN)}")
        _repeated(node.entries(key), (*node.path, key), report)
    _repeated(node.entries("include"), (*node.path, "include"), report)


def _matrix_excludes(node: Node, report: Report) -> None:
    """Values are compared as they are written, so 0.10 does not exclude 0.1."""
    for position, entry in enumerate(node.entries("exclude")):
        for key, value in entry.items() if isinstance(entry, dict) else ():
            path = (*node.path, "exclude", position, key)
            if key not in node.raw:
                hint = did_you_mean(key, set(node.raw) - {"exclude"})
                report.key_error(path, f"the matrix has no {key!r} to exclude", hint)
            elif written(value) not in [written(known) for known in node.entries(key)]:
                report.warning(path, f"matrix.{key} has no value {written(value)!r}, so this excludes nothing")


def _repeated(values: list[Any], path: Path, report: Report) -> None:
    seen: dict[str, int] = {}
    for position, value in enumerate(values):
        text = getattr(value, "text", None) or repr(value)
        if text in seen:
            report.error((*path, position), f"{shown(path)} has this value twice; two jobs would be the same")
        seen[text] = position


def _handles(node: Node, report: Report) -> None:
    """dependsOn names handles of earlier steps of the same level, so there can be no circle."""
    for key in _STEP_LISTS:
        _level(node.entries(key), (*node.path, key), report)


def _level(steps: list[Any], path: Path, report: Report) -> None:
    everywhere = {handle for step in steps if (handle := _handle(step)) is not None}
    earlier: set[str] = set()
    for position, step in enumerate(steps):
        _depends(step, (*path, position), earlier, everywhere, report)
        handle = _handle(step)
        if handle in earlier:
            report.error(
                (*path, position, "launch", "handleName"), f"the handle {handle!r} is used twice in {shown(path)}"
            )
        earlier |= {handle} if handle is not None else set()


def _handle(step: Any) -> str | None:
    launch = step.get("launch") if isinstance(step, dict) else None
    handle = launch.get("handleName") if isinstance(launch, dict) else None
    return handle if isinstance(handle, str) else None


def _depends(step: Any, path: Path, earlier: set[str], everywhere: set[str], report: Report) -> None:
    wanted = step.get("dependsOn") if isinstance(step, dict) else None
    for position, name in enumerate(wanted if isinstance(wanted, list) else ()):
        if not isinstance(name, str) or name in earlier:
            continue
        here = (*path, "dependsOn", position)
        if name in everywhere:
            report.error(here, f"{name!r} is launched only by this or a later step", "put the launch first")
        else:
            report.error(here, f"no step of this level launches {name!r}", did_you_mean(name, everywhere))


def _idle_resources(node: Node, report: Report) -> None:
    if node.raw.get("resources") is not None and node.raw.get("run") is None:
        report.key_warning((*node.path, "resources"), "resources of a step without `run` have no effect")


def _module_inputs(node: Node, report: Report) -> None:
    keys = [entry.get("key") for entry in node.entries("inputs") if isinstance(entry, dict)]
    _repeated(keys, (*node.path, "inputs"), report)


Rule = Callable[[Node, Report], None]

RULES: dict[type[Model], tuple[Rule, ...]] = {
    Workflow: (_sync, _checkpoint, _expect_order, _handles),
    Module: (_module_inputs, _handles),
    Step: (_handles, _idle_resources),
    For: (_handles,),
    Launch: (_handles,),
    Use: (_handles,),
    Matrix: (_matrix_names, _matrix_excludes),
    Input: (_streamed,),
    S3: (_credentials,),
    Bound: (_bound_order,),
    HttpInput: (_digest_of_many,),
}
