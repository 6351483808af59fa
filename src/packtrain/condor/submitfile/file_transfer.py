"""What comes and what goes: the files of the working folder, and where outputs belong."""

from __future__ import annotations

import os.path
import posixpath
import re
from typing import Any
from urllib.parse import unquote, urlsplit

from packtrain.condor.submitfile.job_table import first_free
from packtrain.condor.submitfile.macros import MARK, MacroError
from packtrain.condor.submitfile.name_conflicts import Landings
from packtrain.condor.submitfile.parsed_submit import Draft, Told
from packtrain.condor.submitfile.quoting import QuotingError, split_list, split_remaps, unquoted
from packtrain.spec.diagnostics import ERROR, WARNING, Place

WORK = "work"
"""The folder of the sandbox that the program runs in, as it would in HTCondor's scratch folder."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9.+-]*)://")
_FEDERATED = ("osdf", "stash", "pelican")
_TRANSFER = ("", "yes", "if_needed", "true")
_SPELT = {"job": "Process", "run": "Cluster"}
_WHEN = ("", "on_exit", "on_success", "on_exit_or_evict")


def put_inputs(told: Told, draft: Draft) -> None:
    if told.fixed("should_transfer_files").lower() not in _TRANSFER:
        message = "should_transfer_files = NO relies on a file system that all machines share"
        told.error("should_transfer_files", message, "write YES, and name the files in transfer_input_files")
    wanted: list[tuple[str, str]] = []
    if told.flag("transfer_executable", True) and told.has("executable"):
        wanted.append(("executable", told.template("executable")))
    wanted += [("transfer_input_files", template) for template in _listed(told, "transfer_input_files")]
    if told.has("input") and told.template("input") != "/dev/null":
        wanted.append(("input", told.template("input")))
    landings = Landings()
    for key, template in wanted:
        _put_input(told, draft, key, template, landings)


def _listed(told: Told, key: str) -> list[str]:
    """The parts of a list, each a template. A value of `queue` may itself be a list."""
    symbolic = split_list(told.template(key))
    try:
        lists = [split_list(told.jobs.concrete(told.raw(key), job)) for job in range(len(told.jobs))]
        if len({len(each) for each in lists}) > 1:
            told.error(key, f"{key} has more files for some jobs than for others, which packtrain cannot do")
            return []
        columns = [list(values) for values in zip(*lists, strict=True)]
        if [told.jobs.of_each(part) for part in symbolic] == columns:
            return symbolic
        return [told.jobs.column("file", values) for values in columns]
    except MacroError as error:
        told.error(key, f"{key}: {error}")
        return []


def _put_input(told: Told, draft: Draft, key: str, template: str, landings: Landings) -> None:
    each = told.jobs.of_each(template)
    schemes = {found.group(1).lower() if (found := _SCHEME.match(value)) else "" for value in each}
    if not all(each) or len(schemes) > 1:
        told.error(key, f"{key}: {_plain(template)} is a file for some jobs and nothing or an address for others")
        return
    scheme = schemes.pop()
    made = _address(told, key, template, scheme) if scheme else _local(told, key, template)
    if made is None:
        return
    before = None if made.pop("contents", False) else landings.take(template, [_last(value) for value in each])
    if before is not None:
        if before != template:
            told.error(key, f"{key}: {_plain(before)} and {_plain(template)} would have the same name there")
        return
    draft.put(("inputs", _name(template, draft)), made, told.place(key))


def _local(told: Told, key: str, template: str) -> dict[str, Any] | None:
    """A folder with a slash behind it means what is in it."""
    path = template if key == "executable" else _from_initialdir(told, template)
    contents = template.endswith("/")
    is_folder = contents or told.around.is_folder(told.jobs.of_each(path)[0])
    folder = posixpath.join(WORK, _last(template)) if is_folder and not contents else WORK
    made: dict[str, Any] = {"file": {"path": told.braces(key, path.rstrip("/") or "/")}}
    more = {"contents": True} if is_folder else {}
    return {**made, "folder": told.braces(key, folder), "unpack": "never", **more}


def _address(told: Told, key: str, template: str, scheme: str) -> dict[str, Any] | None:
    if scheme in ("http", "https"):
        return {"http": {"url": told.braces(key, template)}, "folder": WORK, "unpack": "never"}
    if scheme in _FEDERATED:
        return _federated(told, key, template)
    hint = "packtrain fetches http, https, osdf and pelican addresses"
    if scheme == "s3":
        hint = "print the workflow with `packtrain adopt` without this file, and add it as an input of kind `s3`"
    told.error(key, f"{key}: {_plain(template)} cannot be fetched", hint)
    return None


def _federated(told: Told, key: str, template: str) -> dict[str, Any]:
    url, _, query = re.sub(r"^stash:", "osdf:", template, flags=re.IGNORECASE).partition("?")
    flags = [flag for flag in query.split("&") if flag]
    unpack = "auto" if any(flag.startswith("pack=") for flag in flags) else "never"
    rest = "&".join(flag for flag in flags if not flag.startswith("pack="))
    whole = url.endswith("/") or "recursive" in rest
    folder = posixpath.join(WORK, _last(url)) if whole and not url.endswith("/") else WORK
    address = f"{url}?{rest}" if rest else url
    made = {"osdf": {"url": told.braces(key, address)}, "folder": told.braces(key, folder), "unpack": unpack}
    return {**made, **({"contents": True} if whole else {})}


def _from_initialdir(told: Told, path: str) -> str:
    return posixpath.normpath(posixpath.join(told.template("initialdir"), path)) if path else path


def last_of(template: str) -> str:
    """The name that a file has in the working folder."""
    return _last(template)


def _last(template: str) -> str:
    path = template
    if _SCHEME.match(template):
        path = unquote(urlsplit(template.partition("?")[0]).path)
    return posixpath.basename(path.rstrip("/"))


def _name(template: str, draft: Draft) -> str:
    """Names of inputs are folders' names and unique."""
    inputs = draft.value.get("inputs", {})
    assert isinstance(inputs, dict)
    words = MARK.sub(lambda found: found.group(1), _last(template))
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", words)[:90].lstrip("-.") or "file"
    return first_free(plain, "-", inputs)


