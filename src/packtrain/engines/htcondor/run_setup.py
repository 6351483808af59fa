"""Before a run's first attempt: what fits the pool and its access point, and all that its jobs carry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from packtrain.engines.htcondor import input_transfer
from packtrain.engines.htcondor import submit_description as text
from packtrain.engines.htcondor.condor_client import Client
from packtrain.engines.htcondor.container import image_of
from packtrain.engines.htcondor.run_settings import Hints, RunSettings
from packtrain.plan import Job, Plan, RunFolder, Text, encode
from packtrain.spec.diagnostics import Origin, Problem, Report
from packtrain.spec.units import show_size
from packtrain.spec.user_config import HtcondorSettings
from packtrain.state.site_history import NOTHING, Knowledge, dataset_of

_MB = 1_000_000
_MIB = 1 << 20
_SPARE_MB = 1024  # for outputs, logs and the agent
_UNKNOWN_MB = 10_240
_NO_LIMIT = -1
_SHOWN = 5


def run_settings(
    plan: Plan, settings: HtcondorSettings, disk_bytes: int | None, learned: Knowledge = NOTHING
) -> RunSettings:
    """A workflow's own lines come last, so that they count more."""
    known = plan.jobs[0].limits.disk_bytes or disk_bytes
    disk_mb = _UNKNOWN_MB if known is None else -(-known // _MIB) + _SPARE_MB
    lines = (*settings.lines.items(), *((line.key, _shown(line.value)) for line in plan.htcondor))
    return RunSettings(
        project=settings.project,
        duration=settings.duration,
        lease_s=int(settings.lease),
        max_jobs=settings.max_jobs,
        max_idle=settings.max_idle,
        starts=settings.starts,
        disk_mb=disk_mb,
        lines=lines,
        hints=Hints.of(learned, dataset_of(plan.jobs[0])),
    )


def _shown(value: Text) -> str:
    return value if isinstance(value, str) else ""


def make_ready(plan: Plan, folder: RunFolder, settings: RunSettings) -> None:
    """Write what the jobs carry: plans as their agents read them, empty places for outputs, links to native inputs."""
    empty = folder.htcondor / "empty"
    for name in ("logs", "output", "checkpoint"):
        (empty / name).mkdir(parents=True, exist_ok=True)
    for name in ("journal.jsonl", "agent.log"):
        (empty / name).touch()
    settings.write(folder.htcondor / "settings.json")
    sent = input_transfer.parcels(plan)
    input_transfer.lay_out(sent, folder.htcondor / "native")
    _write_job_plans(plan, folder, sent)


def _write_job_plans(plan: Plan, folder: RunFolder, sent: Sequence[input_transfer.Parcel]) -> None:
    """Without indentation and renaming: there may be thousands, and nobody reads them before the run is known."""
    around = {**encode(replace(plan, jobs=(), htcondor=(), slurm=())), "jobs": []}
    for job in plan.jobs:
        folder.job(job.id).mkdir(parents=True, exist_ok=True)
        text = json.dumps({**around, "jobs": [encode(input_transfer.for_worker(job, sent))]}, ensure_ascii=False)
        folder.job_plan(job.id).write_text(text, encoding="utf-8")


def problems(plan: Plan, settings: RunSettings, client: Client, origin: Origin | None = None) -> tuple[Problem, ...]:
    """What the pool would not take, or only take and then hold; told before anything is submitted."""
    report = Report(origin or Origin(plan.name))
    for key, sentence in text.refused(settings.lines):
        report.key_error(("htcondor", key), sentence)
    for keys, sentence in _of_inputs(plan):
        report.error((*keys, "delivery"), sentence)
    if plan.jobs[0].output and plan.jobs[0].output.continuous and plan.jobs[0].output.ref.url.startswith("file:"):
        report.warning(("continuousOutputSync",), "outputs come from the pool when a job ends, not while it runs")
    for keys, sentence in _left_out(plan):
        report.warning(keys, sentence, "put files into them, or name what a link leads to as an input of its own")
    if not report.failed:
        _compare_sizes(plan, settings, client, report)
    return report.problems


def _of_inputs(plan: Plan) -> list[tuple[tuple[str, ...], str]]:
    """What is wrong with the inputs of any job; each sentence once."""
    found: dict[tuple[tuple[str, ...], str], None] = {}
    for job in _different(plan):
        for source in job.inputs:
            keys = _keys(source.name)
            found.update(((keys, sentence), None) for sentence in input_transfer.problems(source, ".".join(keys)))
        found.update(((_keys(source.name), sentence), None) for source, sentence in input_transfer.clashes(job))
    return list(found)


def _left_out(plan: Plan) -> dict[tuple[tuple[str, ...], str], None]:
    found: dict[tuple[tuple[str, ...], str], None] = {}
    for source in dict.fromkeys(source for job in _different(plan) for source in job.inputs):
        names = list(input_transfer.left_out(source))
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        if names:
            said = (
                f"jobs do not get empty folders, nor what links to folders lead to: {', '.join(names[:_SHOWN])}{more}"
            )
            found[(_keys(source.name), said)] = None
    return found


def _compare_sizes(plan: Plan, settings: RunSettings, client: Client, report: Report) -> None:
    job, size = max(((job, _native_bytes(job, settings)) for job in _different(plan)), key=lambda pair: pair[1])
    limit = native_limit_mb(settings, client)
    keys = next(
        (_keys(source.name) for source in job.inputs if input_transfer.way_of(source) == input_transfer.NATIVE),
        ("input",),
    )
    remedy = "say `delivery: agent` and give an address (http, s3, osdf) that the job can reach"
    if limit >= 0 and size > limit * _MIB:
        report.error(
            keys,
            f"the access point would have to send {show_size(size)} to each job, but sends at most "
            f"{show_size(limit * _MIB)} (MAX_TRANSFER_INPUT_MB = {limit})",
            remedy,
        )
    elif size > input_transfer.ADVISED_NATIVE_MB * _MB:
        report.warning(keys, f"the access point has to send {show_size(size)} to each of {len(plan.jobs)} jobs", remedy)


def _keys(name: str) -> tuple[str, ...]:
    return ("inputs", name) if name else ("input",)


def _different(plan: Plan) -> Iterator[Job]:
    """One job of each set of inputs: ten thousand alike are looked at once."""
    yield from {job.inputs: job for job in plan.jobs}.values()


def _native_bytes(job: Job, settings: RunSettings) -> int:
    image = image_of(job)
    sent = image.startswith("/") and settings.line("transfer_container").lower() not in ("false", "no", "f", "0")
    return input_transfer.native_bytes(job, [Path(image)] if sent else [])


def native_limit_mb(settings: RunSettings, client: Client) -> int:
    """Of the job itself, else of the access point; -1: none."""
    for value in (settings.line("max_transfer_input_mb"), client.param("MAX_TRANSFER_INPUT_MB")):
        try:
            return int(value)
        except ValueError:
            continue
    return _NO_LIMIT
