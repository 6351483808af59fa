"""Whether jobs can compare the digests that the workflow states, once the sizes of its inputs are known."""

from __future__ import annotations

from packtrain.plan import Input, Plan, RemoteFile
from packtrain.spec.diagnostics import Diagnostic, DiagnosticReport, SourceMap
from packtrain.spec.diagnostics import KeyPath as Keys
from packtrain.spec.units import format_size
from packtrain.transfer.crc32c import MAX_PURE_PYTHON_BYTES


def check_digests(plan: Plan, source_map: SourceMap) -> tuple[Diagnostic, ...]:
    """The agent sees no installed modules (it runs with -S), so what is fast on this machine is of no use to it."""
    report = DiagnosticReport(source_map)
    for source in (source for job in plan.jobs for source in job.inputs):
        for position, item in enumerate(source.files):
            if item.digest and item.digest.algorithm == "crc32c" and (item.size or 0) > MAX_PURE_PYTHON_BYTES:
                report.error(
                    _digest_key_path(source, position, source_map),
                    _crc32c_limit_message(item),
                    "give its sha256 or md5 instead",
                )
    return report.diagnostics


def _crc32c_limit_message(file: RemoteFile) -> str:
    has, most = format_size(file.size or 0), MAX_PURE_PYTHON_BYTES >> 30
    return f"{file.name} has {has}, and a job would take too long to compute a crc32c of more than {most} GiB"


def _digest_key_path(input_: Input, position: int, source_map: SourceMap) -> Keys:
    """A plan does not say where in the workflow an item's digest stands."""
    top: Keys = ("inputs", input_.name) if input_.name else ("input",)
    ways: tuple[Keys, ...] = (("http", "files", position), ("http",), ("osdf",))
    places = [(*top, *way, "crc32c") for way in ways]
    return next((place for place in places if place in source_map.value_positions), top)
