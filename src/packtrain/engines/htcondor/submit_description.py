"""Renders the submit description of a batch of attempts, as text for condor_submit. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packtrain.condor.hold_codes import TOO_MANY_EXECUTIONS_SUBCODE
from packtrain.engines.api import NO_OVERRIDES, Overrides, min_live_interval_s
from packtrain.engines.htcondor.container import job_image
from packtrain.engines.htcondor.machine_requirements import machine_terms
from packtrain.engines.htcondor.output_retrieval import has_condor_checkpoints
from packtrain.engines.htcondor.run_settings import RunSettings, SitePreferences
from packtrain.engines.htcondor.submit_lines import SubmitLine, has_site_requirements, merge_lines
from packtrain.engines.htcondor.tracking import LOG_PREFIX
from packtrain.errors import EXIT_RESUME_IN_PLACE, UsageError
from packtrain.plan import Job, RunFolder

_MAX_MEDIUM_DURATION_S, _MEDIUM_CATEGORY, _LONG_CATEGORY = 10 * 3600, "Medium", "Long"
_SAFE_NAME = re.compile(r"[\w.:-]{1,200}", re.ASCII)
_AVOID_TIMEOUT_S = 3600  # time in the queue after which a job may also run at a site to avoid
_SITE_ATTRIBUTES = "GLIDEIN_ResourceName, GLIDEIN_Site"

# Unlike `log`, `dagman_log` can leave out event types; in `log`, each progress update of a job would be an event (033).
_LOG_EVENT_MASK = "0,1,4,5,7,8,9,12,13,21,22,23,24,35,36,37,38,40"


@dataclass(frozen=True)
class SubmitBatch:
    """Attempts that are submitted together. Their jobs differ only in their matrix point."""

    run_id: str
    n_jobs: int  # of the run, not of the batch
    attempts: Sequence[tuple[Job, str]]  # job and attempt id
    transfer_inputs: Mapping[str, Sequence[str]]  # additional entries of transfer_input_files, by attempt id
    has_secrets: bool = False
    overrides: Overrides = NO_OVERRIDES  # the same for all attempts


def render_items(batch: SubmitBatch) -> str:
    """Return the items file: one line per attempt with its job, its id and, if attempts differ, its list of inputs."""
    if common_inputs(batch) is not None:
        return "".join(f"{job.id} {attempt_id}\n" for job, attempt_id in batch.attempts)
    inputs = {attempt_id: ", ".join(batch.transfer_inputs.get(attempt_id, ())) for _, attempt_id in batch.attempts}
    return "".join(f"{job.id} {attempt_id} {inputs[attempt_id]}".rstrip() + "\n" for job, attempt_id in batch.attempts)


def common_inputs(batch: SubmitBatch) -> tuple[str, ...] | None:
    """Return the inputs that all attempts have, or None if they differ."""
    lists = {tuple(batch.transfer_inputs.get(attempt_id, ())) for _, attempt_id in batch.attempts}
    return lists.pop() if len(lists) == 1 else None


def render_submit_description(batch: SubmitBatch, folder: RunFolder, items_path: Path, settings: RunSettings) -> str:
    """Return the submit description.

    Args:
        batch: The attempts to submit.
        folder: The folder of the run. Raises UsageError if HTCondor cannot use its path.
        items_path: The file with the text of `render_items`.
        settings: The settings of the run.
    """
    check_path(folder.root)
    lines = merge_lines(list(_submit_lines(batch, folder, settings)), settings.submit_lines)
    width = max(len(key) for key, _ in lines)
    body = "".join(f"{key:<{width}} = {value}\n" for key, value in lines)
    columns = "job, attempt" if common_inputs(batch) is not None else "job, attempt, inputs"
    n_jobs = f"{len(batch.attempts)} of {batch.n_jobs} jobs"
    comment = f"# packtrain run {batch.run_id}: {n_jobs}. `condor_submit` accepts this file."
    return f"{comment}\n\n{body}\nqueue {columns} from {items_path}\n"


def check_path(path: Path) -> None:
    """Raise UsageError if a path has characters that HTCondor cannot quote in lists of files."""
    if any(text in str(path) for text in (",", "$(", "\n", '"')):
        raise UsageError(f"HTCondor cannot use files of the folder {path}: its path has a comma, quote, newline or $(")


def _submit_lines(batch: SubmitBatch, folder: RunFolder, settings: RunSettings) -> Iterator[SubmitLine]:
    job = batch.attempts[0][0]
    image = job_image(job)
    attempt_folder = folder.root / "jobs" / "$(job)" / "attempts" / "$(attempt)"
    yield ("universe", "container") if image else ("universe", "vanilla")
    if image:
        yield "container_image", image
    yield "batch_name", batch.run_id
    yield "executable", str(folder.launcher)
    yield "arguments", f'"{_agent_arguments(batch, job, image)}"'
    yield "initialdir", str(attempt_folder)
    yield from _file_lines(batch, folder, job)
    yield "dagman_log", str(folder.htcondor / "event.log")
    yield "+DAGManNodesMask", f'"{_LOG_EVENT_MASK}"'
    yield "output", "agent.out"
    yield "error", "agent.out"
    yield "submit_event_user_notes", f"{LOG_PREFIX} $(job) $(attempt)"
    yield "ulog_execute_attrs", _SITE_ATTRIBUTES
    yield from _resource_lines(job, settings)
    pixi = job.environment.pixi
    machine = tuple(machine_terms(pixi.requires)) if pixi else ()
    yield from _site_lines(batch.overrides, settings, plugin_schemes(job), machine)
    yield from _lifetime_lines(job, settings)
    yield from _attribute_lines(batch, job, settings)
    if len(batch.attempts) > 1:
        yield "max_materialize", str(settings.max_jobs)
        yield "max_idle", str(settings.max_idle)


def _agent_arguments(batch: SubmitBatch, job: Job, image: str) -> str:
    arguments = ["plan.json", "--attempt-id", "$(attempt)", "--attempt-folder", ".", "--secrets", "secrets"]
    arguments += ["--site", "auto", "--deadline", "auto", "--live-interval", str(min_live_interval_s(batch.n_jobs))]
    arguments += ["--reuse-folder", "reusable-inputs"] if job.checkpoint else []
    arguments += ["--in-container"] if image else []
    return " ".join(arguments)


def _file_lines(batch: SubmitBatch, folder: RunFolder, job: Job) -> Iterator[SubmitLine]:
    inputs = common_inputs(batch)
    job_folder = folder.root / "jobs" / "$(job)"
    plan_folder = job_folder / "attempts" / "$(attempt)" if batch.overrides.fetch_with_agent else job_folder
    sent = [str(folder.agent), str(plan_folder / "plan.json"), f"{folder.htcondor / 'skeleton'}/"]
    # The attempt folder's own checkpoint: an execution that was interrupted while its outputs were returned left it.
    checkpoint = ["checkpoint"] if has_condor_checkpoints(job) else []
    sent += checkpoint
    sent += [str(folder.secrets)] if batch.has_secrets else []
    sent += ["$(inputs)"] if inputs is None else list(inputs)
    yield "transfer_executable", "true"
    yield "should_transfer_files", "yes"
    yield "transfer_input_files", ", ".join(sent)
    yield "transfer_output_files", ", ".join([*checkpoint, "journal.jsonl", "agent.log", "logs", "output"])
    yield "when_to_transfer_output", "ON_EXIT_OR_EVICT"
    if job.checkpoint:
        yield "checkpoint_exit_code", str(EXIT_RESUME_IN_PLACE)
        yield "transfer_checkpoint_files", ", ".join([*checkpoint, "journal.jsonl", "agent.log", "logs"])


def _resource_lines(job: Job, settings: RunSettings) -> Iterator[SubmitLine]:
    resources = job.resources
    yield "request_cpus", str(resources.cpus)
    yield "request_memory", f"{resources.memory_mb}MB"
    yield "request_disk", f"{settings.disk_mb}MB"
    if resources.gpus:
        yield "request_gpus", str(resources.gpus)
        yield from _gpu_lines(job)


def plugin_schemes(job: Job) -> tuple[str, ...]:
    """Return the URL schemes of inputs and image that the pool's own plugins have to fetch."""
    image_scheme = job_image(job).partition("://")[0].lower() if "://" in job_image(job) else ""
    schemes = [scheme for source in job.inputs for scheme in source.plugin_schemes]
    schemes += [image_scheme] if image_scheme == "file" else []
    # `NAME+https` is the method https with the credential NAME.
    return tuple(dict.fromkeys(scheme.rpartition("+")[2] for scheme in schemes))


