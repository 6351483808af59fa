"""Detect jobs of a run that would write to the same output, before anything runs."""

from __future__ import annotations

import os.path

from packtrain.spec import matrix, placeholders
from packtrain.spec.diagnostics import DiagnosticReport, KeyPath
from packtrain.spec.models.inputs_outputs import Output
from packtrain.spec.models.workflow import Workflow


def output_destination(output: Output) -> tuple[KeyPath, str]:
    """Return the key path of the destination and the destination, with placeholders."""
    if output.s3:
        return ("output", "s3", "path"), f"{output.s3.bucket_url}{output.s3.path}"
    if output.file:
        return ("output", "file", "path"), os.path.normpath(output.file.path)
    if output.http:
        return ("output", "http", "url"), output.http.url
    osdf = output.osdf
    return ("output", "osdf"), (osdf.url or osdf.path or "") if osdf else ""


def check_output_conflicts(workflow: Workflow, report: DiagnosticReport) -> None:
    """Report the first two jobs that would write to the same destination."""
    if workflow.output is None:
        return
    path, destination = output_destination(workflow.output)
    owners: dict[str, int] = {}
    for job, point in enumerate(matrix.expand_matrix(workflow.matrix, workflow.count)):
        filled = placeholders.fill_placeholders(destination, {**point, "job": str(job)}).rstrip("/")
        if filled in owners:
            message = f"jobs {owners[filled]} and {job} would both write to {filled or '/'}"
            report.error(path, message, "use {job} or a key of the matrix in it")
            return
        owners[filled] = job