def _plain(template: str) -> str:
    """As the submit file has it."""
    return MARK.sub(lambda found: f"$({_SPELT.get(found.group(1), found.group(1))})", template)[:80]


# outputs


def put_outputs(told: Told, draft: Draft, run: dict[str, Any], expect: tuple[str, ...]) -> None:
    """What the program leaves, where it belongs, and what must be there."""
    when = told.fixed("when_to_transfer_output").lower()
    if when not in _WHEN:
        told.error("when_to_transfer_output", f"when_to_transfer_output = {when} is not known")
    if when == "on_exit_or_evict":
        told.warning(
            "when_to_transfer_output",
            "what an evicted job had written is kept aside, but the next start does not find it",
            "see docs/how-to/checkpoints.md",
        )
    declared = _declared(told)
    collect = [entry for entry, _ in declared] if declared is not None else ["*"]
    for path in expect:
        if declared is not None and path not in [landing for _, landing in declared]:
            collect.append(path)
    if collect:
        run["collect"] = collect
    _put_words(told, run)
    _put_expect(told, draft, declared or [], expect)
    _put_destination(told, draft)


def _declared(told: Told) -> list[tuple[str | dict[str, str], str]] | None:
    """What is collected and where it lands; None: nothing is declared, so all new files are outputs."""
    setting = told.setting("transfer_output_files")
    remaps = _remaps(told)
    if setting is None or not setting.value.strip():
        if remaps:
            told.error("transfer_output_remaps", "transfer_output_remaps needs transfer_output_files", "name the files")
        return None
    found = []
    landings = Landings()
    keep_paths = told.flag("preserve_relative_paths", False)
    for template in _listed(told, "transfer_output_files"):
        usual = template if keep_paths else _last(template)
        to = remaps.pop(template, usual)
        whole = template.endswith("/") and to == usual
        if not _has_place(told, template, to, None if whole else landings):
            continue
        path, target = (told.braces("transfer_output_files", text) for text in (template, to.rstrip("/")))
        plain = target == posixpath.basename(path)
        found.append((path if plain or whole else {"path": path, "to": target}, path if whole else target))
    for name in remaps:
        told.warning("transfer_output_remaps", f"{_plain(name)} is not among transfer_output_files")
    return found