def _site_lines(
    overrides: Overrides, settings: RunSettings, schemes: Sequence[str] = (), machine: Sequence[str] = ()
) -> Iterator[SubmitLine]:
    """Yield requirements for the pool's plugins, the machine and against sites that failed, and ranks of sites.

    A job that waits too long may also run at a site that only earlier runs found bad. `merge_lines` joins this with the
    user's own requirements; the user's `rank` replaces ours. If the user names sites, earlier runs are ignored.
    """
    preferences = SitePreferences() if has_site_requirements(settings.submit_lines) else settings.site_preferences
    terms = [f'stringListIMember("{scheme}", TARGET.HasFileTransferPluginMethods)' for scheme in schemes]
    terms += machine
    terms += _avoidance_terms(overrides.avoid_sites, overrides.avoid_nodes)
    history_terms = _avoidance_terms(preferences.avoid_sites, preferences.avoid_nodes)
    if history_terms:
        terms.append(f"(time() - QDate > {_AVOID_TIMEOUT_S} || ({' && '.join(history_terms)}))")
    if terms:
        yield "requirements", " && ".join(terms)
    ranks = [
        f"ifThenElse({_site_condition(name)}, {rank}, 0)"
        for name, rank in preferences.ranks.items()
        if _SAFE_NAME.fullmatch(name)
    ]
    if ranks:
        yield "rank", " + ".join(ranks)


