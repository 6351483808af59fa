"""A submit description to the document of a workflow: the same that `packtrain adopt` prints."""

from __future__ import annotations

import re
from pathlib import Path

from packtrain.condor.submitfile.file_transfer import put_inputs, put_outputs
from packtrain.condor.submitfile.macros import MacroError
from packtrain.condor.submitfile.parsed_submit import Draft, Told
from packtrain.condor.submitfile.program import put_program
from packtrain.condor.submitfile.resources import put_container, put_lines, put_needs
from packtrain.condor.submitfile.wrapper_check import check_wrapper
from packtrain.spec.diagnostics import Place

_ORDER = (
    "name",
    "resources",
    "count",
    "matrix",
    "environment",
    "env",
    "inputs",
    "output",
    "expect",
    "limits",
    "htcondor",
    "steps",
)


def translate(told: Told, expect: tuple[str, ...]) -> Draft:
    """Problems are told; the draft is complete if there is no error among them."""
    draft = Draft()
    draft.put(("name",), name_of(told.description.name), Place())
    put_needs(told, draft)
    put_container(told, draft)
    run = put_program(told, draft)
    put_inputs(told, draft)
    put_outputs(told, draft, run, expect)
    put_lines(told, draft)
    check_wrapper(told, draft)
    _put_jobs(told, draft)
    for name in sorted(told.jobs.undefined - {"submit_file"}):
        told.report.add(_mention(told, name), "warning", f"$({name}) is not set anywhere, so it is empty")
    draft.value = {key: draft.value[key] for key in _ORDER if key in draft.value}
    return draft


def name_of(path: str) -> str:
    name = re.sub(r"[^A-Za-z0-9 ._-]+", "-", Path(path).stem).lstrip("-._ ")[:90]
    return name or "job"


def _put_jobs(told: Told, draft: Draft) -> None:
    place = Place(told.description.queue.line if told.description.queue else 1)
    try:
        for key, value in told.jobs.matrix().items():
            draft.put((key,), value, place)
    except MacroError as error:
        told.report.add(place, "error", str(error))


def _mention(told: Told, name: str) -> Place:
    mention = re.compile(rf"\$\w*\(\s*{re.escape(name)}\b", re.IGNORECASE)
    lines = [setting.line for setting in told.description.settings.values() if mention.search(setting.value)]
    return Place(min(lines, default=1))
