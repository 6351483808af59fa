"""What comes and what goes: the files of the working folder, and where outputs belong."""

from __future__ import annotations

import os.path
import posixpath
import re
from typing import Any
from urllib.parse import unquote, urlsplit

from packtrain.condor.submitfile.job_table import unique_name
from packtrain.condor.submitfile.macros import PLACEHOLDER, MacroError
from packtrain.condor.submitfile.name_conflicts import TargetNames
from packtrain.condor.submitfile.parsed_submit import ParsedSubmit, WorkflowDraft
from packtrain.condor.submitfile.quoting import QuotingError, split_list, split_remaps, unquote_classad
from packtrain.spec.diagnostics import ERROR, WARNING, Position

WORK_DIR = "work"
"""The folder of the sandbox that the program runs in, as it would in HTCondor's scratch folder."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9.+-]*)://")
_FEDERATED_SCHEMES = ("osdf", "stash", "pelican")
_TRANSFER_VALUES = ("", "yes", "if_needed", "true")
_MACRO_NAMES = {"job": "Process", "run": "Cluster"}
_WHEN_VALUES = ("", "on_exit", "on_success", "on_exit_or_evict")


def add_inputs(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    if submit.common_value("should_transfer_files").lower() not in _TRANSFER_VALUES:
        message = "should_transfer_files = NO relies on a file system that all machines share"
        submit.error("should_transfer_files", message, "write YES, and name the files in transfer_input_files")
    wanted: list[tuple[str, str]] = []
    if submit.flag("transfer_executable", True) and submit.has("executable"):
        wanted.append(("executable", submit.template("executable")))
    wanted += [("transfer_input_files", template) for template in _list_templates(submit, "transfer_input_files")]
    if submit.has("input") and submit.template("input") != "/dev/null":
        wanted.append(("input", submit.template("input")))
    landings = TargetNames()
    for key, template in wanted:
        _add_input(submit, draft, key, template, landings)


def _list_templates(submit: ParsedSubmit, key: str) -> list[str]:
    """The parts of a list, each a template. A value of `queue` may itself be a list."""
    symbolic = split_list(submit.template(key))
    try:
        lists = [
            split_list(submit.job_table.value_for_job(submit.raw_value(key), job))
            for job in range(len(submit.job_table))
        ]
        if len({len(each) for each in lists}) > 1:
            submit.error(key, f"{key} has more files for some jobs than for others, which packtrain cannot do")
            return []
        columns = [list(values) for values in zip(*lists, strict=True)]
        if [submit.job_table.values_per_job(part) for part in symbolic] == columns:
            return symbolic
        return [submit.job_table.column_template("file", values) for values in columns]
    except MacroError as error:
        submit.error(key, f"{key}: {error}")
        return []


def _add_input(submit: ParsedSubmit, draft: WorkflowDraft, key: str, template: str, target_names: TargetNames) -> None:
    each = submit.job_table.values_per_job(template)
    schemes = {found.group(1).lower() if (found := _SCHEME.match(value)) else "" for value in each}
    if not all(each) or len(schemes) > 1:
        submit.error(
            key, f"{key}: {_to_submit_text(template)} is a file for some jobs and nothing or an address for others"
        )
        return
    scheme = schemes.pop()
    made = _remote_input(submit, key, template, scheme) if scheme else _local_input(submit, key, template)
    if made is None:
        return
    before = None if made.pop("contents", False) else target_names.add(template, [_base_name(value) for value in each])
    if before is not None:
        if before != template:
            submit.error(
                key, f"{key}: {_to_submit_text(before)} and {_to_submit_text(template)} would have the same name there"
            )
        return
    draft.set_value(("inputs", _input_name(template, draft)), made, submit.position(key))


def _local_input(submit: ParsedSubmit, key: str, template: str) -> dict[str, Any] | None:
    """A folder with a slash behind it means what is in it."""
    path = template if key == "executable" else _join_initialdir(submit, template)
    contents = template.endswith("/")
    is_folder = contents or submit.context.is_folder(submit.job_table.values_per_job(path)[0])
    folder = posixpath.join(WORK_DIR, _base_name(template)) if is_folder and not contents else WORK_DIR
    made: dict[str, Any] = {"file": {"path": submit.to_workflow_text(key, path.rstrip("/") or "/")}}
    more = {"contents": True} if is_folder else {}
    return {**made, "folder": submit.to_workflow_text(key, folder), "unpack": "never", **more}


def _remote_input(submit: ParsedSubmit, key: str, template: str, scheme: str) -> dict[str, Any] | None:
    if scheme in ("http", "https"):
        return {"http": {"url": submit.to_workflow_text(key, template)}, "folder": WORK_DIR, "unpack": "never"}
    if scheme in _FEDERATED_SCHEMES:
        return _federated_input(submit, key, template)
    hint = "packtrain fetches http, https, osdf and pelican addresses"
    if scheme == "s3":
        hint = "print the workflow with `packtrain convert` without this file, and add it as an input of kind `s3`"
    submit.error(key, f"{key}: {_to_submit_text(template)} cannot be fetched", hint)
    return None


def _federated_input(submit: ParsedSubmit, key: str, template: str) -> dict[str, Any]:
    url, _, query = re.sub(r"^stash:", "osdf:", template, flags=re.IGNORECASE).partition("?")
    flags = [flag for flag in query.split("&") if flag]
    unpack = "auto" if any(flag.startswith("pack=") for flag in flags) else "never"
    rest = "&".join(flag for flag in flags if not flag.startswith("pack="))
    whole = url.endswith("/") or "recursive" in rest
    folder = posixpath.join(WORK_DIR, _base_name(url)) if whole and not url.endswith("/") else WORK_DIR
    address = f"{url}?{rest}" if rest else url
    made = {
        "osdf": {"url": submit.to_workflow_text(key, address)},
        "folder": submit.to_workflow_text(key, folder),
        "unpack": unpack,
    }
    return {**made, **({"contents": True} if whole else {})}


def _join_initialdir(submit: ParsedSubmit, path: str) -> str:
    return posixpath.normpath(posixpath.join(submit.template("initialdir"), path)) if path else path


def base_name(template: str) -> str:
    """The name that a file has in the working folder."""
    return _base_name(template)


def _base_name(template: str) -> str:
    path = template
    if _SCHEME.match(template):
        path = unquote(urlsplit(template.partition("?")[0]).path)
    return posixpath.basename(path.rstrip("/"))


def _input_name(template: str, draft: WorkflowDraft) -> str:
    """Names of inputs are folders' names and unique."""
    inputs = draft.document.get("inputs", {})
    assert isinstance(inputs, dict)
    words = PLACEHOLDER.sub(lambda found: found.group(1), _base_name(template))
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", words)[:90].lstrip("-.") or "file"
    return unique_name(plain, "-", inputs)


