"""The submit description of a run's attempts. Pure: what was planned goes in, text for condor_submit comes out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packtrain.condor.hold_codes import STARTED_TOO_OFTEN
from packtrain.engines.api import AS_PLANNED, Amendment
from packtrain.engines.htcondor.container import image_of
from packtrain.engines.htcondor.job_tracker import NOTE
from packtrain.engines.htcondor.run_settings import Hints, RunSettings
from packtrain.errors import EXIT_CONTINUE_HERE, UsageError
from packtrain.plan import Job, RunFolder

OWN = frozenset(
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
_JOINED = {"requirements": " && ", "require_gpus": " && ", "periodic_hold": " || ", "periodic_remove": " || "}
_OF_HOLDS = {"periodic_hold_reason": "undefined", "periodic_hold_subcode": "0"}
_LISTED = ("transfer_input_files", "ulog_execute_attrs", "job_machine_attrs")
_SHORT_DURATION_S, _MEDIUM, _LONG = 10 * 3600, "Medium", "Long"
_UPDATES_PER_S, _LEAST_LIVE_S = 20, 2
_PLACE = re.compile(r"[\w.:-]{1,200}", re.ASCII)
_NAMED = re.compile(r"\bglidein_|\bmachine\b", re.IGNORECASE)
_HOPE_S = 3600  # in the queue, before a place known to be bad is better than none
_SITE_ATTRIBUTES = "GLIDEIN_ResourceName, GLIDEIN_Site"

# A log as DAGMan has it can leave out kinds of events: in `log`, each word of a job about its progress is one (033).
_LOGGED = "0,1,4,5,7,8,9,12,13,21,22,23,24,35,36,37,38,40"

Line = tuple[str, str]


@dataclass(frozen=True)
class Batch:
    """Attempts that are submitted together, of jobs that differ by their point only."""

    run: str
    jobs: int  # of the whole run
    attempts: Sequence[tuple[Job, str]]  # with their decisions
    inputs: Mapping[str, Sequence[str]]  # what HTCondor brings besides the agent, by decision
    has_secrets: bool = False
    amendment: Amendment = AS_PLANNED  # of all of them


def items_text(batch: Batch) -> str:
    """One line an attempt; the last column may be a list."""
    if shared_inputs(batch) is not None:
        return "".join(f"{job.id} {decision}\n" for job, decision in batch.attempts)
    lists = {decision: ", ".join(batch.inputs.get(decision, ())) for _, decision in batch.attempts}
    return "".join(f"{job.id} {decision} {lists[decision]}".rstrip() + "\n" for job, decision in batch.attempts)


def shared_inputs(batch: Batch) -> tuple[str, ...] | None:
    """What all attempts need; None if they differ."""
    lists = {tuple(batch.inputs.get(decision, ())) for _, decision in batch.attempts}
    return lists.pop() if len(lists) == 1 else None


def render(batch: Batch, folder: RunFolder, items: Path, settings: RunSettings) -> str:
    """The whole description; `items` is the file with `items_text`."""
    check_path(folder.root)
    lines = merged(list(_lines(batch, folder, settings)), settings.lines)
    width = max(len(key) for key, _ in lines)
    body = "".join(f"{key:<{width}} = {value}\n" for key, value in lines)
    columns = "job, decision" if shared_inputs(batch) is not None else "job, decision, inputs"
    head = (
        f"# packtrain run {batch.run}: {len(batch.attempts)} of {batch.jobs} jobs. `condor_submit` takes this file.\n"
    )
    return f"{head}\n{body}\nqueue {columns} from {items}\n"


def check_path(path: Path) -> None:
    """Raises UsageError: HTCondor has no way to quote these in lists of files."""
    if any(mark in str(path) for mark in (",", "$(", "\n", '"')):
        raise UsageError(f"HTCondor cannot take files from the folder {path}: its path has a comma, quote or $(")


def _lines(batch: Batch, folder: RunFolder, settings: RunSettings) -> Iterator[Line]:
    job = batch.attempts[0][0]
    image = image_of(job)
    attempt = folder.root / "jobs" / "$(job)" / "attempts" / "$(decision)"
    yield ("universe", "container") if image else ("universe", "vanilla")
    if image:
        yield "container_image", image
    yield "batch_name", batch.run
    yield "executable", str(folder.launcher)
    yield "arguments", f'"{_arguments(batch, job, image)}"'
    yield "initialdir", str(attempt)
    yield from _files(batch, folder, job)
    yield "dagman_log", str(folder.htcondor / "user.log")
    yield "+DAGManNodesMask", f'"{_LOGGED}"'
    yield "output", "agent.out"
    yield "error", "agent.out"
    yield "submit_event_user_notes", f"{NOTE} $(job) $(decision)"
    yield "ulog_execute_attrs", _SITE_ATTRIBUTES
    yield from _resources(job, settings)
    yield from _places(batch.amendment, settings)
    yield from _patience(job, settings)
    yield from _attributes(batch, job, settings)
    if len(batch.attempts) > 1:
        yield "max_materialize", str(settings.max_jobs)
        yield "max_idle", str(settings.max_idle)


def _arguments(batch: Batch, job: Job, image: str) -> str:
    words = ["plan.json", "--decision", "$(decision)", "--home", ".", "--secrets", "secrets"]
    words += ["--site", "auto", "--deadline", "auto", "--live", str(live_s(batch.jobs))]
    words += ["--keep", "kept"] if job.checkpoint else []
    words += ["--in-container"] if image else []
    return " ".join(words)


def live_s(jobs: int) -> int:
    """The least time between two updates of one job, so that the whole run does not burden the access point."""
    return max(_LEAST_LIVE_S, math.ceil(jobs / _UPDATES_PER_S))


def _files(batch: Batch, folder: RunFolder, job: Job) -> Iterator[Line]:
    shared = shared_inputs(batch)
    own = folder.root / "jobs" / "$(job)"
    plan = own / "attempts" / "$(decision)" / "plan.json" if batch.amendment.agent_brings else own / "plan.json"
    brought = [str(folder.agent), str(plan), f"{folder.htcondor / 'empty'}/"]
    # Of the attempt's own folder: what came back of a start that was ended while its outputs were on their way.
    carried = ["checkpoint"] if carries_checkpoints(job) else []
    brought += carried
    brought += [str(folder.secrets)] if batch.has_secrets else []
    brought += ["$(inputs)"] if shared is None else list(shared)
    yield "transfer_executable", "true"
    yield "should_transfer_files", "yes"
    yield "transfer_input_files", ", ".join(brought)
    yield "transfer_output_files", ", ".join([*carried, "journal.jsonl", "agent.log", "logs", "output"])
    yield "when_to_transfer_output", "ON_EXIT_OR_EVICT"
    if job.checkpoint:
        yield "checkpoint_exit_code", str(EXIT_CONTINUE_HERE)
        yield "transfer_checkpoint_files", ", ".join([*carried, "journal.jsonl", "agent.log", "logs"])


def carries_checkpoints(job: Job) -> bool:
    """Whether HTCondor has to carry them, since the job has no place of its own for them."""
    return job.checkpoint is not None and (job.output is None or job.output.ref.url.startswith("file:"))


def _resources(job: Job, settings: RunSettings) -> Iterator[Line]:
    wanted = job.resources
    yield "request_cpus", str(wanted.cpus)
    yield "request_memory", f"{wanted.memory_mb}MB"
    yield "request_disk", f"{settings.disk_mb}MB"
    if wanted.gpus:
        yield "request_gpus", str(wanted.gpus)
        yield from _gpu_needs(job)


def _places(amendment: Amendment, settings: RunSettings) -> Iterator[Line]:
    """Places that failed lately, and those known from earlier runs, which a job that finds no other one may have after
    all. `merged` joins this with a person's own requirements; a `rank` of theirs replaces ours. If they name places
    themselves, earlier runs have no say."""
    hints = Hints() if names_places(settings.lines) else settings.hints
    terms = _without(amendment.avoid_sites, amendment.avoid_machines)
    known = _without(hints.avoid_sites, hints.avoid_machines)
    if known:
        terms.append(f"(time() - QDate > {_HOPE_S} || ({' && '.join(known)}))")
    if terms:
        yield "requirements", " && ".join(terms)
    ranks = [f"ifThenElse({_is_at(name)}, {rank}, 0)" for name, rank in hints.ranks.items() if _PLACE.fullmatch(name)]
    if ranks:
        yield "rank", " + ".join(ranks)


def _without(sites: Iterable[str], machines: Iterable[str]) -> list[str]:
    """An attribute that a machine does not have differs from any name. Names come from a log that others could
    write."""
    terms = [
        f'GLIDEIN_ResourceName =!= "{name}" && GLIDEIN_Site =!= "{name}"' for name in filter(_PLACE.fullmatch, sites)
    ]
    return terms + [f'Machine =!= "{name}"' for name in filter(_PLACE.fullmatch, machines)]


def _is_at(site: str) -> str:
    return f'GLIDEIN_ResourceName =?= "{site}" || GLIDEIN_Site =?= "{site}"'


def names_places(lines: Iterable[Line]) -> bool:
    """Whether a person says where the jobs have to run."""
    return any(normal(key) == "requirements" and _NAMED.search(value) for key, value in lines)


def _gpu_needs(job: Job) -> Iterator[Line]:
    """The version of the NVIDIA driver is no attribute of HTCondor's: the agent's probe looks at it."""
    gpu = job.resources.gpu
    if gpu.min_capability:
        yield "gpus_minimum_capability", gpu.min_capability
    if gpu.min_memory_mb:
        yield "gpus_minimum_memory", str(gpu.min_memory_mb)
    if gpu.min_cuda:
        yield "gpus_minimum_runtime", gpu.min_cuda


def _patience(job: Job, settings: RunSettings) -> Iterator[Line]:
    yield "job_lease_duration", str(settings.lease_s)
    yield "job_max_vacate_time", str(math.ceil(2 * job.limits.grace_s + 10))
    # One that was held and let go may be started as often again: else it would be held at once.
    yield "periodic_hold", f"(JobStatus == 1 && NumShadowStarts > {settings.starts} * (1 + (NumHolds ?: 0)))"
    yield "periodic_hold_reason", f'"packtrain: the pool has started it more than {settings.starts} times"'
    yield "periodic_hold_subcode", str(STARTED_TOO_OFTEN)


def _attributes(batch: Batch, job: Job, settings: RunSettings) -> Iterator[Line]:
    duration = settings.duration or _duration(job)
    if duration:
        yield "+JobDurationCategory", f'"{duration}"'
    if settings.project:
        yield "+ProjectName", f'"{settings.project}"'
    yield "+WantIOProxy", "true"
    yield "+PacktrainRun", f'"{batch.run}"'
    yield "+PacktrainJob", '"$(job)"'
    yield "+PacktrainDecision", '"$(decision)"'


def _duration(job: Job) -> str:
    """Said only of jobs that say how long they take: pools other than the OSPool know no categories."""
    wall = job.limits.wall_time_s
    return "" if wall is None else _MEDIUM if wall <= _SHORT_DURATION_S else _LONG


def merged(ours: list[Line], theirs: Sequence[Line]) -> list[Line]:
    """Our lines with a person's: conditions are joined, lists grow, all else is replaced or added."""
    found = {normal(key): (key, value) for key, value in ours}
    for key, value in _with_own_reasons({name: value for name, (_, value) in found.items()}, theirs):
        name = normal(key)
        before = found[name][1] if name in found else ""
        if before and name in _JOINED:
            value = f"({before}){_JOINED[name]}({value})"
        elif before and name in _LISTED:
            value = f"{before}, {value}"
        found[name] = (found[name][0] if name in found else key, value)
    return list(found.values())


