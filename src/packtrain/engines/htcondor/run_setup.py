"""Checks a plan against the pool, and writes the files that its jobs need, before the first attempt."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from packtrain.engines.htcondor import input_transfer
from packtrain.engines.htcondor.condor_client import CondorClient
from packtrain.engines.htcondor.container import job_image
from packtrain.engines.htcondor.run_settings import RunSettings, SitePreferences
from packtrain.engines.htcondor.submit_lines import rejected_lines
from packtrain.formatting import format_size
from packtrain.plan import Job, Plan, RunFolder, SecretOrStr, encode
from packtrain.spec.diagnostics import Diagnostic, DiagnosticReport, SourceMap
from packtrain.spec.user_config import HtcondorConfig
from packtrain.state.site_history import EMPTY_HISTORY, SiteHistory, compute_dataset_id

_MB = 1_000_000
_MIB = 1 << 20
_DISK_MARGIN_MB = 1024  # for outputs, logs and the agent
_DEFAULT_DISK_MB = 10_240  # if the size of the inputs is unknown
_NO_LIMIT = -1
_MAX_LISTED = 5
_FALSE_VALUES = ("false", "no", "f", "0")


def make_run_settings(
    plan: Plan, settings: HtcondorConfig, disk_bytes: int | None, site_history: SiteHistory = EMPTY_HISTORY
) -> RunSettings:
    """Return the settings of a new run.

    Args:
        plan: The plan of the run.
        settings: The user's settings. Submit lines of the workflow come after those of the user, so that they win.
        disk_bytes: The estimated size of inputs and outputs of one job, or None if unknown.
        site_history: What earlier runs learned about sites.
    """
    n_bytes = plan.jobs[0].limits.disk_bytes or disk_bytes
    disk_mb = _DEFAULT_DISK_MB if n_bytes is None else -(-n_bytes // _MIB) + _DISK_MARGIN_MB
    lines = (*settings.submit_commands.items(), *((line.key, _plain_text(line.value)) for line in plan.htcondor))
    return RunSettings(
        project=settings.project,
        duration_category=settings.duration_category,
        lease_s=int(settings.job_lease_duration),
        max_jobs=settings.max_jobs,
        max_idle=settings.max_idle,
        max_executions=settings.max_executions,
        disk_mb=disk_mb,
        submit_lines=lines,
        site_preferences=SitePreferences.from_history(site_history, compute_dataset_id(plan.jobs[0])),
    )


def _plain_text(value: SecretOrStr) -> str:
    return value if isinstance(value, str) else ""


def write_run_files(plan: Plan, folder: RunFolder, settings: RunSettings) -> None:
    """Write the files that are sent with the jobs: plans, the skeleton of the outputs, and links to local inputs.

    The skeleton has an empty file or folder for every name in `transfer_output_files`, because HTCondor holds a job
    whose outputs are missing.
    """
    skeleton = folder.htcondor / "skeleton"
    for name in ("logs", "output", "checkpoint"):
        (skeleton / name).mkdir(parents=True, exist_ok=True)
    for name in ("journal.jsonl", "agent.log"):
        (skeleton / name).touch()
    settings.write(folder.htcondor / "run_settings.json")
    condor_inputs = input_transfer.collect_condor_inputs(plan)
    input_transfer.link_condor_inputs(condor_inputs, folder.htcondor / "inputs")
    _write_job_plans(plan, folder, condor_inputs)


def _write_job_plans(plan: Plan, folder: RunFolder, condor_inputs: Sequence[input_transfer.CondorInput]) -> None:
    """Write the plan of each job, compact and not atomically: there may be thousands of jobs, and no other process
    reads the plans before the run is stored."""
    common = {**encode(replace(plan, jobs=(), htcondor=(), slurm=())), "jobs": []}
    for job in plan.jobs:
        folder.job_folder(job.id).mkdir(parents=True, exist_ok=True)
        encoded_job = encode(input_transfer.job_for_worker(job, condor_inputs))
        text = json.dumps({**common, "jobs": [encoded_job]}, ensure_ascii=False)
        folder.job_plan(job.id).write_text(text, encoding="utf-8")


def find_problems(
    plan: Plan, settings: RunSettings, client: CondorClient, origin: SourceMap | None = None
) -> tuple[Diagnostic, ...]:
    """Return what the pool would reject or hold, before anything is submitted.

    Args:
        plan: The plan of the run.
        settings: The settings of the run.
        client: Asked for the configuration of the access point.
        origin: Positions of the keys in the workflow file.
    """
    report = DiagnosticReport(origin or SourceMap(plan.name))
    for key, message in rejected_lines(settings.submit_lines):
        report.key_error(("htcondor", key), message)
    for keys, message in _input_problems(plan):
        report.error((*keys, "transfer"), message)
    output = plan.jobs[0].output
    if output and output.continuous_sync and output.location.url.startswith("file:"):
        report.warning(("continuousOutputSync",), "the pool returns outputs when a job ends, not while it runs")
    for keys, message in _skipped_folder_warnings(plan):
        report.warning(keys, message, "put files into empty folders, and add the targets of links as inputs")
    if not report.has_errors:
        _check_input_sizes(plan, settings, client, report)
    return report.diagnostics


def _input_problems(plan: Plan) -> list[tuple[tuple[str, ...], str]]:
    """Return the problems with the inputs of all jobs, each key and message once."""
    problems: dict[tuple[tuple[str, ...], str], None] = {}
    for job in _jobs_with_distinct_inputs(plan):
        for source in job.inputs:
            keys = _input_keys(source.name)
            for message in input_transfer.find_problems(source, ".".join(keys)):
                problems[(keys, message)] = None
        for source, message in input_transfer.find_name_conflicts(job):
            problems[(_input_keys(source.name), message)] = None
    return list(problems)


def _skipped_folder_warnings(plan: Plan) -> list[tuple[tuple[str, ...], str]]:
    warnings: dict[tuple[tuple[str, ...], str], None] = {}
    for source in dict.fromkeys(source for job in _jobs_with_distinct_inputs(plan) for source in job.inputs):
        names = list(input_transfer.skipped_folders(source))
        more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
        if names:
            listed = f"{', '.join(names[:_MAX_LISTED])}{more}"
            warnings[(_input_keys(source.name), f"jobs do not get empty folders and links to folders: {listed}")] = None
    return list(warnings)


def _check_input_sizes(plan: Plan, settings: RunSettings, client: CondorClient, report: DiagnosticReport) -> None:
    job, n_bytes = max(
        ((job, _condor_transfer_bytes(job, settings)) for job in _jobs_with_distinct_inputs(plan)),
        key=lambda pair: pair[1],
    )
    limit_mb = max_condor_input_mb(settings, client)
    sources = (s for s in job.inputs if input_transfer.transfer_method(s) == input_transfer.CONDOR)
    keys = next((_input_keys(source.name) for source in sources), ("input",))
    hint = "use `transfer: agent` and a URL (http, s3, osdf) that the job can reach"
    if limit_mb >= 0 and n_bytes > limit_mb * _MIB:
        message = (
            f"the access point would have to send {format_size(n_bytes)} to each job, but sends at most "
            f"{format_size(limit_mb * _MIB)} (MAX_TRANSFER_INPUT_MB = {limit_mb})"
        )
        report.error(keys, message, hint)
    elif n_bytes > input_transfer.MAX_RECOMMENDED_CONDOR_MB * _MB:
        message = f"the access point has to send {format_size(n_bytes)} to each of {len(plan.jobs)} jobs"
        report.warning(keys, message, hint)


def _input_keys(name: str) -> tuple[str, ...]:
    return ("inputs", name) if name else ("input",)


def _jobs_with_distinct_inputs(plan: Plan) -> Iterator[Job]:
    """Yield one job for each set of inputs, so that ten thousand jobs with the same inputs are checked once."""
    yield from {job.inputs: job for job in plan.jobs}.values()


def _condor_transfer_bytes(job: Job, settings: RunSettings) -> int:
    image = job_image(job)
    is_sent = image.startswith("/") and settings.get_submit_line("transfer_container").lower() not in _FALSE_VALUES
    return input_transfer.condor_transfer_bytes(job, [Path(image)] if is_sent else [])


def max_condor_input_mb(settings: RunSettings, client: CondorClient) -> int:
    """Return the limit in MiB of the job itself, or of the access point; -1 if there is none."""
    for value in (settings.get_submit_line("max_transfer_input_mb"), client.get_param("MAX_TRANSFER_INPUT_MB")):
        try:
            return int(value)
        except ValueError:
            continue
    return _NO_LIMIT
