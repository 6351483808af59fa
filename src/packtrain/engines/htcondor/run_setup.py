"""Before a run's first attempt: what fits the pool and its access point, and all that its jobs carry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from packtrain.engines.htcondor import input_transfer
from packtrain.engines.htcondor import submit_description as text
from packtrain.engines.htcondor.condor_client import CondorClient
from packtrain.engines.htcondor.container import job_image
from packtrain.engines.htcondor.run_settings import RunSettings, SitePreferences
from packtrain.plan import Job, Plan, RunFolder, SecretOrStr, encode
from packtrain.spec.diagnostics import Diagnostic, DiagnosticReport, SourceMap
from packtrain.spec.units import format_size
from packtrain.spec.user_config import HtcondorConfig
from packtrain.state.site_history import EMPTY_HISTORY, SiteHistory, compute_dataset_id

_MB = 1_000_000
_MIB = 1 << 20
_DISK_MARGIN_MB = 1024  # for outputs, logs and the agent
_DEFAULT_DISK_MB = 10_240
_NO_LIMIT = -1
_MAX_LISTED = 5


def make_run_settings(
    plan: Plan, settings: HtcondorConfig, disk_bytes: int | None, site_history: SiteHistory = EMPTY_HISTORY
) -> RunSettings:
    """A workflow's own lines come last, so that they count more."""
    known = plan.jobs[0].limits.disk_bytes or disk_bytes
    disk_mb = _DEFAULT_DISK_MB if known is None else -(-known // _MIB) + _DISK_MARGIN_MB
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
    """Write what the jobs carry: plans as their agents read them, empty places for outputs, links to native inputs."""
    empty = folder.htcondor / "empty"
    for name in ("logs", "output", "checkpoint"):
        (empty / name).mkdir(parents=True, exist_ok=True)
    for name in ("journal.jsonl", "agent.log"):
        (empty / name).touch()
    settings.write(folder.htcondor / "run_settings.json")
    sent = input_transfer.collect_condor_inputs(plan)
    input_transfer.link_condor_inputs(sent, folder.htcondor / "native")
    _write_job_plans(plan, folder, sent)


def _write_job_plans(plan: Plan, folder: RunFolder, condor_inputs: Sequence[input_transfer.CondorInput]) -> None:
    """Without indentation and renaming: there may be thousands, and nobody reads them before the run is known."""
    around = {**encode(replace(plan, jobs=(), htcondor=(), slurm=())), "jobs": []}
    for job in plan.jobs:
        folder.job_folder(job.id).mkdir(parents=True, exist_ok=True)
        text = json.dumps(
            {**around, "jobs": [encode(input_transfer.job_for_worker(job, condor_inputs))]}, ensure_ascii=False
        )
        folder.job_plan(job.id).write_text(text, encoding="utf-8")


def find_problems(
    plan: Plan, settings: RunSettings, client: CondorClient, origin: SourceMap | None = None
) -> tuple[Diagnostic, ...]:
    """What the pool would not take, or only take and then hold; told before anything is submitted."""
    report = DiagnosticReport(origin or SourceMap(plan.name))
    for key, sentence in text.rejected_lines(settings.submit_lines):
        report.key_error(("htcondor", key), sentence)
    for keys, sentence in _input_problems(plan):
        report.error((*keys, "transfer"), sentence)
    if (
        plan.jobs[0].output
        and plan.jobs[0].output.continuous_sync
        and plan.jobs[0].output.location.url.startswith("file:")
    ):
        report.warning(("continuousOutputSync",), "outputs come from the pool when a job ends, not while it runs")
    for keys, sentence in _skipped_folder_warnings(plan):
        report.warning(keys, sentence, "put files into them, or name what a link leads to as an input of its own")
    if not report.has_errors:
        _check_input_sizes(plan, settings, client, report)
    return report.diagnostics


def _input_problems(plan: Plan) -> list[tuple[tuple[str, ...], str]]:
    """What is wrong with the inputs of any job; each sentence once."""
    found: dict[tuple[tuple[str, ...], str], None] = {}
    for job in _jobs_with_distinct_inputs(plan):
        for source in job.inputs:
            keys = _input_keys(source.name)
            found.update(((keys, sentence), None) for sentence in input_transfer.find_problems(source, ".".join(keys)))
        found.update(
            ((_input_keys(source.name), sentence), None) for source, sentence in input_transfer.find_name_conflicts(job)
        )
    return list(found)


def _skipped_folder_warnings(plan: Plan) -> dict[tuple[tuple[str, ...], str], None]:
    found: dict[tuple[tuple[str, ...], str], None] = {}
    for source in dict.fromkeys(source for job in _jobs_with_distinct_inputs(plan) for source in job.inputs):
        names = list(input_transfer.skipped_folders(source))
        more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
        if names:
            said = f"jobs do not get empty folders, nor what links to folders lead to: {', '.join(names[:_MAX_LISTED])}{more}"
            found[(_input_keys(source.name), said)] = None
    return found


def _check_input_sizes(plan: Plan, settings: RunSettings, client: CondorClient, report: DiagnosticReport) -> None:
    job, size = max(
        ((job, _condor_transfer_bytes(job, settings)) for job in _jobs_with_distinct_inputs(plan)),
        key=lambda pair: pair[1],
    )
    limit = max_condor_input_mb(settings, client)
    keys = next(
        (
            _input_keys(source.name)
            for source in job.inputs
            if input_transfer.transfer_method(source) == input_transfer.CONDOR
        ),
        ("input",),
    )
    remedy = "say `transfer: agent` and give an address (http, s3, osdf) that the job can reach"
    if limit >= 0 and size > limit * _MIB:
        report.error(
            keys,
            f"the access point would have to send {format_size(size)} to each job, but sends at most "
            f"{format_size(limit * _MIB)} (MAX_TRANSFER_INPUT_MB = {limit})",
            remedy,
        )
    elif size > input_transfer.MAX_RECOMMENDED_CONDOR_MB * _MB:
        report.warning(
            keys, f"the access point has to send {format_size(size)} to each of {len(plan.jobs)} jobs", remedy
        )


def _input_keys(name: str) -> tuple[str, ...]:
    return ("inputs", name) if name else ("input",)


def _jobs_with_distinct_inputs(plan: Plan) -> Iterator[Job]:
    """One job of each set of inputs: ten thousand alike are looked at once."""
    yield from {job.inputs: job for job in plan.jobs}.values()


def _condor_transfer_bytes(job: Job, settings: RunSettings) -> int:
    image = job_image(job)
    sent = image.startswith("/") and settings.get_submit_line("transfer_container").lower() not in (
        "false",
        "no",
        "f",
        "0",
    )
    return input_transfer.condor_transfer_bytes(job, [Path(image)] if sent else [])


def max_condor_input_mb(settings: RunSettings, client: CondorClient) -> int:
    """Of the job itself, else of the access point; -1: none."""
    for value in (settings.get_submit_line("max_transfer_input_mb"), client.get_param("MAX_TRANSFER_INPUT_MB")):
        try:
            return int(value)
        except ValueError:
            continue
    return _NO_LIMIT
