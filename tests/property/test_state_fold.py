"""The fold depends on the set of events only: reading them twice, or in another order, changes nothing."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.events import FAILURE_KINDS, Event, kinds
from packtrain.state import RunState, fold
from packtrain.views.time_summary import TimeSummary, summarize_times
from tests.support.event_builder import RUN, RunBuilder

JOBS = ("0", "1", "2")
OUTCOMES = ("succeeded", "failed", "requeued", "cancelled", "of tomorrow")
WORDS = (kinds.METRIC, kinds.NOTICE, kinds.STEP_STARTED, kinds.CHECKPOINT_SAVED, "of.tomorrow")
STAGES = ("probe", "fetch", "unpack", "steps", "check", "sync", "clean")
ACTIONS = (
    *("submit", "confirm", "start", "talk", "end", "gone", "cancel", "verdict", "reopen", "request", "takeover"),
    *("placed", "stopped", "held", "released", "answer", "transfer", "copy", "accept", "move"),
)


class Teller:
    """Draws one plausible happening after another."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.story = RunBuilder(*JOBS)
        self.decisions: list[tuple[str, str]] = []  # (job, decision)
        self.agents: list[tuple[str, str]] = []  # (job, emitter)
        self.told_gone: set[str] = set()
        self.ended: set[str] = set()
        self.asked: dict[str, list[str]] = {job: [] for job in JOBS}
        self.starts: dict[str, int] = {}
        self.stops: dict[str, int] = {}
        self.holds: list[tuple[str, str, int]] = []

    def one(self, values: Any) -> Any:
        return self.draw(st.sampled_from(sorted(values)))

    def tell(self, action: str) -> None:
        self.story.now = self.draw(st.floats(0, 1000))  # clocks of many machines: in no order
        getattr(self, f"tell_{action}")(self.one(JOBS))

    def tell_submit(self, job: str) -> None:
        decision = f"{job}-{sum(j == job for j, _ in self.decisions) + 1}"
        self.decisions.append((job, decision))
        self.story.submit(decision, job, is_confirmed=self.draw(st.booleans()))

    def tell_confirm(self, job: str) -> None:
        if self.decisions:
            job, decision = self.one(self.decisions)
            self.story.confirm(decision, job)

    def tell_start(self, job: str) -> None:
        """Also for a decision that already had an agent: the pool reran it."""
        if self.decisions:
            job, decision = self.one(self.decisions)
            self.agents.append((job, f"agent-{len(self.agents)}"))
            self.story.start_agent(self.agents[-1][1], decision, job)

    def speaking(self) -> list[tuple[str, str]]:
        return [(job, agent) for job, agent in self.agents if agent not in self.ended]

    def tell_talk(self, job: str) -> None:
        if self.speaking():
            job, agent = self.one(self.speaking())
            stage = self.one(STAGES)
            self.story.add_stage(stage, agent, job, duration_s=self.draw(st.none() | st.floats(0, 100)))
            self.story.add_event(agent, kinds.PROGRESS, job, stage=stage, done=self.draw(st.integers(0, 9)))
            for kind in self.draw(st.lists(st.sampled_from(WORDS), max_size=6)):
                self.story.add_event(
                    agent, kind, job, text=f"word {len(self.story.events)}", step=self.draw(st.integers(0, 3))
                )

    def tell_end(self, job: str) -> None:
        if self.speaking():
            job, agent = self.one(self.speaking())
            self.ended.add(agent)
            self.story.end_agent(
                self.one(OUTCOMES), agent, job, self.draw(st.sampled_from(["", *sorted(FAILURE_KINDS)]))
            )

    def tell_gone(self, job: str) -> None:
        left = [(j, d) for j, d in self.decisions if d not in self.told_gone]
        if left:
            job, decision = self.one(left)
            self.told_gone.add(decision)
            self.story.end_attempt(decision, job, self.draw(st.sampled_from([None, 0, 1, 50, 85, -9])))

    def tell_placed(self, job: str) -> None:
        if self.decisions:
            job, decision = self.one(self.decisions)
            self.starts[decision] = self.starts.get(decision, 0) + 1
            self.story.place(self.starts[decision], decision, job)

    def tell_transfer(self, job: str) -> None:
        if self.decisions:
            job, decision = self.one(self.decisions)
            start = self.starts.get(decision, 0) + self.draw(st.integers(0, 1))
            self.story.add_transfer(
                self.one(("in", "out")), self.one(("queued", "started", "finished")), start, decision, job
            )

    def tell_stopped(self, job: str) -> None:
        running = [(j, d) for j, d in self.decisions if self.starts.get(d, 0) > self.stops.get(d, 0)]
        if running:
            job, decision = self.one(running)
            self.stops[decision] = self.starts[decision]
            spoke = tuple(agent for j, agent in self.agents if j == job and self.draw(st.booleans()))
            self.story.stop_execution(self.starts[decision], decision, job, self.one(FAILURE_KINDS), spoke)

    def tell_held(self, job: str) -> None:
        if self.decisions:
            job, decision = self.one(self.decisions)
            self.holds.append(
                (job, decision, self.story.hold(self.one(("release", "wait", "give_up")), 0, decision, job))
            )

    def tell_released(self, job: str) -> None:
        if self.decisions:
            job, decision = self.one(self.decisions)
            self.story.release(decision, job)

    def tell_answer(self, job: str) -> None:
        if self.holds:
            job, decision, hold = self.one(self.holds)
            self.story.answer_hold(self.one(("release", "give_up")), hold, decision, job)

    def tell_cancel(self, job: str) -> None:
        if self.decisions:
            job, decision = self.one(self.decisions)
            self.story.cancel(decision, job)

    def tell_copy(self, job: str) -> None:
        if self.decisions:
            job, first = self.one(self.decisions)
            decision = f"{job}-{sum(j == job for j, _ in self.decisions) + 1}"
            self.decisions.append((job, decision))
            self.story.add_supervisor_event(
                kinds.DECISION_MADE, job, action="submit", attempt=decision, reason="late", copy_of=first
            )

    def tell_accept(self, job: str) -> None:
        if self.decisions:
            job, decision = self.one(self.decisions)
            self.story.add_supervisor_event(kinds.DECISION_MADE, job, action="accept", attempt=decision, reason="first")

    def tell_move(self, job: str) -> None:
        if self.decisions:
            job, decision = self.one(self.decisions)
            machine = self.one(("w1", "w2"))
            self.story.add_supervisor_event(
                kinds.DECISION_MADE, job, action="move", attempt=decision, reason="r", avoid_nodes=[machine]
            )

    def tell_verdict(self, job: str) -> None:
        self.story.end_job(self.one(("succeeded", "failed", "cancelled")), job, tuple(self.asked[job]))

    def tell_reopen(self, job: str) -> None:
        self.story.reopen(job, tuple(self.asked[job][:1]))

    def tell_request(self, job: str) -> None:
        self.asked[job].append(self.story.request_cancel(job))

    def tell_takeover(self, job: str) -> None:
        if self.draw(st.booleans()):
            self.story.add_supervisor_event(kinds.SUPERVISOR_ENDED, "", reason="interrupted")
        self.story.replace_supervisor()


