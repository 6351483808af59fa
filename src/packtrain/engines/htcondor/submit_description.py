"""The submit description of a run's attempts. Pure: what was planned goes in, text for condor_submit comes out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packtrain.condor.hold_codes import TOO_MANY_EXECUTIONS_SUBCODE
from packtrain.engines.api import NO_OVERRIDES, Overrides
from packtrain.engines.htcondor.container import job_image
from packtrain.engines.htcondor.job_tracker import LOG_PREFIX
from packtrain.engines.htcondor.run_settings import RunSettings, SitePreferences
from packtrain.errors import EXIT_RESUME_IN_PLACE, UsageError
from packtrain.plan import Job, RunFolder

RESERVED_COMMANDS = frozenset(
    {
        "universe",
        "executable",
        "arguments",
        "initialdir",
        "dagman_log",
        "output",
        "error",
        "queue",
        "should_transfer_files",
        "when_to_transfer_output",
        "transfer_executable",
        "transfer_output_files",
        "transfer_output_remaps",
        "transfer_checkpoint_files",
        "checkpoint_exit_code",
        "submit_event_user_notes",
        "stream_output",
        "stream_error",
    }
)
_JOINED_EXPRESSIONS = {
    "requirements": " && ",
    "require_gpus": " && ",
    "periodic_hold": " || ",
    "periodic_remove": " || ",
}
_HOLD_DEFAULTS = {"periodic_hold_reason": "undefined", "periodic_hold_subcode": "0"}
_LIST_COMMANDS = ("transfer_input_files", "ulog_execute_attrs", "job_machine_attrs")
_MAX_MEDIUM_DURATION_S, _MEDIUM_CATEGORY, _LONG_CATEGORY = 10 * 3600, "Medium", "Long"
_MAX_UPDATES_PER_S, _MIN_LIVE_INTERVAL_S = 20, 2
_SAFE_NAME = re.compile(r"[\w.:-]{1,200}", re.ASCII)
_SITE_REFERENCE = re.compile(r"\bglidein_|\bmachine\b", re.IGNORECASE)
_AVOID_TIMEOUT_S = 3600  # in the queue, before a place known to be bad is better than none
_SITE_ATTRIBUTES = "GLIDEIN_ResourceName, GLIDEIN_Site"

# A log as DAGMan has it can leave out kinds of events: in `log`, each word of a job about its progress is one (033).
_LOG_EVENT_MASK = "0,1,4,5,7,8,9,12,13,21,22,23,24,35,36,37,38,40"

SubmitLine = tuple[str, str]


@dataclass(frozen=True)
class SubmitBatch:
    """Attempts that are submitted together, of jobs that differ by their point only."""

    run_id: str
    n_jobs: int  # of the whole run
    attempts: Sequence[tuple[Job, str]]  # with their decisions
    transfer_inputs: Mapping[str, Sequence[str]]  # what HTCondor brings besides the agent, by decision
    has_secrets: bool = False
    overrides: Overrides = NO_OVERRIDES  # of all of them


def render_items(batch: SubmitBatch) -> str:
    """One line an attempt; the last column may be a list."""
    if common_inputs(batch) is not None:
        return "".join(f"{job.id} {decision}\n" for job, decision in batch.attempts)
    lists = {decision: ", ".join(batch.transfer_inputs.get(decision, ())) for _, decision in batch.attempts}
    return "".join(f"{job.id} {decision} {lists[decision]}".rstrip() + "\n" for job, decision in batch.attempts)


def common_inputs(batch: SubmitBatch) -> tuple[str, ...] | None:
    """What all attempts need; None if they differ."""
    lists = {tuple(batch.transfer_inputs.get(decision, ())) for _, decision in batch.attempts}
    return lists.pop() if len(lists) == 1 else None


def render_submit_description(batch: SubmitBatch, folder: RunFolder, items_path: Path, settings: RunSettings) -> str:
    """The whole description; `items` is the file with `items_text`."""
    check_path(folder.root)
    lines = merge_lines(list(_submit_lines(batch, folder, settings)), settings.submit_lines)
    width = max(len(key) for key, _ in lines)
    body = "".join(f"{key:<{width}} = {value}\n" for key, value in lines)
    columns = "job, decision" if common_inputs(batch) is not None else "job, decision, inputs"
    head = f"# packtrain run {batch.run_id}: {len(batch.attempts)} of {batch.n_jobs} jobs. `condor_submit` takes this file.\n"
    return f"{head}\n{body}\nqueue {columns} from {items_path}\n"


def check_path(path: Path) -> None:
    """Raises UsageError: HTCondor has no way to quote these in lists of files."""
    if any(mark in str(path) for mark in (",", "$(", "\n", '"')):
        raise UsageError(f"HTCondor cannot take files from the folder {path}: its path has a comma, quote or $(")


def _submit_lines(batch: SubmitBatch, folder: RunFolder, settings: RunSettings) -> Iterator[SubmitLine]:
    job = batch.attempts[0][0]
    image = job_image(job)
    attempt = folder.root / "jobs" / "$(job)" / "attempts" / "$(decision)"
    yield ("universe", "container") if image else ("universe", "vanilla")
    if image:
        yield "container_image", image
    yield "batch_name", batch.run_id
    yield "executable", str(folder.launcher)
    yield "arguments", f'"{_agent_arguments(batch, job, image)}"'
    yield "initialdir", str(attempt)
    yield from _file_lines(batch, folder, job)
    yield "dagman_log", str(folder.htcondor / "event.log")
    yield "+DAGManNodesMask", f'"{_LOG_EVENT_MASK}"'
    yield "output", "agent.out"
    yield "error", "agent.out"
    yield "submit_event_user_notes", f"{LOG_PREFIX} $(job) $(decision)"
    yield "ulog_execute_attrs", _SITE_ATTRIBUTES
    yield from _resource_lines(job, settings)
    yield from _site_lines(batch.overrides, settings)
    yield from _lifetime_lines(job, settings)
    yield from _attribute_lines(batch, job, settings)
    if len(batch.attempts) > 1:
        yield "max_materialize", str(settings.max_jobs)
        yield "max_idle", str(settings.max_idle)


def _agent_arguments(batch: SubmitBatch, job: Job, image: str) -> str:
    words = ["plan.json", "--attempt-id", "$(decision)", "--attempt-folder", ".", "--secrets", "secrets"]
    words += ["--site", "auto", "--deadline", "auto", "--live-interval", str(min_live_interval_s(batch.n_jobs))]
    words += ["--reuse-folder", "reusable-inputs"] if job.checkpoint else []
    words += ["--in-container"] if image else []
    return " ".join(words)


def min_live_interval_s(n_jobs: int) -> int:
    """The least time between two updates of one job, so that the whole run does not burden the access point."""
    return max(_MIN_LIVE_INTERVAL_S, math.ceil(n_jobs / _MAX_UPDATES_PER_S))


def _file_lines(batch: SubmitBatch, folder: RunFolder, job: Job) -> Iterator[SubmitLine]:
    shared = common_inputs(batch)
    own = folder.root / "jobs" / "$(job)"
    plan = own / "attempts" / "$(decision)" / "plan.json" if batch.overrides.fetch_with_agent else own / "plan.json"
    brought = [str(folder.agent), str(plan), f"{folder.htcondor / 'empty'}/"]
    # Of the attempt's own folder: what came back of a start that was ended while its outputs were on their way.
    carried = ["checkpoint"] if has_condor_checkpoints(job) else []
    brought += carried
    brought += [str(folder.secrets)] if batch.has_secrets else []
    brought += ["$(inputs)"] if shared is None else list(shared)
    yield "transfer_executable", "true"
    yield "should_transfer_files", "yes"
    yield "transfer_input_files", ", ".join(brought)
    yield "transfer_output_files", ", ".join([*carried, "journal.jsonl", "agent.log", "logs", "output"])
    yield "when_to_transfer_output", "ON_EXIT_OR_EVICT"
    if job.checkpoint:
        yield "checkpoint_exit_code", str(EXIT_RESUME_IN_PLACE)
        yield "transfer_checkpoint_files", ", ".join([*carried, "journal.jsonl", "agent.log", "logs"])


def has_condor_checkpoints(job: Job) -> bool:
    """Whether HTCondor has to carry them, since the job has no place of its own for them."""
    return job.checkpoint is not None and (job.output is None or job.output.location.url.startswith("file:"))


def _resource_lines(job: Job, settings: RunSettings) -> Iterator[SubmitLine]:
    wanted = job.resources
    yield "request_cpus", str(wanted.cpus)
    yield "request_memory", f"{wanted.memory_mb}MB"
    yield "request_disk", f"{settings.disk_mb}MB"
    if wanted.gpus:
        yield "request_gpus", str(wanted.gpus)
        yield from _gpu_lines(job)


def _site_lines(overrides: Overrides, settings: RunSettings) -> Iterator[SubmitLine]:
    """Places that failed lately, and those known from earlier runs, which a job that finds no other one may have after
    all. `merged` joins this with a person's own requirements; a `rank` of theirs replaces ours. If they name places
    themselves, earlier runs have no say."""
    hints = SitePreferences() if has_site_requirements(settings.submit_lines) else settings.site_preferences
    terms = _avoidance_terms(overrides.avoid_sites, overrides.avoid_nodes)
    known = _avoidance_terms(hints.avoid_sites, hints.avoid_nodes)
    if known:
        terms.append(f"(time() - QDate > {_AVOID_TIMEOUT_S} || ({' && '.join(known)}))")
    if terms:
        yield "requirements", " && ".join(terms)
    ranks = [
        f"ifThenElse({_site_condition(name)}, {rank}, 0)"
        for name, rank in hints.ranks.items()
        if _SAFE_NAME.fullmatch(name)
    ]
    if ranks:
        yield "rank", " + ".join(ranks)


def _avoidance_terms(avoid_sites: Iterable[str], avoid_nodes: Iterable[str]) -> list[str]:
    """An attribute that a machine does not have differs from any name. Names come from a log that others could
    write."""
    terms = [
        f'GLIDEIN_ResourceName =!= "{name}" && GLIDEIN_Site =!= "{name}"'
        for name in filter(_SAFE_NAME.fullmatch, avoid_sites)
    ]
    return terms + [f'Machine =!= "{name}"' for name in filter(_SAFE_NAME.fullmatch, avoid_nodes)]


def _site_condition(site: str) -> str:
    return f'GLIDEIN_ResourceName =?= "{site}" || GLIDEIN_Site =?= "{site}"'


def has_site_requirements(submit_lines: Iterable[SubmitLine]) -> bool:
    """Whether a person says where the jobs have to run."""
    return any(normalize_key(key) == "requirements" and _SITE_REFERENCE.search(value) for key, value in submit_lines)


def _gpu_lines(job: Job) -> Iterator[SubmitLine]:
    """The version of the NVIDIA driver is no attribute of HTCondor's: the agent's probe looks at it."""
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
    # One that was held and let go may be started as often again: else it would be held at once.
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
    yield "+PacktrainAttempt", '"$(decision)"'


def _duration_category(job: Job) -> str:
    """Said only of jobs that say how long they take: pools other than the OSPool know no categories."""
    wall = job.limits.wall_time_s
    return "" if wall is None else _MEDIUM_CATEGORY if wall <= _MAX_MEDIUM_DURATION_S else _LONG_CATEGORY


def merge_lines(generated: list[SubmitLine], user_lines: Sequence[SubmitLine]) -> list[SubmitLine]:
    """Our lines with a person's: conditions are joined, lists grow, all else is replaced or added."""
    found = {normalize_key(key): (key, value) for key, value in generated}
    for key, value in _with_user_hold_reasons({name: value for name, (_, value) in found.items()}, user_lines):
        name = normalize_key(key)
        before = found[name][1] if name in found else ""
        if before and name in _JOINED_EXPRESSIONS:
            value = f"({before}){_JOINED_EXPRESSIONS[name]}({value})"
        elif before and name in _LIST_COMMANDS:
            value = f"{before}, {value}"
        found[name] = (found[name][0] if name in found else key, value)
    return list(found.values())