def _to_submit_text(template: str) -> str:
    """As the submit file has it."""
    return PLACEHOLDER.sub(lambda found: f"$({_MACRO_NAMES.get(found.group(1), found.group(1))})", template)[:80]


# outputs


def add_outputs(submit: ParsedSubmit, draft: WorkflowDraft, run: dict[str, Any], expect: tuple[str, ...]) -> None:
    """What the program leaves, where it belongs, and what must be there."""
    when = submit.common_value("when_to_transfer_output").lower()
    if when not in _WHEN_VALUES:
        submit.error("when_to_transfer_output", f"when_to_transfer_output = {when} is not known")
    if when == "on_exit_or_evict":
        submit.warning(
            "when_to_transfer_output",
            "what an evicted job had written is kept aside, but the next start does not find it",
            "see docs/how-to/checkpoints.md",
        )
    declared = _declared_outputs(submit)
    collect = [entry for entry, _ in declared] if declared is not None else ["*"]
    for path in expect:
        if declared is not None and path not in [landing for _, landing in declared]:
            collect.append(path)
    if collect:
        run["collect"] = collect
    _add_stdio(submit, run)
    _add_expect(submit, draft, declared or [], expect)
    _add_destination(submit, draft)


def _declared_outputs(submit: ParsedSubmit) -> list[tuple[str | dict[str, str], str]] | None:
    """What is collected and where it lands; None: nothing is declared, so all new files are outputs."""
    setting = submit.command("transfer_output_files")
    remaps = _parse_remaps(submit)
    if setting is None or not setting.value.strip():
        if remaps:
            submit.error(
                "transfer_output_remaps", "transfer_output_remaps needs transfer_output_files", "name the files"
            )
        return None
    found = []
    landings = TargetNames()
    keep_paths = submit.flag("preserve_relative_paths", False)
    for template in _list_templates(submit, "transfer_output_files"):
        usual = template if keep_paths else _base_name(template)
        to = remaps.pop(template, usual)
        whole = template.endswith("/") and to == usual
        if not _is_valid_output(submit, template, to, None if whole else landings):
            continue
        path, target = (submit.to_workflow_text("transfer_output_files", text) for text in (template, to.rstrip("/")))
        plain = target == posixpath.basename(path)
        found.append((path if plain or whole else {"path": path, "to": target}, path if whole else target))
    for name in remaps:
        submit.warning("transfer_output_remaps", f"{_to_submit_text(name)} is not among transfer_output_files")
    return found


