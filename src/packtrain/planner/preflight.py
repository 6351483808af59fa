"""Check size and access of all inputs of a plan before anything is submitted, each once and in parallel."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from packtrain.errors import FailedError
from packtrain.plan import Input, Location, Plan, RemoteFile
from packtrain.planner.credentials.secret_sources import secret_resolver
from packtrain.spec.diagnostics import Diagnostic, DiagnosticReport, SourceMap
from packtrain.transfer.api import SecretResolver, Source
from packtrain.transfer.registry import get_source
from packtrain.transfer.tasks.parallel import run_with_deadline
from packtrain.transfer.urls import redact_url

TIMEOUT_S = 10.0
_MAX_WORKERS = 16
_MISSING_KIND, _REFUSED_KIND = "object_missing", "access_denied"
RETRY_DELAYS_S = (1.0, 2.0)
_TOKEN_SUBMIT_COMMANDS = ("use_oauth_services", "use_scitokens")  # HTCondor gives the job its own token

Locations = tuple[Location, ...]
OpenSource = Callable[[Location, SecretResolver], Source]


@dataclass(frozen=True)
class InputStat:
    """The stat of one file, or of all files below one URL."""

    url: str  # without secrets
    size: int | None = None
    n_files: int | None = None
    error: str = ""  # why it is not reachable; "": it is
    failure_kind: str = ""  # of the error

    @property
    def is_reachable(self) -> bool:
        return not self.error


@dataclass(frozen=True)
class PreflightResult:
    """The stats of all inputs."""

    input_stats: Mapping[Locations, InputStat] = field(default_factory=dict)

    def file_stat(self, file: RemoteFile) -> InputStat | None:
        return self.input_stats.get(file.locations)

    def prefix_stat(self, prefix: Location) -> InputStat | None:
        return self.input_stats.get((prefix,))


def run_preflight(
    plan: Plan,
    secret_values: Mapping[str, str],
    *,
    timeout_s: float = TIMEOUT_S,
    open_source: OpenSource = get_source,
    retry_delays_s: Sequence[float] = RETRY_DELAYS_S,
) -> PreflightResult:
    """Stat every input of the plan.

    Args:
        plan: The plan.
        secret_values: Values of the plan's secrets by name.
        timeout_s: Inputs that do not respond within this time count as unreachable.
        open_source: Returns the source of a location.
        retry_delays_s: Delays before an object that is missing is checked again.
    """
    requests = _stat_requests(plan)
    checker = _InputChecker(open_source, secret_resolver(secret_values), retry_delays_s)
    deadline = time.monotonic() + timeout_s
    tasks = {key: partial(checker.stat_with_retries, key, is_prefix, deadline) for key, is_prefix in requests.items()}
    stats = run_with_deadline(tasks, timeout_s, _MAX_WORKERS)
    timed_out = f"did not respond within {timeout_s:g} seconds"
    return PreflightResult({key: _to_input_stat(key, stats.get(key, timed_out)) for key in requests})


def _to_input_stat(locations: Locations, result: InputStat | Exception | str) -> InputStat:
    return result if isinstance(result, InputStat) else InputStat(redact_url(locations[0].url), error=str(result))


def _stat_requests(plan: Plan) -> dict[Locations, bool]:
    """Return each set of locations once, with whether it is a prefix; the planner itself knows some sizes."""
    inputs = [input_ for job in plan.jobs for input_ in job.inputs if not input_.plugin_schemes]
    prefixes: dict[Locations, bool] = {(input_.prefix,): True for input_ in inputs if input_.prefix}
    files = (file for input_ in inputs for file in input_.files if file.size is None)
    return {**prefixes, **{file.locations: False for file in files}}


class _InputChecker:
    def __init__(
        self, open_source: OpenSource, resolve_secret: SecretResolver, retry_delays_s: Sequence[float]
    ) -> None:
        self._open_source, self._resolve_secret, self._retry_delays_s = open_source, resolve_secret, retry_delays_s

    def stat_with_retries(self, locations: Locations, is_prefix: bool, deadline: float) -> InputStat:
        """Stat a file or prefix; retry if it is missing, because caches and directors return spurious 404s."""
        stat = self._stat_any(locations, is_prefix)
        for delay_s in self._retry_delays_s:
            is_retryable = stat.failure_kind == _MISSING_KIND and not locations[0].url.startswith("file:")
            if not is_retryable or time.monotonic() + delay_s > deadline:
                break
            time.sleep(delay_s)
            stat = self._stat_any(locations, is_prefix)
        return stat

    def _stat_any(self, locations: Locations, is_prefix: bool) -> InputStat:
        """Return the stat of the first reachable location, or the error of the first one."""
        stats = []
        for location in locations:
            stats.append(self._stat_prefix(location) if is_prefix else self._stat_file(location))
            if stats[-1].is_reachable:
                return stats[-1]
        return stats[0]

    def _stat_file(self, location: Location) -> InputStat:
        try:
            return InputStat(
                redact_url(location.url), self._open_source(location, self._resolve_secret).stat(location).size, 1
            )
        except FailedError as error:
            return InputStat(redact_url(location.url), error=error.detail, failure_kind=error.kind)

    def _stat_prefix(self, location: Location) -> InputStat:
        try:
            sizes = [entry.size for entry in self._open_source(location, self._resolve_secret).list(location)]
        except FailedError as error:
            return InputStat(redact_url(location.url), error=error.detail, failure_kind=error.kind)
        known_sizes = [size for size in sizes if size is not None]
        total = sum(known_sizes) if len(known_sizes) == len(sizes) else None
        return InputStat(redact_url(location.url), total, len(sizes))


def check_input_access(
    plan: Plan, preflight: PreflightResult, source_map: SourceMap, submit_commands: Mapping[str, str] | None = None
) -> tuple[Diagnostic, ...]:
    """Report inputs that are missing or not accessible.

    Transient errors are not reported. A denied input is only a warning if the job will have its own token.

    Args:
        plan: The plan.
        preflight: The stats of its inputs.
        source_map: The positions of the workflow's keys.
        submit_commands: Submit commands of the user's configuration.
    """
    report = DiagnosticReport(source_map)
    has_token = _has_job_token((*(submit_commands or {}), *(command.key for command in plan.htcondor)))
    for input_ in (input_ for job in plan.jobs for input_ in job.inputs):
        stats = (
            [preflight.prefix_stat(input_.prefix)]
            if input_.prefix
            else [preflight.file_stat(file) for file in input_.files]
        )
        for stat in filter(None, stats):
            _report_inaccessible(report, ("inputs", input_.name) if input_.name else ("input",), stat, has_token)
    return report.diagnostics


def _has_job_token(submit_commands: Iterable[str]) -> bool:
    return any(key.strip().lower() in _TOKEN_SUBMIT_COMMANDS for key in submit_commands)


def _report_inaccessible(
    report: DiagnosticReport, keys: tuple[str, ...], input_stat: InputStat, has_job_token: bool
) -> None:
    if input_stat.failure_kind == _REFUSED_KIND and has_job_token:
        report.warning(keys, f"this machine cannot read it, but the job has its own token: {input_stat.error}")
    elif input_stat.failure_kind in (_MISSING_KIND, _REFUSED_KIND):
        report.error(keys, f"no job could fetch this input: {input_stat.error}", "--offline submits the run anyway")


def add_sizes(plan: Plan, preflight: PreflightResult) -> Plan:
    """Return the plan with the sizes from the preflight."""
    return replace(plan, jobs=tuple(replace(job, inputs=_add_input_sizes(job.inputs, preflight)) for job in plan.jobs))


def _add_input_sizes(inputs: tuple[Input, ...], preflight: PreflightResult) -> tuple[Input, ...]:
    return tuple(
        replace(input_, files=tuple(_add_file_size(file, preflight) for file in input_.files)) for input_ in inputs
    )


def _add_file_size(file: RemoteFile, preflight: PreflightResult) -> RemoteFile:
    stat = preflight.file_stat(file)
    return replace(file, size=stat.size) if stat and stat.size is not None else file