def _with_user_hold_reasons(generated: Mapping[str, str], user_lines: Sequence[SubmitLine]) -> Sequence[SubmitLine]:
    """A hold by a person's condition has that person's reason and subcode, or HTCondor's; one by ours has ours."""
    given = {normalize_key(key): value for key, value in user_lines}
    mine = generated.get("periodic_hold")
    if mine is None or not given.keys() & {"periodic_hold", *_HOLD_DEFAULTS}:
        return user_lines
    told = [
        (name, f"ifThenElse({mine}, {generated[name]}, {given.get(name, otherwise)})")
        for name, otherwise in _HOLD_DEFAULTS.items()
    ]
    return [line for line in user_lines if normalize_key(line[0]) not in _HOLD_DEFAULTS] + told


def normalize_key(key: str) -> str:
    """`+Attr` and `MY.Attr` are the same; letters count alike."""
    name = key.strip().lower()
    return "my." + name[1:] if name.startswith("+") else name


def rejected_lines(submit_lines: Sequence[SubmitLine]) -> Iterator[tuple[str, str]]:
    """Keys of a person that packtrain sets itself, and what to do instead."""
    for key, _ in submit_lines:
        if normalize_key(key) in RESERVED_COMMANDS:
            yield key, f"packtrain sets {key} itself; the workflow's own keys say what it should be"
        elif normalize_key(key).startswith("my.packtrain"):
            yield key, "attributes that begin with Packtrain are packtrain's own"