def _with_own_reasons(ours: Mapping[str, str], theirs: Sequence[Line]) -> Sequence[Line]:
    """A hold by a person's condition has that person's reason and subcode, or HTCondor's; one by ours has ours."""
    given = {normal(key): value for key, value in theirs}
    mine = ours.get("periodic_hold")
    if mine is None or not given.keys() & {"periodic_hold", *_OF_HOLDS}:
        return theirs
    told = [
        (name, f"ifThenElse({mine}, {ours[name]}, {given.get(name, otherwise)})")
        for name, otherwise in _OF_HOLDS.items()
    ]
    return [line for line in theirs if normal(line[0]) not in _OF_HOLDS] + told


def normal(key: str) -> str:
    """`+Attr` and `MY.Attr` are the same; letters count alike."""
    name = key.strip().lower()
    return "my." + name[1:] if name.startswith("+") else name


def refused(lines: Sequence[Line]) -> Iterator[tuple[str, str]]:
    """Keys of a person that packtrain sets itself, and what to do instead."""
    for key, _ in lines:
        if normal(key) in OWN:
            yield key, f"packtrain sets {key} itself; the workflow's own keys say what it should be"
        elif normal(key).startswith("my.packtrain"):
            yield key, "attributes that begin with Packtrain are packtrain's own"