@st.composite
def histories(draw: Any) -> list[Event]:
    teller = Teller(draw)
    for action in draw(st.lists(st.sampled_from(ACTIONS), min_size=5, max_size=60)):
        teller.tell(action)
    return teller.story.events


def rounded(times: TimeSummary) -> dict[str, float]:
    """Sums of floats depend on the order of jobs in the last digits."""
    return {name: round(seconds, 3) for name, seconds in {**times.seconds_by_stage, "lost": times.wasted_s}.items()}


def picture(state: RunState) -> Any:
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
        a.attempt_id: job.has_cancel_decision(a.attempt_id) for job in state.jobs.values() for a in job.executions
    }
    chosen = {name: (job.accepted_attempt_id, dict(job.moves)) for name, job in state.jobs.items()}
    return (
        jobs,
        cancelled,
        chosen,
        rounded(summarize_times(state)),
        state.is_supervised,
        state.is_finished,
        state.metadata,
    )


@settings(max_examples=150, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing(events: list[Event], chance: Random) -> None:
    expected = picture(fold(RUN, events))
    assert picture(fold(RUN, reversed(events))) == expected
    assert picture(fold(RUN, events + events)) == expected
    shuffled = events + chance.choices(events, k=20)
    chance.shuffle(shuffled)
    assert picture(fold(RUN, shuffled)) == expected


@settings(max_examples=50, deadline=None)
@given(histories(), st.integers(0, 200))
def test_asking_in_between_changes_nothing(events: list[Event], when: int) -> None:
    """What is drawn when asked for is never kept too long."""
    state = RunState(RUN)
    for number, event in enumerate(events):
        state.apply(event)
        if number % 3 == when % 3:
            picture(state)
    assert picture(state) == picture(fold(RUN, events))


@settings(max_examples=50, deadline=None)
@given(histories())
def test_a_history_survives_its_json_form(events: list[Event]) -> None:
    assert [Event.from_json(event.to_json()) for event in events] == events
