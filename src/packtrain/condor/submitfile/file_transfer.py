"""Translates the transfer commands: inputs in the working folder, and outputs with their destination."""

from __future__ import annotations

import os.path
import posixpath
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from packtrain.condor.submitfile.job_table import unique_name
from packtrain.condor.submitfile.parsed_submit import ParsedSubmit
from packtrain.condor.submitfile.syntax.macros import PLACEHOLDER, MacroError
from packtrain.condor.submitfile.syntax.quoting import QuotingError, split_list, split_remaps, unquote_classad
from packtrain.spec.converted_file import WorkflowDraft
from packtrain.spec.diagnostics import ERROR, WARNING, Position

WORK_DIR = "work"
"""The folder in the sandbox where the program runs, like HTCondor's scratch folder."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9.+-]*)://")
_FEDERATED_SCHEMES = ("osdf", "stash", "pelican")
_TRANSFER_VALUES = ("", "yes", "if_needed", "true")
_MACRO_NAMES = {"job": "Process", "run": "Cluster"}
_WHEN_VALUES = ("", "on_exit", "on_success", "on_exit_or_evict")


class TargetNames:
    """The names of files in the working or output folder, to find files of one job that would have the same name.

    Names may differ from job to job, so the names of all jobs are checked.
    """

    def __init__(self) -> None:
        self._in_all_jobs: dict[str, str] = {}  # template by name
        self._in_one_job: dict[tuple[int, str], str] = {}  # template by job and name
        self._in_some_jobs: dict[str, str] = {}

    def add(self, template: str, names: Sequence[str]) -> str | None:
        """Add a file, and return the template of an earlier file with the same name in at least one job.

        Args:
            template: Identifies the file.
            names: Its name in each job.
        """
        if len(set(names)) == 1:
            conflict = self._in_all_jobs.get(names[0]) or self._in_some_jobs.get(names[0])
            self._in_all_jobs.setdefault(names[0], template)
            return conflict
        job_names = list(enumerate(names))
        conflicts = (self._in_one_job.get((job, name)) or self._in_all_jobs.get(name) for job, name in job_names)
        conflict = next((other for other in conflicts if other), None)
        self._in_one_job.update(dict.fromkeys(job_names, template))
        self._in_some_jobs.update(dict.fromkeys(names, template))
        return conflict


def add_inputs(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    """Add the program and its input files to the workflow."""
    if submit.common_value("should_transfer_files").lower() not in _TRANSFER_VALUES:
        message = "should_transfer_files = NO requires a file system that all nodes share"
        submit.error("should_transfer_files", message, "write YES, and list the files in transfer_input_files")
    files: list[tuple[str, str]] = []
    if submit.flag("transfer_executable", True) and submit.has("executable"):
        files.append(("executable", submit.template("executable")))
    files += [("transfer_input_files", template) for template in list_templates(submit, "transfer_input_files")]
    if submit.has("input") and submit.template("input") != "/dev/null":
        files.append(("input", submit.template("input")))
    target_names = TargetNames()
    for key, template in files:
        _add_input(submit, draft, key, template, target_names)


def list_templates(submit: ParsedSubmit, key: str) -> list[str]:
    """Return the entries of a list, each as a template. A value of `queue` may itself be a list."""
    templates = split_list(submit.template(key))
    try:
        lists = [
            split_list(submit.job_table.value_for_job(submit.raw_value(key), job))
            for job in range(len(submit.job_table))
        ]
        if len({len(entries) for entries in lists}) > 1:
            submit.error(key, f"{key} has more files for some jobs than for others, which is not supported")
            return []
        columns = [list(values) for values in zip(*lists, strict=True)]
        if [submit.job_table.values_per_job(template) for template in templates] == columns:
            return templates
        return [submit.job_table.column_template("file", values) for values in columns]
    except MacroError as error:
        submit.error(key, f"{key}: {error}")
        return []


def _add_input(submit: ParsedSubmit, draft: WorkflowDraft, key: str, template: str, target_names: TargetNames) -> None:
    values = submit.job_table.values_per_job(template)
    schemes = {match.group(1).lower() if (match := _SCHEME.match(value)) else "" for value in values}
    text = _to_submit_text(template)
    if not all(values) or len(schemes) > 1:
        submit.error(key, f"{key}: {text} is a file for some jobs, and empty or a URL for others")
        return
    scheme = schemes.pop()
    document = _remote_input(submit, key, template, scheme) if scheme else _local_input(submit, key, template)
    if document is None:
        return
    is_folder = document.pop("contents", False)
    conflict = None if is_folder else target_names.add(template, [base_name(value) for value in values])
    if conflict is not None:
        if conflict != template:
            submit.error(key, f"{key}: {_to_submit_text(conflict)} and {text} would have the same name on the worker")
        return
    draft.set_value(("inputs", _input_name(template, draft)), document, submit.position(key))


def _local_input(submit: ParsedSubmit, key: str, template: str) -> dict[str, Any] | None:
    """Return the document of a local input. A folder with a trailing slash means the files in it.

    The temporary key `contents` marks inputs that are folders.
    """
    path = template if key == "executable" else _join_initialdir(submit, template)
    has_slash = template.endswith("/")
    is_folder = has_slash or submit.context.is_folder(submit.job_table.values_per_job(path)[0])
    folder = posixpath.join(WORK_DIR, base_name(template)) if is_folder and not has_slash else WORK_DIR
    document: dict[str, Any] = {
        "file": {"path": submit.to_workflow_text(key, path.rstrip("/") or "/")},
        "folder": submit.to_workflow_text(key, folder),
        "unpack": "never",
    }
    return {**document, "contents": True} if is_folder else document


def _remote_input(submit: ParsedSubmit, key: str, template: str, scheme: str) -> dict[str, Any] | None:
    if scheme in ("http", "https"):
        return {"http": {"url": submit.to_workflow_text(key, template)}, "folder": WORK_DIR, "unpack": "never"}
    if scheme in _FEDERATED_SCHEMES:
        return _federated_input(submit, key, template)
    if scheme != "s3":
        return {"plugin": {"url": submit.to_workflow_text(key, template)}, "folder": WORK_DIR, "unpack": "never"}
    hint = "remove it, convert the file with `packtrain convert`, and add an input of kind `s3` to the workflow"
    submit.error(key, f"{key}: {_to_submit_text(template)} cannot be fetched without its keys", hint)
    return None


def _federated_input(submit: ParsedSubmit, key: str, template: str) -> dict[str, Any]:
    url, _, query = re.sub(r"^stash:", "osdf:", template, flags=re.IGNORECASE).partition("?")
    flags = [flag for flag in query.split("&") if flag]
    unpack = "auto" if any(flag.startswith("pack=") for flag in flags) else "never"
    other_flags = "&".join(flag for flag in flags if not flag.startswith("pack="))
    is_folder = url.endswith("/") or "recursive" in other_flags
    folder = posixpath.join(WORK_DIR, base_name(url)) if is_folder and not url.endswith("/") else WORK_DIR
    full_url = f"{url}?{other_flags}" if other_flags else url
    document: dict[str, Any] = {
        "osdf": {"url": submit.to_workflow_text(key, full_url)},
        "folder": submit.to_workflow_text(key, folder),
        "unpack": unpack,
    }
    return {**document, "contents": True} if is_folder else document


def _join_initialdir(submit: ParsedSubmit, path: str) -> str:
    return posixpath.normpath(posixpath.join(submit.template("initialdir"), path)) if path else path


def base_name(template: str) -> str:
    """Return the name that a file has in the working folder."""
    path = template
    if _SCHEME.match(template):
        path = unquote(urlsplit(template.partition("?")[0]).path)
    return posixpath.basename(path.rstrip("/"))


def _input_name(template: str, draft: WorkflowDraft) -> str:
    """Return a unique name for an input that is also a valid folder name."""
    inputs = draft.document.get("inputs", {})
    assert isinstance(inputs, dict)
    name = PLACEHOLDER.sub(lambda match: match.group(1), base_name(template))
    safe_name = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:90].lstrip("-.") or "file"
    return unique_name(safe_name, "-", inputs)


def _to_submit_text(template: str) -> str:
    """Return a template in the syntax of submit files, for messages."""
    return PLACEHOLDER.sub(lambda match: f"$({_MACRO_NAMES.get(match.group(1), match.group(1))})", template)[:80]


# Outputs


def add_outputs(submit: ParsedSubmit, draft: WorkflowDraft, run: dict[str, Any], expect: tuple[str, ...]) -> None:
    """Add to the workflow which outputs are collected, where they are stored, and which are expected."""
    when = submit.common_value("when_to_transfer_output").lower()
    if when not in _WHEN_VALUES:
        submit.error("when_to_transfer_output", f"when_to_transfer_output = {when} is not supported")
    declared = _declared_outputs(submit)
    collect = [entry for entry, _ in declared] if declared is not None else ["*"]
    for path in expect:
        if declared is not None and path not in [target for _, target in declared]:
            collect.append(path)
    if collect:
        run["collect"] = collect
    _add_stdio(submit, run)
    _add_expect(submit, draft, declared or [], expect)
    _add_destination(submit, draft)


def _declared_outputs(submit: ParsedSubmit) -> list[tuple[str | dict[str, str], str]] | None:
    """Return the declared outputs with their target names, or None if all new files are outputs."""
    remaps = _parse_remaps(submit)
    if not submit.has("transfer_output_files"):
        if remaps:
            message = "transfer_output_remaps requires transfer_output_files"
            submit.error("transfer_output_remaps", message, "list the files")
        return None
    outputs: list[tuple[str | dict[str, str], str]] = []
    target_names = TargetNames()
    keep_paths = submit.flag("preserve_relative_paths", False)
    for template in list_templates(submit, "transfer_output_files"):
        default_target = template if keep_paths else base_name(template)
        target = remaps.pop(template, default_target)
        is_folder_content = template.endswith("/") and target == default_target
        if not _is_valid_output(submit, template, target, None if is_folder_content else target_names):
            continue
        path = submit.to_workflow_text("transfer_output_files", template)
        to = submit.to_workflow_text("transfer_output_files", target.rstrip("/"))
        if is_folder_content:
            outputs.append((path, path))
        else:
            outputs.append((path if to == posixpath.basename(path) else {"path": path, "to": to}, to))
    for name in remaps:
        submit.warning("transfer_output_remaps", f"{_to_submit_text(name)} is not in transfer_output_files")
    return outputs


def _is_valid_output(submit: ParsedSubmit, template: str, target: str, target_names: TargetNames | None) -> bool:
    """Return whether an output is inside its folder and has a unique name; report an error if not."""
    names = [name.rstrip("/") for name in submit.job_table.values_per_job(target)]
    if not all(map(is_inside, (*submit.job_table.values_per_job(template), *names))):
        submit.error(
            "transfer_output_files",
            f"{_to_submit_text(template)} would be outside its folder: {_to_submit_text(target)}",
        )
        return False
    conflict = target_names.add(template, names) if target_names else None
    if conflict is not None and conflict != template:
        files = f"{_to_submit_text(conflict)} and {_to_submit_text(template)}"
        message = f"{files} would both be stored as {_to_submit_text(target)}, and one of them would be lost"
        submit.error("transfer_output_files", message, "rename one of them with transfer_output_remaps")
    return conflict is None


def is_inside(path: str) -> bool:
    """Return whether a path is below the working folder."""
    return bool(path) and not path.startswith(("/", "~")) and ".." not in path.split("/")


def _parse_remaps(submit: ParsedSubmit) -> dict[str, str]:
    try:
        pairs = split_remaps(submit.template("transfer_output_remaps"))
    except QuotingError as error:
        submit.error("transfer_output_remaps", str(error))
        return {}
    remaps = {}
    for name, target in pairs:
        relative = _relative_to_output_root(submit, target)
        if _SCHEME.match(target) or relative is None:
            remap = f"{_to_submit_text(name)} = {_to_submit_text(target)}"
            message = f"the remap `{remap}` is not supported: outputs are stored below {_output_root_text(submit)}"
            submit.error("transfer_output_remaps", message, "use a path below that folder")
        else:
            remaps[name] = relative
    return remaps


def _output_root_text(submit: ParsedSubmit) -> str:
    return _to_submit_text(submit.template("initialdir")) or "."


def _relative_to_output_root(submit: ParsedSubmit, template: str) -> str | None:
    """Return a path of the submit side relative to the output folder, or None if it is outside."""
    root = posixpath.normpath(posixpath.join(str(submit.context.folder), submit.template("initialdir")))
    path = posixpath.normpath(posixpath.join(root, template))
    return path[len(root) + 1 :] if path.startswith(f"{root.rstrip('/')}/") else None


def _add_stdio(submit: ParsedSubmit, run: dict[str, Any]) -> None:
    for key, name in (("output", "stdout"), ("error", "stderr")):
        template = unquote_classad(submit.template(key))
        if not template or template == "/dev/null":
            continue
        path = _relative_to_output_root(submit, template)
        if path is None:
            path = posixpath.basename(template)
            submit.warning(key, f"{key} is stored as {path}: {_to_submit_text(template)} is not in the output folder")
        run[name] = submit.to_workflow_text(key, path)
    if submit.has("log"):
        submit.warning("log", "log is ignored: HTCondor's log is in the run folder, and `packtrain why` explains it")


def _add_expect(
    submit: ParsedSubmit,
    draft: WorkflowDraft,
    declared: list[tuple[str | dict[str, str], str]],
    expect: tuple[str, ...],
) -> None:
    """Add expected outputs. Declared outputs may be empty, as in HTCondor; those of --expect may not."""
    expected: list[Any] = [{"path": target, "minSize": 0} for _, target in declared if not target.endswith("/")]
    expected = [entry for entry in expected if entry["path"] not in expect] + list(expect)
    if expected:
        draft.set_value(("expect",), expected, submit.position("transfer_output_files"))


def _add_destination(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    destination = submit.template("output_destination")
    queue_position = Position(submit.description.queue.line if submit.description.queue else 1)
    if destination:
        _add_remote_destination(submit, draft, destination)
        return
    root = submit.template("initialdir") or "."
    folders = [os.path.normpath(path) for path in submit.job_table.values_per_job(root)]
    if len(set(folders)) == len(folders):
        text = submit.to_workflow_text("initialdir", root)
        draft.set_value(("output", "file", "path"), text, submit.position("initialdir"))
    else:
        message = f"{len(folders)} jobs would overwrite each other's outputs in {_to_submit_text(root)}"
        hint = "each job gets its own output folder; `packtrain outputs` lists them"
        submit.report.add(queue_position, WARNING, message, hint)


def _add_remote_destination(submit: ParsedSubmit, draft: WorkflowDraft, template: str) -> None:
    if template.partition("://")[0].lower() not in _FEDERATED_SCHEMES:
        submit.error(
            "output_destination",
            f"outputs cannot be uploaded to {_to_submit_text(template)}",
            "use an osdf or pelican URL",
        )
        return
    url = re.sub(r"^stash:", "osdf:", template, flags=re.IGNORECASE)
    if len(set(submit.job_table.values_per_job(url))) < len(submit.job_table):
        message = f"several of the {len(submit.job_table)} jobs would upload to the same URL {_to_submit_text(url)}"
        submit.report.add(submit.position("output_destination"), ERROR, message, "add $(Process) to the URL")
    draft.set_value(
        ("output", "osdf", "url"),
        submit.to_workflow_text("output_destination", url),
        submit.position("output_destination"),
    )
