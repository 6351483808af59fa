"""Check that jobs can verify the digests in the workflow, once the sizes of the inputs are known."""

from __future__ import annotations

from packtrain.formatting import format_size
from packtrain.plan import Input, Plan, RemoteFile
from packtrain.spec.diagnostics import Diagnostic, DiagnosticReport, KeyPath, SourceMap
from packtrain.transfer.integrity.crc32c import MAX_PURE_PYTHON_BYTES


def check_digests(plan: Plan, source_map: SourceMap) -> tuple[Diagnostic, ...]:
    """Report CRC-32C digests of files that are too large for the agent, which has no compiled CRC-32C module."""
    report = DiagnosticReport(source_map)
    for input_ in (input_ for job in plan.jobs for input_ in job.inputs):
        for position, file in enumerate(input_.files):
            if file.digest and file.digest.algorithm == "crc32c" and (file.size or 0) > MAX_PURE_PYTHON_BYTES:
                report.error(
                    _digest_key_path(input_, position, source_map),
                    _crc32c_limit_message(file),
                    "give its sha256 or md5 instead",
                )
    return report.diagnostics


def _crc32c_limit_message(file: RemoteFile) -> str:
    size, max_gib = format_size(file.size or 0), MAX_PURE_PYTHON_BYTES >> 30
    return f"{file.name} has {size}, but a job can compute the crc32c of at most {max_gib} GiB"


def _digest_key_path(input_: Input, position: int, source_map: SourceMap) -> KeyPath:
    """Return where the workflow states the digest; the plan does not record it."""
    top: KeyPath = ("inputs", input_.name) if input_.name else ("input",)
    parents: tuple[KeyPath, ...] = (("http", "files", position), ("http",), ("osdf",))
    candidates = [(*top, *parent, "crc32c") for parent in parents]
    return next((path for path in candidates if path in source_map.value_positions), top)