def _has_place(told: Told, template: str, to: str, landings: Landings | None) -> bool:
    """Whether the output stays in its folder, and has its name for itself."""
    names = [name.rstrip("/") for name in told.jobs.of_each(to)]
    if not all(map(_is_inside, (*told.jobs.of_each(template), *names))):
        told.error("transfer_output_files", f"{_plain(template)} would not stay in its folder: {_plain(to)}")
        return False
    before = landings.take(template, names) if landings else None
    if before is not None and before != template:
        message = f"{_plain(before)} and {_plain(template)} would both be {_plain(to)} here, and one of them be lost"
        told.error("transfer_output_files", message, "give one of them another name with transfer_output_remaps")
    return before is None


def _is_inside(path: str) -> bool:
    return bool(path) and not path.startswith(("/", "~")) and ".." not in path.split("/")


def _remaps(told: Told) -> dict[str, str]:
    try:
        found = split_remaps(told.template("transfer_output_remaps"))
    except QuotingError as error:
        told.error("transfer_output_remaps", str(error))
        return {}
    made = {}
    for name, target in found:
        relative = _below_home(told, target)
        if _SCHEME.match(target) or relative is None:
            message = f"{_plain(name)} should go to {_plain(target)}, but outputs go below {_home(told)}"
            told.error("transfer_output_remaps", message, "give a path below it")
        else:
            made[name] = relative
    return made


def _home(told: Told) -> str:
    return _plain(told.template("initialdir")) or "."


def _below_home(told: Told, template: str) -> str | None:
    """A path of the submit side as a path below the output folder, if it is one."""
    home = posixpath.normpath(posixpath.join(str(told.around.where), told.template("initialdir")))
    path = posixpath.normpath(posixpath.join(home, template))
    return path[len(home) + 1 :] if path.startswith(f"{home.rstrip('/')}/") else None


def _put_words(told: Told, run: dict[str, Any]) -> None:
    for key, name in (("output", "stdout"), ("error", "stderr")):
        template = unquoted(told.template(key))
        if not template or template == "/dev/null":
            continue
        path = _below_home(told, template)
        if path is None:
            path = posixpath.basename(template)
            told.warning(key, f"{key} goes to {path} among the outputs: {_plain(template)} is elsewhere")
        run[name] = told.braces(key, path)
    if told.has("log"):
        told.warning("log", "log is left out: HTCondor's log is in the run's folder; `packtrain why` reads it")


def _put_expect(
    told: Told, draft: Draft, declared: list[tuple[str | dict[str, str], str]], expect: tuple[str, ...]
) -> None:
    """HTCondor takes empty files, too; what a person expects has something in it."""
    made: list[Any] = [{"path": landing, "minSize": 0} for _, landing in declared if not landing.endswith("/")]
    made = [entry for entry in made if entry["path"] not in expect] + list(expect)
    if made:
        draft.put(("expect",), made, told.place("transfer_output_files"))


def _put_destination(told: Told, draft: Draft) -> None:
    destination = told.template("output_destination")
    queue = Place(told.description.queue.line if told.description.queue else 1)
    if destination:
        _put_elsewhere(told, draft, destination)
        return
    home = told.template("initialdir") or "."
    folders = [os.path.normpath(path) for path in told.jobs.of_each(home)]
    if len(set(folders)) == len(folders):
        draft.put(("output", "file", "path"), told.braces("initialdir", home), told.place("initialdir"))
    else:
        message = f"{len(folders)} jobs would write to {_plain(home)}, where the last one wins: outputs are kept apart"
        told.report.add(queue, WARNING, message, "`packtrain outputs` shows where")


def _put_elsewhere(told: Told, draft: Draft, template: str) -> None:
    if template.partition("://")[0].lower() not in _FEDERATED:
        told.error("output_destination", f"outputs cannot go to {_plain(template)}", "packtrain knows osdf and pelican")
        return
    url = re.sub(r"^stash:", "osdf:", template, flags=re.IGNORECASE)
    if len(set(told.jobs.of_each(url))) < len(told.jobs):
        message = f"{len(told.jobs)} jobs would write to {_plain(url)}, some of them to the same place"
        told.report.add(told.place("output_destination"), ERROR, message, "put $(Process) into it")
    draft.put(("output", "osdf", "url"), told.braces("output_destination", url), told.place("output_destination"))
