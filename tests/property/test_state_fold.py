"""The state depends only on the set of events: order and duplicates change nothing."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.events import FAILURE_KINDS, Event, kinds
from packtrain.state import RunState, fold
from packtrain.views.time_summary import TimeSummary, summarize_times
from tests.support.event_builder import RUN, RunBuilder

JOBS = ("0", "1", "2")
OUTCOMES = ("succeeded", "failed", "requeued", "cancelled", "future outcome")
AGENT_KINDS = (kinds.METRIC, kinds.NOTICE, kinds.STEP_STARTED, kinds.CHECKPOINT_SAVED, "future.kind")
STAGES = ("probe", "fetch", "unpack", "steps", "check", "sync", "clean")
ACTIONS = (
    *("submit", "confirm", "start", "agent_events", "end", "gone", "cancel", "result", "reopen", "request"),
    *("execution_started", "interrupted", "held", "released", "hold_decision", "transfer", "takeover"),
    *("copy", "accept", "move"),
)


class EventGenerator:
    """Generates plausible events of a run, one action after another."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.run = RunBuilder(*JOBS)
        self.attempts: list[tuple[str, str]] = []  # (job, attempt_id)
        self.agents: list[tuple[str, str]] = []  # (job, emitter)
        self.gone_ids: set[str] = set()
        self.ended_agents: set[str] = set()
        self.requests: dict[str, list[str]] = {job: [] for job in JOBS}
        self.n_starts: dict[str, int] = {}
        self.n_stops: dict[str, int] = {}
        self.holds: list[tuple[str, str, int]] = []

    def choose(self, values: Any) -> Any:
        return self.draw(st.sampled_from(sorted(values)))

    def generate(self, action: str) -> None:
        self.run.now = self.draw(st.floats(0, 1000))  # different clocks, so in no order
        getattr(self, f"generate_{action}")(self.choose(JOBS))

    def generate_submit(self, job: str) -> None:
        attempt_id = f"{job}-{sum(j == job for j, _ in self.attempts) + 1}"
        self.attempts.append((job, attempt_id))
        self.run.submit(attempt_id, job, is_confirmed=self.draw(st.booleans()))

    def generate_confirm(self, job: str) -> None:
        if self.attempts:
            job, attempt_id = self.choose(self.attempts)
            self.run.confirm(attempt_id, job)

    def generate_start(self, job: str) -> None:
        """Start an agent, perhaps of an attempt that already had one, because the pool restarted it."""
        if self.attempts:
            job, attempt_id = self.choose(self.attempts)
            self.agents.append((job, f"agent-{len(self.agents)}"))
            self.run.start_agent(self.agents[-1][1], attempt_id, job)

    def live_agents(self) -> list[tuple[str, str]]:
        return [(job, agent) for job, agent in self.agents if agent not in self.ended_agents]

    def generate_agent_events(self, job: str) -> None:
        if self.live_agents():
            job, agent = self.choose(self.live_agents())
            stage = self.choose(STAGES)
            self.run.add_stage(stage, agent, job, duration_s=self.draw(st.none() | st.floats(0, 100)))
            self.run.add_event(agent, kinds.PROGRESS, job, stage=stage, done=self.draw(st.integers(0, 9)))
            for kind in self.draw(st.lists(st.sampled_from(AGENT_KINDS), max_size=6)):
                self.run.add_event(
                    agent, kind, job, text=f"text {len(self.run.events)}", step=self.draw(st.integers(0, 3))
                )

    def generate_end(self, job: str) -> None:
        if self.live_agents():
            job, agent = self.choose(self.live_agents())
            self.ended_agents.add(agent)
            self.run.end_agent(
                self.choose(OUTCOMES), agent, job, self.draw(st.sampled_from(["", *sorted(FAILURE_KINDS)]))
            )

    def generate_gone(self, job: str) -> None:
        live = [(j, d) for j, d in self.attempts if d not in self.gone_ids]
        if live:
            job, attempt_id = self.choose(live)
            self.gone_ids.add(attempt_id)
            self.run.end_attempt(attempt_id, job, self.draw(st.sampled_from([None, 0, 1, 50, 85, -9])))

    def generate_execution_started(self, job: str) -> None:
        if self.attempts:
            job, attempt_id = self.choose(self.attempts)
            self.n_starts[attempt_id] = self.n_starts.get(attempt_id, 0) + 1
            self.run.start_execution(self.n_starts[attempt_id], attempt_id, job)

    def generate_transfer(self, job: str) -> None:
        if self.attempts:
            job, attempt_id = self.choose(self.attempts)
            start = self.n_starts.get(attempt_id, 0) + self.draw(st.integers(0, 1))
            self.run.add_transfer(
                self.choose(("in", "out")), self.choose(("queued", "started", "finished")), start, attempt_id, job
            )

    def generate_interrupted(self, job: str) -> None:
        running = [(j, d) for j, d in self.attempts if self.n_starts.get(d, 0) > self.n_stops.get(d, 0)]
        if running:
            job, attempt_id = self.choose(running)
            self.n_stops[attempt_id] = self.n_starts[attempt_id]
            emitters = tuple(agent for j, agent in self.agents if j == job and self.draw(st.booleans()))
            self.run.interrupt_execution(
                self.n_starts[attempt_id], attempt_id, job, self.choose(FAILURE_KINDS), emitters
            )

    def generate_held(self, job: str) -> None:
        if self.attempts:
            job, attempt_id = self.choose(self.attempts)
            self.holds.append(
                (job, attempt_id, self.run.hold(self.choose(("release", "wait", "give_up")), 0, attempt_id, job))
            )

    def generate_released(self, job: str) -> None:
        if self.attempts:
            job, attempt_id = self.choose(self.attempts)
            self.run.release(attempt_id, job)

    def generate_hold_decision(self, job: str) -> None:
        if self.holds:
            job, attempt_id, hold = self.choose(self.holds)
            self.run.answer_hold(self.choose(("release", "give_up")), hold, attempt_id, job)

    def generate_cancel(self, job: str) -> None:
        if self.attempts:
            job, attempt_id = self.choose(self.attempts)
            self.run.cancel(attempt_id, job)

    def generate_copy(self, job: str) -> None:
        if self.attempts:
            job, first = self.choose(self.attempts)
            attempt_id = f"{job}-{sum(j == job for j, _ in self.attempts) + 1}"
            self.attempts.append((job, attempt_id))
            self.run.add_supervisor_event(
                kinds.DECISION_MADE, job, action="submit", attempt=attempt_id, reason="slow", copy_of=first
            )

    def generate_accept(self, job: str) -> None:
        if self.attempts:
            job, attempt_id = self.choose(self.attempts)
            self.run.add_supervisor_event(kinds.DECISION_MADE, job, action="accept", attempt=attempt_id, reason="first")

    def generate_move(self, job: str) -> None:
        if self.attempts:
            job, attempt_id = self.choose(self.attempts)
            node = self.choose(("w1", "w2"))
            self.run.add_supervisor_event(
                kinds.DECISION_MADE, job, action="move", attempt=attempt_id, reason="r", avoid_nodes=[node]
            )

    def generate_result(self, job: str) -> None:
        self.run.end_job(self.choose(("succeeded", "failed", "cancelled")), job, tuple(self.requests[job]))

    def generate_reopen(self, job: str) -> None:
        self.run.reopen(job, tuple(self.requests[job][:1]))

    def generate_request(self, job: str) -> None:
        self.requests[job].append(self.run.request_cancel(job))

    def generate_takeover(self, job: str) -> None:
        if self.draw(st.booleans()):
            self.run.add_supervisor_event(kinds.SUPERVISOR_ENDED, "", reason="interrupted")
        self.run.replace_supervisor()


