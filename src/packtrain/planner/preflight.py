"""Asks the inputs of a plan for their size and whether they can be had; each once, all at the same time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from packtrain.errors import FailedError
from packtrain.plan import Input, Location, Plan, RemoteFile
from packtrain.planner.secret_sources import secret_resolver
from packtrain.spec.diagnostics import Diagnostic, DiagnosticReport, SourceMap
from packtrain.transfer.api import SecretResolver, Source
from packtrain.transfer.registry import get_source
from packtrain.transfer.urls import redact_url

TIMEOUT_S = 10.0
_MAX_WORKERS = 16
_MISSING_KIND, _REFUSED_KIND = "object_missing", "access_denied"
_RETRY_DELAYS_S = (1.0, 2.0)  # before what is said to be missing is asked for again
_TOKEN_SUBMIT_COMMANDS = (
    "use_oauth_services",
    "use_scitokens",
)  # HTCondor gives the job a token that this machine has not

Locations = tuple[Location, ...]
OpenSource = Callable[[Location, SecretResolver], Source]


@dataclass(frozen=True)
class InputStat:
    """What is known of one file, or of all below one address."""

    url: str  # without secrets
    size: int | None = None
    n_files: int | None = None
    error: str = ""  # why it could not be reached; empty: it could
    failure_kind: str = ""  # of that failure

    @property
    def is_reachable(self) -> bool:
        return not self.error


@dataclass(frozen=True)
class PreflightResult:
    input_stats: Mapping[Locations, InputStat] = field(default_factory=dict)

    def file_stat(self, file: RemoteFile) -> InputStat | None:
        return self.input_stats.get(file.locations)

    def prefix_stat(self, prefix: Location) -> InputStat | None:
        return self.input_stats.get((prefix,))


def run_preflight(
    plan: Plan, secret_values: Mapping[str, str], *, timeout_s: float = TIMEOUT_S, open_source: OpenSource = get_source
) -> PreflightResult:
    """Ask every input of the plan. `values` are the secrets' values by name."""
    questions = _stat_requests(plan)
    asker = _InputChecker(open_source, secret_resolver(secret_values))
    answers = asker.stat_all(questions, time.monotonic() + timeout_s)
    late = f"gave no answer within {timeout_s:g} seconds"
    return PreflightResult(
        {key: answers.get(key) or InputStat(redact_url(key[0].url), error=late) for key in questions}
    )


def _stat_requests(plan: Plan) -> dict[Locations, bool]:
    """Each set of sources once, and whether it is a prefix."""
    inputs = [source for job in plan.jobs for source in job.inputs]
    prefixes: dict[Locations, bool] = {(source.prefix,): True for source in inputs if source.prefix}
    return {**prefixes, **{item.locations: False for source in inputs for item in source.files}}


class _InputChecker:
    def __init__(self, open_source: OpenSource, resolve_secret: SecretResolver) -> None:
        self._open_source = open_source
        self._resolve_secret = resolve_secret

    def stat_all(self, requests: Mapping[Locations, bool], deadline: float) -> dict[Locations, InputStat]:
        """Whatever was answered in time. Threads that hang are left behind; they end with the process."""
        waiting: queue.SimpleQueue[tuple[Locations, bool]] = queue.SimpleQueue()
        answered: queue.SimpleQueue[tuple[Locations, InputStat]] = queue.SimpleQueue()
        for question in requests.items():
            waiting.put(question)
        for _ in range(min(_MAX_WORKERS, len(requests))):
            threading.Thread(target=self._run_worker, args=(waiting, answered, deadline), daemon=True).start()
        return dict(_collect_results(answered, len(requests), deadline))

    def _run_worker(
        self,
        pending: queue.SimpleQueue[tuple[Locations, bool]],
        results: queue.SimpleQueue[tuple[Locations, InputStat]],
        deadline: float,
    ) -> None:
        while time.monotonic() < deadline:
            try:
                sources, is_prefix = pending.get_nowait()
            except queue.Empty:
                return
            results.put((sources, self._stat_with_retries(sources, is_prefix, deadline)))

    def _stat_with_retries(self, locations: Locations, is_prefix: bool, deadline: float) -> InputStat:
        """A cache or a director may say once that something does not exist."""
        found = self._stat_any(locations, is_prefix)
        for pause in _RETRY_DELAYS_S:
            passes = found.failure_kind == _MISSING_KIND and not locations[0].url.startswith("file:")
            if not passes or time.monotonic() + pause > deadline:
                break
            time.sleep(pause)
            found = self._stat_any(locations, is_prefix)
        return found

    def _stat_any(self, locations: Locations, is_prefix: bool) -> InputStat:
        """The first source that answers; if none does, what the first one said."""
        findings = []
        for ref in locations:
            findings.append(self._stat_prefix(ref) if is_prefix else self._stat_file(ref))
            if findings[-1].is_reachable:
                return findings[-1]
        return findings[0]

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
        known = [size for size in sizes if size is not None]
        return InputStat(redact_url(location.url), sum(known) if len(known) == len(sizes) else None, len(sizes))


def _collect_results(
    results: queue.SimpleQueue[tuple[Locations, InputStat]], n_requests: int, deadline: float
) -> Iterator[tuple[Locations, InputStat]]:
    for _ in range(n_requests):
        try:
            yield results.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return


def check_input_access(
    plan: Plan, preflight: PreflightResult, source_map: SourceMap, submit_commands: Mapping[str, str] | None = None
) -> tuple[Diagnostic, ...]:
    """Inputs that are not there, or not for us: a pool would only find that out a hundred times. What may pass by
    itself is no reason to refuse, nor is a token that only the job will have. `settings` are the person's own lines."""
    report = DiagnosticReport(source_map)
    has_token = _has_job_token((*(submit_commands or {}), *(line.key for line in plan.htcondor)))
    for source in (source for job in plan.jobs for source in job.inputs):
        asked = (
            [preflight.prefix_stat(source.prefix)]
            if source.prefix
            else [preflight.file_stat(item) for item in source.files]
        )
        for found in filter(None, asked):
            _report_inaccessible(report, ("inputs", source.name) if source.name else ("input",), found, has_token)
    return report.diagnostics


def _has_job_token(submit_commands: Iterable[str]) -> bool:
    return any(key.strip().lower() in _TOKEN_SUBMIT_COMMANDS for key in submit_commands)


def _report_inaccessible(
    report: DiagnosticReport, keys: tuple[str, ...], input_stat: InputStat, has_job_token: bool
) -> None:
    if input_stat.failure_kind == _REFUSED_KIND and has_job_token:
        report.warning(keys, f"this machine may not read it, a job with its own token perhaps: {input_stat.error}")
    elif input_stat.failure_kind in (_MISSING_KIND, _REFUSED_KIND):
        report.error(keys, f"no job would get this input: {input_stat.error}", "--offline submits it all the same")


def add_sizes(plan: Plan, preflight: PreflightResult) -> Plan:
    """The plan with the sizes that were seen."""
    return replace(plan, jobs=tuple(replace(job, inputs=_add_input_sizes(job.inputs, preflight)) for job in plan.jobs))


def _add_input_sizes(inputs: tuple[Input, ...], preflight: PreflightResult) -> tuple[Input, ...]:
    return tuple(
        replace(source, files=tuple(_add_file_size(item, preflight) for item in source.files)) for source in inputs
    )


def _add_file_size(file: RemoteFile, preflight: PreflightResult) -> RemoteFile:
    found = preflight.file_stat(file)
    return replace(file, size=found.size) if found and found.size is not None else file
