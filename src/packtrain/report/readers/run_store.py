"""A run of packtrain as a history: slots by the engine's events, what was done in them by the agents' words. Pure.

A pool's log is one clock (that of the access point), an agent's another. On the local engine there is one machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from packtrain.events import Event
from packtrain.report.history import Attempt, History, Job, Outcome, Phase, Span
from packtrain.report.readers.agent_timeline import Words, kept_by_emitter, with_kept, with_words
from packtrain.report.readers.end_status import end_of_attempt, end_of_job
from packtrain.report.readers.job_events import Told
from packtrain.report.readers.pool_sessions import Stays, stays_of
from packtrain.report.readers.site_names import site_of
from packtrain.state import Attempt as Drawn
from packtrain.state import JobState, RunState

_NOT_CHECKED = "Nobody looked at what {} of the jobs made that succeeded: their workflow has no `expect`."
_UNHEARD = "Of {} attempts no word of an agent came home: of their slots only the pool's log tells."


def history_of_run(state: RunState, events: Iterable[Event], gpus: Mapping[str, float] | None = None) -> History:
    """`gpus`: how many each job asked for."""
    told: dict[str, Told] = {}
    now = 0.0
    for event in events:
        if event.job:
            told.setdefault(event.job, Told()).take(event)
        if event.emitter.startswith(("engine", "supervisor")):
            now = max(now, event.wall)
    asked = gpus or {}
    jobs = [_Drawing(job, told.get(job.id, Told()), now, asked.get(job.id, 0.0)) for job in state.jobs.values()]
    name = str(state.about.get("name") or state.run)
    return History(name, "run", tuple(job.drawn() for job in jobs), untold=tuple(_untold(jobs)))


def _untold(jobs: Sequence[_Drawing]) -> Iterator[str]:
    unchecked = sum(job.checked is False for job in jobs)
    if unchecked:
        yield _NOT_CHECKED.format(unchecked)
    unheard = sum(job.unheard for job in jobs)
    if unheard:
        yield _UNHEARD.format(unheard)


class _Drawing:
    """One job."""

    def __init__(self, job: JobState, told: Told, now: float, gpus: float) -> None:
        self._job, self._told, self._now, self._gpus = job, told, now, gpus
        self._agents = {attempt.emitter: told.agent(attempt.emitter) for attempt in job.attempts if attempt.emitter}
        self._kept = kept_by_emitter(self._agents.values())
        self._attempts: list[Attempt] = []
        self._waits: list[Span] = []
        self._held_in: Phase | None = None
        self.unheard = 0
        for decision, drawn in groupby(job.attempts, key=lambda attempt: attempt.decision):
            self._draw(decision, list(drawn))

    @property
    def checked(self) -> bool | None:
        """Whether anybody looked at its outputs; of one that has not succeeded there is nothing to say."""
        verdict = self._job.verdict
        words = self._agents.get(verdict.emitter) if verdict else None
        looked = words.counted("check", "files") if words else None
        return None if looked is None else looked > 0

    def drawn(self) -> Job:
        end = end_of_job(self._job)
        attempts = sorted(self._attempts, key=lambda attempt: (attempt.start, attempt.end))
        done = [attempt.end for attempt in attempts if attempt.outcome is Outcome.SUCCEEDED]  # a copy may end later
        ended = min(done) if done else attempts[-1].end if attempts else self._told.verdict
        return Job(
            self._job.id,
            tuple(replace(attempt, number=number) for number, attempt in enumerate(attempts, 1)),
            end.outcome,
            min(self._told.decided.values(), default=None),
            ended if self._job.verdict else None,
            tuple(self._waits),
            self.checked,
            end.category,
            end.reason,
            self._held_in,
            dict(self._job.point),
        )

    def _draw(self, decision: str, drawn: Sequence[Drawn]) -> None:
        stays = stays_of(self._told, decision, self._now)
        if stays is None:
            for attempt in drawn:
                self._draw_here(attempt)
        else:
            self._draw_in_pool(stays, drawn)

    # In a pool

    def _draw_in_pool(self, stays: Stays, drawn: Sequence[Drawn]) -> None:
        by_start = {number: list(some) for number, some in groupby(drawn, key=lambda attempt: attempt.start)}
        self._waits += stays.waits
        self._held_in = stays.held_in
        for place, attempt in enumerate(stays.attempts):
            starts = by_start.get(stays.starts.get(place, -1), [])
            self._attempts.append(self._with_agents(attempt, starts) if starts else replace(attempt, gpus=self._gpus))

    def _with_agents(self, attempt: Attempt, drawn: Sequence[Drawn]) -> Attempt:
        """The last of its agents tells how it ended: the others left for it to go on in place."""
        agents = [self._agents[one.emitter] for one in drawn if one.emitter]
        self.unheard += not agents
        return self._finished(with_words(attempt, agents), drawn[-1], agents)

    def _finished(self, attempt: Attempt, drawn: Drawn, agents: Sequence[Words]) -> Attempt:
        end = end_of_attempt(drawn)
        ended = replace(
            attempt,
            outcome=end.outcome,
            category=end.category,
            reason=end.reason,
            site=drawn.site or site_of(drawn.host),
            machine=drawn.host,
            gpus=self._gpus,
        )
        return with_kept(ended, agents, self._kept)

    # On this machine

    def _draw_here(self, drawn: Drawn) -> None:
        decided = self._told.decided.get(drawn.decision)
        gone = self._told.gone.get(drawn.decision)
        words = self._agents.get(drawn.emitter)
        began = words.wall if words and words.began is not None else None
        if began is None:
            if decided is not None:
                self._wait(decided, self._now if gone is None else gone.wall)
            return
        assert words is not None
        self._wait(decided, began)
        until = gone.wall if gone is not None and words.ended is None else self._now if drawn.live else began
        slot = Attempt(0, (Span(Phase.EXECUTE, began, max(until, began + words.seconds)),), Outcome.RUNNING)
        self._attempts.append(self._finished(with_words(slot, [words]), drawn, [words]))

    def _wait(self, start: float | None, end: float) -> None:
        if start is not None and end > start:
            self._waits.append(Span(Phase.QUEUED, start, end))