@st.composite
def histories(draw: Any) -> list[Event]:
    generator = EventGenerator(draw)
    for action in draw(st.lists(st.sampled_from(ACTIONS), min_size=5, max_size=60)):
        generator.generate(action)
    return generator.run.events


def round_times(times: TimeSummary) -> dict[str, float]:
    """Round the times, because the order of floating-point sums changes the last digits."""
    return {name: round(seconds, 3) for name, seconds in {**times.seconds_by_stage, "wasted": times.wasted_s}.items()}


def summarize_state(state: RunState) -> Any:
    jobs = {
        name: (
            job.status,
            job.executions,
            job.recent_executions,
            job.counted_failures,
            job.result,
            job.open_requests,
            job.point,
        )
        for name, job in sorted(state.jobs.items())
    }
    cancelled = {
        e.attempt_id: job.has_cancel_decision(e.attempt_id) for job in state.jobs.values() for e in job.executions
    }
    accepted = {name: (job.accepted_attempt_id, dict(job.moves)) for name, job in state.jobs.items()}
    attempts = {
        a.id: (*replace(a, timeline=None).__dict__.items(), a.timeline and a.timeline.waits(2000.0))
        for job in state.jobs.values()
        for a in job.attempts.values()
    }
    return (
        jobs,
        cancelled,
        accepted,
        attempts,
        round_times(summarize_times(state)),
        state.is_supervised,
        state.is_finished,
        state.metadata,
    )


@settings(max_examples=150, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_order_and_duplicates_change_nothing(events: list[Event], rng: Random) -> None:
    expected = summarize_state(fold(RUN, events))
    assert summarize_state(fold(RUN, reversed(events))) == expected
    assert summarize_state(fold(RUN, events + events)) == expected
    shuffled = events + rng.choices(events, k=20)
    rng.shuffle(shuffled)
    assert summarize_state(fold(RUN, shuffled)) == expected


@settings(max_examples=50, deadline=None)
@given(histories(), st.integers(0, 200))
def test_reads_change_nothing(events: list[Event], offset: int) -> None:
    """Cached values are never out of date."""
    state = RunState(RUN)
    for number, event in enumerate(events):
        state.apply(event)
        if number % 3 == offset % 3:
            summarize_state(state)
    assert summarize_state(state) == summarize_state(fold(RUN, events))


@settings(max_examples=50, deadline=None)
@given(histories(), st.integers(0, 60))
def test_later_events_do_not_change_a_state(events: list[Event], n_first: int) -> None:
    state = RunState(RUN)
    for event in events[:n_first]:
        state.apply(event)
    before = dict(state.jobs)
    for event in events[n_first:]:
        state.apply(event)
    for job_id, expected in fold(RUN, events[:n_first]).jobs.items():
        job = before[job_id]
        assert (job.status, job.executions, job.result) == (expected.status, expected.executions, expected.result)
        assert (job.counted_failures, job.open_requests) == (expected.counted_failures, expected.open_requests)


@settings(max_examples=50, deadline=None)
@given(histories())
def test_events_round_trip(events: list[Event]) -> None:
    assert [Event.from_json(event.to_json()) for event in events] == events
