"""Asks the inputs of a plan for their size and whether they can be had; each once, all at the same time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from packtrain.errors import FailedError
from packtrain.plan import Input, Item, Plan, Ref
from packtrain.planner.secret_sources import revealer
from packtrain.spec.diagnostics import Origin, Problem, Report
from packtrain.transfer.api import Reveal, Source
from packtrain.transfer.registry import source_for
from packtrain.transfer.urls import shown

LIMIT_S = 10.0
_WORKERS = 16
_MISSING, _REFUSED = "object_missing", "token_refused"
_PAUSES_S = (1.0, 2.0)  # before what is said to be missing is asked for again
_JOBS_TOKENS = ("use_oauth_services", "use_scitokens")  # HTCondor gives the job a token that this machine has not

Sources = tuple[Ref, ...]
OpenSource = Callable[[Ref, Reveal], Source]


@dataclass(frozen=True)
class Finding:
    """What is known of one file, or of all below one address."""

    address: str  # without secrets
    size: int | None = None
    files: int | None = None
    trouble: str = ""  # why it could not be reached; empty: it could
    kind: str = ""  # of that failure

    @property
    def reachable(self) -> bool:
        return not self.trouble


@dataclass(frozen=True)
class Survey:
    findings: Mapping[Sources, Finding] = field(default_factory=dict)

    def of_item(self, item: Item) -> Finding | None:
        return self.findings.get(item.sources)

    def of_prefix(self, prefix: Ref) -> Finding | None:
        return self.findings.get((prefix,))


def survey(
    plan: Plan, values: Mapping[str, str], *, limit_s: float = LIMIT_S, open_source: OpenSource = source_for
) -> Survey:
    """Ask every input of the plan. `values` are the secrets' values by name."""
    questions = _questions(plan)
    asker = _Asker(open_source, revealer(values))
    answers = asker.ask_all(questions, time.monotonic() + limit_s)
    late = f"gave no answer within {limit_s:g} seconds"
    return Survey({key: answers.get(key) or Finding(shown(key[0].url), trouble=late) for key in questions})


def _questions(plan: Plan) -> dict[Sources, bool]:
    """Each set of sources once, and whether it is a prefix."""
    inputs = [source for job in plan.jobs for source in job.inputs]
    prefixes: dict[Sources, bool] = {(source.prefix,): True for source in inputs if source.prefix}
    return {**prefixes, **{item.sources: False for source in inputs for item in source.items}}


class _Asker:
    def __init__(self, open_source: OpenSource, reveal: Reveal) -> None:
        self._open = open_source
        self._reveal = reveal

    def ask_all(self, questions: Mapping[Sources, bool], deadline: float) -> dict[Sources, Finding]:
        """Whatever was answered in time. Threads that hang are left behind; they end with the process."""
        waiting: queue.SimpleQueue[tuple[Sources, bool]] = queue.SimpleQueue()
        answered: queue.SimpleQueue[tuple[Sources, Finding]] = queue.SimpleQueue()
        for question in questions.items():
            waiting.put(question)
        for _ in range(min(_WORKERS, len(questions))):
            threading.Thread(target=self._work, args=(waiting, answered, deadline), daemon=True).start()
        return dict(_received(answered, len(questions), deadline))

    def _work(
        self,
        waiting: queue.SimpleQueue[tuple[Sources, bool]],
        answered: queue.SimpleQueue[tuple[Sources, Finding]],
        deadline: float,
    ) -> None:
        while time.monotonic() < deadline:
            try:
                sources, is_prefix = waiting.get_nowait()
            except queue.Empty:
                return
            answered.put((sources, self._ask(sources, is_prefix, deadline)))

    def _ask(self, sources: Sources, is_prefix: bool, deadline: float) -> Finding:
        """A cache or a director may say once that something does not exist."""
        found = self._ask_once(sources, is_prefix)
        for pause in _PAUSES_S:
            passes = found.kind == _MISSING and not sources[0].url.startswith("file:")
            if not passes or time.monotonic() + pause > deadline:
                break
            time.sleep(pause)
            found = self._ask_once(sources, is_prefix)
        return found

    def _ask_once(self, sources: Sources, is_prefix: bool) -> Finding:
        """The first source that answers; if none does, what the first one said."""
        findings = []
        for ref in sources:
            findings.append(self._list(ref) if is_prefix else self._stat(ref))
            if findings[-1].reachable:
                return findings[-1]
        return findings[0]

    def _stat(self, ref: Ref) -> Finding:
        try:
            return Finding(shown(ref.url), self._open(ref, self._reveal).stat(ref).size, 1)
        except FailedError as error:
            return Finding(shown(ref.url), trouble=error.detail, kind=error.kind)

    def _list(self, ref: Ref) -> Finding:
        try:
            sizes = [entry.size for entry in self._open(ref, self._reveal).list(ref)]
        except FailedError as error:
            return Finding(shown(ref.url), trouble=error.detail, kind=error.kind)
        known = [size for size in sizes if size is not None]
        return Finding(shown(ref.url), sum(known) if len(known) == len(sizes) else None, len(sizes))


def _received(
    answered: queue.SimpleQueue[tuple[Sources, Finding]], count: int, deadline: float
) -> Iterator[tuple[Sources, Finding]]:
    for _ in range(count):
        try:
            yield answered.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return


def refusals(
    plan: Plan, survey: Survey, origin: Origin, settings: Mapping[str, str] | None = None
) -> tuple[Problem, ...]:
    """Inputs that are not there, or not for us: a pool would only find that out a hundred times. What may pass by
    itself is no reason to refuse, nor is a token that only the job will have. `settings` are the person's own lines."""
    report = Report(origin)
    has_token = _has_token((*(settings or {}), *(line.key for line in plan.htcondor)))
    for source in (source for job in plan.jobs for source in job.inputs):
        asked = [survey.of_prefix(source.prefix)] if source.prefix else [survey.of_item(item) for item in source.items]
        for found in filter(None, asked):
            _refuse(report, ("inputs", source.name) if source.name else ("input",), found, has_token)
    return report.problems


def _has_token(keys: Iterable[str]) -> bool:
    return any(key.strip().lower() in _JOBS_TOKENS for key in keys)


def _refuse(report: Report, keys: tuple[str, ...], found: Finding, has_token: bool) -> None:
    if found.kind == _REFUSED and has_token:
        report.warning(keys, f"this machine may not read it, a job with its own token perhaps: {found.trouble}")
    elif found.kind in (_MISSING, _REFUSED):
        report.error(keys, f"no job would get this input: {found.trouble}", "--offline submits it all the same")


def with_sizes(plan: Plan, survey: Survey) -> Plan:
    """The plan with the sizes that were seen."""
    return replace(plan, jobs=tuple(replace(job, inputs=_sized(job.inputs, survey)) for job in plan.jobs))


def _sized(inputs: tuple[Input, ...], survey: Survey) -> tuple[Input, ...]:
    return tuple(replace(source, items=tuple(_sized_item(item, survey) for item in source.items)) for source in inputs)


def _sized_item(item: Item, survey: Survey) -> Item:
    found = survey.of_item(item)
    return replace(item, size=found.size) if found and found.size is not None else item