def _avoidance_terms(avoid_sites: Iterable[str], avoid_nodes: Iterable[str]) -> list[str]:
    """Return conditions that exclude sites and nodes. A node without the attribute is not excluded.

    Unusual names are left out, because the names come from a log that other users may have written.
    """
    terms = [
        f'GLIDEIN_ResourceName =!= "{name}" && GLIDEIN_Site =!= "{name}"'
        for name in filter(_SAFE_NAME.fullmatch, avoid_sites)
    ]
    return terms + [f'Machine =!= "{name}"' for name in filter(_SAFE_NAME.fullmatch, avoid_nodes)]


def _site_condition(site: str) -> str:
    return f'GLIDEIN_ResourceName =?= "{site}" || GLIDEIN_Site =?= "{site}"'


def _gpu_lines(job: Job) -> Iterator[SubmitLine]:
    """Yield the GPU requirements. HTCondor has no attribute for the driver version; the agent's probe checks it."""
    gpu = job.resources.gpu
    if gpu.min_capability:
        yield "gpus_minimum_capability", gpu.min_capability
    if gpu.min_memory_mb:
        yield "gpus_minimum_memory", str(gpu.min_memory_mb)
    if gpu.min_cuda:
        yield "gpus_minimum_runtime", gpu.min_cuda


def _lifetime_lines(job: Job, settings: RunSettings) -> Iterator[SubmitLine]:
    yield "job_lease_duration", str(settings.lease_s)
    yield "job_max_vacate_time", str(math.ceil(2 * job.limits.grace_s + 10))
    # Each release allows the same number of executions again; the job would be held again at once without this.
    yield "periodic_hold", f"(JobStatus == 1 && NumShadowStarts > {settings.max_executions} * (1 + (NumHolds ?: 0)))"
    yield "periodic_hold_reason", f'"packtrain: the pool has started it more than {settings.max_executions} times"'
    yield "periodic_hold_subcode", str(TOO_MANY_EXECUTIONS_SUBCODE)


def _attribute_lines(batch: SubmitBatch, job: Job, settings: RunSettings) -> Iterator[SubmitLine]:
    duration = settings.duration_category or _duration_category(job)
    if duration:
        yield "+JobDurationCategory", f'"{duration}"'
    if settings.project:
        yield "+ProjectName", f'"{settings.project}"'
    yield "+WantIOProxy", "true"
    yield "+PacktrainRun", f'"{batch.run_id}"'
    yield "+PacktrainJob", '"$(job)"'
    yield "+PacktrainAttempt", '"$(attempt)"'


def _duration_category(job: Job) -> str:
    """Return the OSPool's category for jobs with a wall time, or "": other pools have no categories."""
    wall_time_s = job.limits.wall_time_s
    if wall_time_s is None:
        return ""
    return _MEDIUM_CATEGORY if wall_time_s <= _MAX_MEDIUM_DURATION_S else _LONG_CATEGORY