def _is_valid_output(submit: ParsedSubmit, template: str, target: str, target_names: TargetNames | None) -> bool:
    """Whether the output stays in its folder, and has its name for itself."""
    names = [name.rstrip("/") for name in submit.job_table.values_per_job(target)]
    if not all(map(_is_inside, (*submit.job_table.values_per_job(template), *names))):
        submit.error(
            "transfer_output_files",
            f"{_to_submit_text(template)} would not stay in its folder: {_to_submit_text(target)}",
        )
        return False
    before = target_names.add(template, names) if target_names else None
    if before is not None and before != template:
        message = f"{_to_submit_text(before)} and {_to_submit_text(template)} would both be {_to_submit_text(target)} here, and one of them be lost"
        submit.error("transfer_output_files", message, "give one of them another name with transfer_output_remaps")
    return before is None


def _is_inside(path: str) -> bool:
    return bool(path) and not path.startswith(("/", "~")) and ".." not in path.split("/")


def _parse_remaps(submit: ParsedSubmit) -> dict[str, str]:
    try:
        found = split_remaps(submit.template("transfer_output_remaps"))
    except QuotingError as error:
        submit.error("transfer_output_remaps", str(error))
        return {}
    made = {}
    for name, target in found:
        relative = _relative_to_output_root(submit, target)
        if _SCHEME.match(target) or relative is None:
            message = f"{_to_submit_text(name)} should go to {_to_submit_text(target)}, but outputs go below {_output_root_text(submit)}"
            submit.error("transfer_output_remaps", message, "give a path below it")
        else:
            made[name] = relative
    return made


def _output_root_text(submit: ParsedSubmit) -> str:
    return _to_submit_text(submit.template("initialdir")) or "."


def _relative_to_output_root(submit: ParsedSubmit, template: str) -> str | None:
    """A path of the submit side as a path below the output folder, if it is one."""
    home = posixpath.normpath(posixpath.join(str(submit.context.folder), submit.template("initialdir")))
    path = posixpath.normpath(posixpath.join(home, template))
    return path[len(home) + 1 :] if path.startswith(f"{home.rstrip('/')}/") else None


def _add_stdio(submit: ParsedSubmit, run: dict[str, Any]) -> None:
    for key, name in (("output", "stdout"), ("error", "stderr")):
        template = unquote_classad(submit.template(key))
        if not template or template == "/dev/null":
            continue
        path = _relative_to_output_root(submit, template)
        if path is None:
            path = posixpath.basename(template)
            submit.warning(key, f"{key} goes to {path} among the outputs: {_to_submit_text(template)} is elsewhere")
        run[name] = submit.to_workflow_text(key, path)
    if submit.has("log"):
        submit.warning("log", "log is left out: HTCondor's log is in the run's folder; `packtrain why` reads it")


def _add_expect(
    submit: ParsedSubmit,
    draft: WorkflowDraft,
    declared: list[tuple[str | dict[str, str], str]],
    expect: tuple[str, ...],
) -> None:
    """HTCondor takes empty files, too; what a person expects has something in it."""
    made: list[Any] = [{"path": landing, "minSize": 0} for _, landing in declared if not landing.endswith("/")]
    made = [entry for entry in made if entry["path"] not in expect] + list(expect)
    if made:
        draft.set_value(("expect",), made, submit.position("transfer_output_files"))


def _add_destination(submit: ParsedSubmit, draft: WorkflowDraft) -> None:
    destination = submit.template("output_destination")
    queue = Position(submit.description.queue.line if submit.description.queue else 1)
    if destination:
        _add_remote_destination(submit, draft, destination)
        return
    home = submit.template("initialdir") or "."
    folders = [os.path.normpath(path) for path in submit.job_table.values_per_job(home)]
    if len(set(folders)) == len(folders):
        draft.set_value(
            ("output", "file", "path"), submit.to_workflow_text("initialdir", home), submit.position("initialdir")
        )
    else:
        message = f"{len(folders)} jobs would write to {_to_submit_text(home)}, where the last one wins: outputs are kept apart"
        submit.report.add(queue, WARNING, message, "`packtrain outputs` shows where")


def _add_remote_destination(submit: ParsedSubmit, draft: WorkflowDraft, template: str) -> None:
    if template.partition("://")[0].lower() not in _FEDERATED_SCHEMES:
        submit.error(
            "output_destination",
            f"outputs cannot go to {_to_submit_text(template)}",
            "packtrain knows osdf and pelican",
        )
        return
    url = re.sub(r"^stash:", "osdf:", template, flags=re.IGNORECASE)
    if len(set(submit.job_table.values_per_job(url))) < len(submit.job_table):
        message = f"{len(submit.job_table)} jobs would write to {_to_submit_text(url)}, some of them to the same place"
        submit.report.add(submit.position("output_destination"), ERROR, message, "put $(Process) into it")
    draft.set_value(
        ("output", "osdf", "url"),
        submit.to_workflow_text("output_destination", url),
        submit.position("output_destination"),
    )
