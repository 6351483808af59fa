"""Attempts that are late: moved where their checkpoints can be reached, else copied, within a budget; the first that
succeeds is accepted for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packtrain.engines.api import Overrides
from packtrain.events import kinds
from packtrain.plan import CheckpointConfig, Job, Limits, Location, Output, Recovery, Resources
from packtrain.state import JobStatus
from packtrain.supervise.decisions import Accept, Cancel, EndJob, Move, Submit, event_from_decision
from packtrain.supervise.policies import (
    PolicyConfig,
    accept_first_success,
    job_result_policy,
    relax_overrides_policy,
    straggler_policy,
    submit_policy,
)
from packtrain.supervise.policies.site_avoidance import find_avoided_locations
from tests.support.event_builder import RunBuilder

HOUR = 3600.0
REMOTE = Output(Location("s3://bucket/place"))


def rules(jobs=10, output=None, checkpoint=None, attempts=3, **more):
    made = {
        str(n): Job(str(n), (), Resources(), Limits(max_attempts=attempts), (), output=output, checkpoint=checkpoint)
        for n in range(jobs)
    }
    recovery = Recovery(**{"straggler_budget": 0.2, "min_gain_s": 60.0, **more})
    return PolicyConfig(recovery, made, many_sites=True, outputs_staged=True)


MOVING = rules(output=REMOTE, checkpoint=CheckpointConfig("ckpt.pt"))


class Week(RunBuilder):
    """Jobs that begin at once, at a site each; time is that of the store."""

    def __init__(self, *jobs):
        super().__init__(*jobs)
        self.submitted = set()

    def submit(self, attempt_id="0-1", job="0", is_confirmed=True):
        self.submitted.add(attempt_id)
        super().submit(attempt_id, job, is_confirmed)

    def begin(self, job, site, host="", at=1e-3, attempt_id=""):
        self.now, attempt_id = at, attempt_id or f"{job}-1"
        if attempt_id == f"{job}-1" and attempt_id not in self.submitted:
            self.submit(attempt_id, job)
        agent = f"agent-{attempt_id}"
        self.add_event("engine-log", kinds.EXECUTION_STARTED, job, attempt=attempt_id, execution=1, site=site, host=host)
        self.add_event(agent, kinds.AGENT_STARTED, job, attempt=attempt_id, host=host or f"w{job}", pid=7, site=site)
        self.add_event(agent, kinds.STAGE_STARTED, job, stage="steps")

    def finish(self, job, at, attempt_id=""):
        self.now, attempt_id = at, attempt_id or f"{job}-1"
        about = {"outcome": "succeeded", "exit_code": 0, "failure": None, "seconds": at}
        self.add_event(f"agent-{attempt_id}", kinds.AGENT_ENDED, job, **about)
        self.end_attempt(attempt_id, job, 0)

    def succeed(self, job, at):
        self.finish(job, at)
        self.end_job("succeeded", job, emitter=f"agent-{job}-1")

    def report(self, job, step, total=100, attempt_id=""):
        self.add_event(f"agent-{attempt_id or f'{job}-1'}", kinds.METRIC, job, step=step, total_steps=total)


def peers_done(*, late_at="Slow", jobs=10, took=HOUR):
    """All but job 0 are done after an hour, elsewhere."""
    week = Week(*map(str, range(jobs)))
    week.begin("0", late_at, "slow1")
    for n in range(1, jobs):
        week.begin(str(n), "AB"[n % 2], f"quick{n}")
    for n in range(1, jobs):
        week.succeed(str(n), took)
    return week


def decide(week, at, given=None):
    return straggler_policy(given or rules())(week.state, (), at)


class TestCopies:
    def test_one_that_is_much_older_than_the_others_became(self):
        week = peers_done()
        assert decide(week, 1.2 * HOUR) == []
        (copy,) = decide(week, 1.3 * HOUR)
        assert copy == Submit("0", "0-2", copy.reason, Overrides(avoid_sites=("Slow",)), "0-1")
        assert copy.reason == "on slow1 at Slow it needs about 78 min more, elsewhere about 60 min"
        assert event_from_decision(copy)[1]["copy_of"] == "0-1"

    def test_its_own_words_count_more_than_its_age(self):
        week = peers_done()
        week.report("0", 90)
        assert decide(week, 1.5 * HOUR) == [], "it is nearly done"
        week.report("0", 10)
        (copy,) = decide(week, 1.1 * HOUR)
        assert copy.job == "0"

    def test_a_slow_pace_is_seen_before_anybody_is_done(self):
        week = Week("0", "1", "2", "3", "4")
        for n in range(5):
            week.begin(str(n), "Slow" if n == 0 else "AB"[n % 2])
            week.report(str(n), 12 if n == 0 else 50)
        (copy,) = decide(week, 0.5 * HOUR)
        assert (copy.job, copy.overrides.avoid_sites) == ("0", ("Slow",))

    def test_what_it_prepared_before_its_first_step_is_no_slowness(self):
        """The published program unpacked for 977 s before its first step."""
        week = peers_done()
        week.now = 0.3 * HOUR
        week.report("0", 1)
        week.now = 0.36 * HOUR
        week.report("0", 8)
        assert decide(week, 0.37 * HOUR) == [], "it does 7% in 4 minutes"

    def test_where_machines_are_scarce_it_waits_for_one_that_is_free(self):
        week = Week("0", "1", "2", "3", "4")
        for n in range(5):
            week.submit(f"{n}-1", str(n))
        for n in range(5):
            week.begin(str(n), "Slow" if n == 0 else "AB"[n % 2], at=30 * HOUR)
            week.report(str(n), 6 if n == 0 else 50)
        assert decide(week, 30.5 * HOUR) == [], "all had to wait for more than a day"
        week.succeed("1", 31 * HOUR)
        (copy,) = decide(week, 31 * HOUR)
        assert copy.job == "0"

    def test_a_pace_is_believed_only_after_a_twentieth(self):
        week = peers_done()
        week.report("0", 4)
        assert decide(week, 0.9 * HOUR) == []

    def test_only_the_machine_is_avoided_where_its_site_is_as_quick_as_others(self):
        week = peers_done(late_at="A")
        (copy,) = decide(week, 2 * HOUR)
        assert copy.overrides == Overrides(avoid_nodes=("slow1",))

    def test_nor_where_no_other_site_is_known(self):
        week = Week(*"01234")
        for n in "01234":
            week.begin(n, "A", f"w{n}")
        for n in "1234":
            week.succeed(n, HOUR)
        (copy,) = decide(week, 2 * HOUR)
        assert copy.overrides == Overrides(avoid_nodes=("w0",))

    def test_two_others_are_no_evidence(self):
        assert decide(peers_done(jobs=3), 10 * HOUR, rules(straggler_budget=1.0)) == []

    def test_once(self):
        week = peers_done()
        started(week, 2 * HOUR)
        assert decide(week, 3 * HOUR) == []
        week.cancel("0-2")
        week.end_attempt("0-2")
        assert decide(week, 3 * HOUR) == []

    @pytest.mark.parametrize(
        "given",
        [
            rules(straggler_budget=0.0),
            rules(straggler_budget=0.05),
            rules(attempts=1),
            rules(output=REMOTE),
            rules(min_gain_s=2 * HOUR),
            replace(rules(), many_sites=False),
            replace(rules(), user_pinned_sites=True),
            replace(rules(), outputs_staged=False),
        ],
        ids=["off", "dear", "attempts", "remote", "gain", "one site", "pinned", "shared folder"],
    )
    def test_never(self, given):
        assert decide(peers_done(), 2 * HOUR, given) == []
        assert decide(peers_done(), 2 * HOUR), "but else"

    def test_an_output_that_comes_home_to_a_folder_may_be_copied(self):
        assert decide(peers_done(), 2 * HOUR, rules(output=Output(Location("file:///data/out"))))

    def test_not_while_others_wait_for_machines(self):
        week = peers_done()
        for n in range(10, 30):
            week.submit(f"{n}-1", str(n))
        assert decide(week, 2 * HOUR, rules(30)) == []

    def test_not_in_a_run_whose_budget_is_spent(self):
        week = peers_done()
        week.add_failed_attempt_at("A", 1, "service_unavailable", "10")
        week.end_job("failed", "10")
        assert decide(week, 2 * HOUR, rules(11))
        assert decide(week, 2 * HOUR, rules(11, max_failures=1)) == []

    def test_not_what_somebody_wants_to_end(self):
        week = peers_done()
        week.request_cancel("0")
        assert decide(week, 2 * HOUR) == []

    def test_the_latest_first_as_far_as_the_budget_goes(self):
        week = Week(*map(str, range(12)))
        for n in range(12):
            week.begin(str(n), "Slow" if n < 2 else "AB"[n % 2], f"w{n}")
            week.report(str(n), 10 + n)
        for n in range(2, 12):
            week.succeed(str(n), HOUR)
        twice = decide(week, 1.1 * HOUR, rules(12, straggler_budget=0.2))
        assert [copy.job for copy in twice] == ["0", "1"]
        once = decide(week, 1.1 * HOUR, rules(12, straggler_budget=0.05))
        assert [copy.job for copy in once] == ["0"]

    def test_copies_that_cost_too_much_are_ended(self):
        week = peers_done()
        started(week, 2 * HOUR)
        assert decide(week, 5 * HOUR, rules(straggler_budget=0.25)) == []
        (cancel,) = decide(week, 9 * HOUR, rules(straggler_budget=0.25))
        assert cancel == Cancel("0", "0-2", "second copies have taken the 25% of the run's time that they may")

    def test_one_that_found_no_machine_is_given_up(self):
        week = peers_done()
        copied(week, 2 * HOUR)
        (cancel,) = relax_overrides_policy(rules())(week.state, ["0"], 3 * HOUR)
        assert (cancel.attempt_id, cancel.reason) == ("0-2", "no other machine took this second copy")
        week.cancel("0-2")
        week.end_attempt("0-2")
        week.add_event("agent-0-1", kinds.AGENT_ENDED, outcome="failed", exit_code=1, failure=None, seconds=1.0)
        week.end_attempt("0-1")
        assert job_result_policy(rules(attempts=1))(week.state, ["0"], 1e6)[0].result is JobStatus.FAILED, (
            "it had its attempt"
        )


class TestSweeps:
    """Jobs of a matrix: one may well take longer than another because it has more to do."""

    def week(self, points, paces):
        """All began at once at sites A, B, C, …, and report after an hour."""
        week = Week(*map(str, range(len(points))))
        week.events[0].data["points"].update({str(n): {"p": point} for n, point in enumerate(points)})
        for n, _ in enumerate(points):
            week.begin(str(n), "ABC"[n % 3], f"w{n}")
        week.now = HOUR
        for n, pace in enumerate(paces):
            week.report(str(n), pace)
        return week

    def test_jobs_that_have_more_to_do_are_let_be(self):
        week = self.week("abcdef", (90, 90, 45, 45, 12, 12))
        assert decide(week, HOUR, rules(6, straggler_budget=1.0)) == []

    def test_but_not_one_among_many_that_take_the_same(self):
        week = self.week("abcdef", (90, 80, 85, 88, 91, 12))
        assert [late.job for late in decide(week, HOUR, rules(6, straggler_budget=1.0))] == ["5"]

    def test_nor_one_that_is_late_among_its_own_kind(self):
        week = self.week("aaaabbbb", (90, 90, 90, 90, 12, 60, 14, 13))
        assert decide(week, HOUR, rules(8, straggler_budget=1.0)) == [], "most of them are as slow"
        week = self.week("aaaabbbb", (90, 90, 90, 90, 44, 45, 10, 46))
        assert [late.job for late in decide(week, HOUR, rules(8, straggler_budget=1.0))] == ["6"]


def copied(week, at):
    week.now = at
    week.add_supervisor_event(
        kinds.DECISION_MADE,
        action="submit",
        attempt="0-2",
        reason="late",
        copy_of="0-1",
        overrides={"avoid_sites": ["Slow"]},
    )
    week.confirm("0-2")


def started(week, at):
    copied(week, at)
    week.begin("0", "A", "quick9", at, "0-2")


class TestTheFirstCounts:
    def test_the_copy(self):
        week = peers_done()
        started(week, 2 * HOUR)
        assert accept_first_success(week.state, ["0"], 2 * HOUR) == []
        week.finish("0", 3 * HOUR, "0-2")
        accept, cancel = accept_first_success(week.state, ["0"], 3 * HOUR)
        assert accept == Accept("0", "0-2", "attempt 2 succeeded first")
        assert cancel == Cancel("0", "0-1", "attempt 2 succeeded first")
        (end,) = job_result_policy(rules())(week.state, ["0"], 3 * HOUR)
        assert (end.result, end.emitter) == (JobStatus.SUCCEEDED, "agent-0-2")

    def test_or_the_other(self):
        week = peers_done()
        started(week, 2 * HOUR)
        week.finish("0", 2.5 * HOUR)
        accept, cancel = accept_first_success(week.state, ["0"], 3 * HOUR)
        assert (accept.attempt_id, cancel.attempt_id) == ("0-1", "0-2")

    def test_a_choice_stands_whatever_is_heard_later(self):
        """Accepted, and then the supervisor dies; the next one hears that the other had succeeded before."""
        week = peers_done()
        started(week, 2 * HOUR)
        week.finish("0", 3 * HOUR, "0-2")
        week.add_supervisor_event(kinds.DECISION_MADE, action="accept", attempt="0-2", reason="r")
        week.replace_supervisor()
        week.finish("0", 2.9 * HOUR)
        assert accept_first_success(week.state, ["0"], 3 * HOUR) == []
        (end,) = job_result_policy(rules())(week.state, ["0"], 3 * HOUR)
        assert isinstance(end, EndJob) and end.emitter == "agent-0-2"
        week.end_job("succeeded", emitter="agent-0-2")
        assert week.job.latest_execution.attempt_id == "0-2"

    def test_a_job_with_one_submission_needs_no_choice(self):
        week = peers_done()
        week.finish("0", HOUR)
        assert accept_first_success(week.state, ["0"], HOUR) == []

    def test_what_still_lives_after_the_verdict_is_ended(self):
        week = peers_done()
        started(week, 2 * HOUR)
        week.finish("0", 3 * HOUR, "0-2")
        week.add_supervisor_event(kinds.DECISION_MADE, action="accept", attempt="0-2", reason="r")
        week.end_job("succeeded", emitter="agent-0-2")
        assert [d.attempt_id for d in accept_first_success(week.state, ["0"], 3 * HOUR)] == ["0-1"]

    def test_the_one_that_lost_tells_why(self):
        week = peers_done()
        started(week, 2 * HOUR)
        week.finish("0", 3 * HOUR, "0-2")
        week.add_supervisor_event(kinds.DECISION_MADE, action="accept", attempt="0-2", reason="r")
        week.add_supervisor_event(
            kinds.DECISION_MADE, action="cancel", attempt="0-1", reason="attempt 2 succeeded first"
        )
        week.end_agent("failed", "agent-0-1", failure="terminated")
        week.end_attempt("0-1")
        lost = week.job.executions[0].failure
        assert (lost.kind, lost.detail) == ("superseded", "attempt 2 succeeded first")
        assert "Slow" not in week.state.stats.sites, "it is no fault of its place"


class TestMoves:
    def late(self, saved=20, step=20):
        week = peers_done()
        week.save_checkpoint(saved, "agent-0-1")
        week.report("0", step)
        return week

    def test_where_checkpoints_can_be_reached_it_goes_on_elsewhere(self):
        (move,) = decide(self.late(), HOUR, MOVING)
        assert move == Move("0", "0-1", move.reason, ("Slow",), ())
        assert move.reason == "on slow1 at Slow it needs about 4.0 h more, elsewhere about 48 min"

    def test_one_that_has_saved_nothing_starts_anew_if_it_says_itself_that_it_is_late(self):
        week = peers_done()
        assert decide(week, 3 * HOUR, MOVING) == [], "its age alone is no reason, and a copy would write to its place"
        week.now = HOUR
        week.report("0", 20)
        (move,) = decide(week, HOUR, MOVING)
        assert move.reason.endswith("elsewhere about 60 min")

    def test_one_that_only_fetches_is_judged_by_its_age(self):
        week = peers_done()
        agent = "agent-0-9"
        week.submit("0-9")
        week.end_attempt("0-1")
        week.add_event(agent, kinds.AGENT_STARTED, attempt="0-9", host="slow1", pid=7, site="Slow")
        week.add_event(agent, kinds.STAGE_STARTED, stage="fetch")
        week.now += 60.0
        week.add_event(agent, kinds.PROGRESS, stage="fetch", done=6, total=100, unit="bytes")
        assert decide(week, HOUR + 100.0, MOVING) == [], "a few bytes are no forecast"
        assert decide(week, HOUR + HOUR, MOVING) == []
        (move,) = decide(week, HOUR + 1.3 * HOUR, MOVING)
        assert move.attempt_id == "0-9"

    def test_what_it_went_on_from_is_saved_too(self):
        week = peers_done()
        week.add_event("agent-0-1", kinds.CHECKPOINT_RESTORED, step=40)
        week.now = HOUR
        week.report("0", 52)
        (move,) = decide(week, HOUR, MOVING)
        assert move.reason.endswith("elsewhere about 36 min")

    def test_not_if_what_was_done_since_outweighs_it(self):
        week = peers_done()
        week.save_checkpoint(1, "agent-0-1")
        week.report("0", 46)
        assert decide(week, HOUR, MOVING) == []
        week.save_checkpoint(40, "agent-0-1")
        assert decide(week, HOUR, MOVING)

    def test_the_next_attempt_avoids_the_place_and_so_do_other_jobs(self):
        week = self.late()
        week.now = HOUR
        (move,) = decide(week, HOUR, MOVING)
        _say(week, move)
        assert decide(week, HOUR, MOVING) == [], "once"
        week.end_agent("failed", "agent-0-1", failure="terminated")
        week.end_attempt("0-1")
        assert week.job.executions[0].failure.kind == "too_slow"
        assert len(week.job.counted_failures) == 0
        (again,) = submit_policy(MOVING)(week.state, ["0"], HOUR)
        assert again.overrides == Overrides(avoid_sites=("Slow",), avoid_nodes=("slow1",))
        assert find_avoided_locations(week.state, MOVING, HOUR) == ((), ("slow1",))

    def test_a_machine_is_avoided_from_the_moment_that_it_was_found_slow(self):
        """Of two jobs that are moved at once, neither may be given the machine of the other."""
        week = self.late()
        week.now = HOUR
        _say(week, decide(week, HOUR, MOVING)[0])
        assert week.job.live_executions, "it is about to leave"
        assert find_avoided_locations(week.state, MOVING, HOUR) == ((), ("slow1",))
        assert find_avoided_locations(week.state, MOVING, 3 * HOUR) == ((), ()), "for a while"

    def test_also_one_that_left_in_good_order(self):
        week = self.late()
        _say(week, decide(week, HOUR, MOVING)[0])
        week.end_agent("requeued", "agent-0-1")
        week.end_attempt("0-1")
        assert find_avoided_locations(week.state, MOVING, HOUR) == ((), ("slow1",))

    def test_from_a_site_with_machines_of_all_kinds_only_once(self):
        """The next machine there was slow, too."""
        week = peers_done(late_at="A")
        for attempt_id, avoids in (("0-1", ((), ("slow1",))), ("0-2", (("A",), ()))):
            week.save_checkpoint(20, f"agent-{attempt_id}")
            week.report("0", 20, attempt_id=attempt_id)
            (move,) = decide(week, week.now + HOUR, MOVING)
            assert (move.avoid_sites, move.avoid_nodes) == avoids
            _say(week, move)
            week.end_attempt(attempt_id)
            week.submit("0-2")
            week.begin("0", "A", "slow2", at=week.now + HOUR, attempt_id="0-2")

    @pytest.mark.parametrize("ended", [False, True])
    def test_what_moves_throw_away_stays_within_the_budget_from_the_decision_on(self, ended):
        """Twenty are late and have saved nothing: each move loses all that its attempt did."""
        given = rules(60, output=REMOTE, checkpoint=CheckpointConfig("ckpt.pt"), straggler_budget=0.05)
        week = Week(*map(str, range(60)))
        for n in range(60):
            week.begin(str(n), "Slow" if n < 20 else "AB"[n % 2], f"w{n}")
        for n in range(20, 60):
            week.succeed(str(n), HOUR)
        for n in range(20):
            week.report(str(n), 20)
        moved = []
        for turn in range(10):
            week.now = HOUR + 60.0 * turn
            decisions = decide(week, week.now, given)
            moved += [(move.job, week.now) for move in decisions]
            for move in decisions:
                _say(week, move)
                if ended:
                    week.end_attempt(move.attempt_id, move.job)
        lost = sum(at for _, at in moved)
        assert 0 < lost <= 0.05 * (40 * HOUR + 20 * 5 * HOUR), moved

    def test_what_was_done_since_the_checkpoint_is_lost_too(self):
        week = self.late(saved=10, step=20)
        assert decide(week, HOUR, replace(MOVING, recovery=replace(MOVING.recovery, straggler_budget=0.05)))
        tenth = 0.5 * HOUR / (9 * HOUR + 5 * HOUR)
        less = replace(MOVING, recovery=replace(MOVING.recovery, straggler_budget=tenth * 0.9))
        assert decide(week, HOUR, less) == []

    def test_twice_at_most(self):
        week = peers_done()
        for number in (1, 2, 3):
            attempt_id = f"0-{number}"
            if number > 1:
                week.submit(attempt_id)
                week.begin("0", "Slow", at=number * HOUR, attempt_id=attempt_id)
            week.save_checkpoint(20, f"agent-{attempt_id}")
            week.report("0", 20, attempt_id=attempt_id)
            decided = decide(week, (number + 1) * HOUR, MOVING)
            assert [type(one) for one in decided] == ([Move] if number < 3 else [])
            for move in decided:
                _say(week, move)
                week.end_attempt(attempt_id)


def _say(week, attempt_id):
    kind, data = event_from_decision(attempt_id)
    week.add_supervisor_event(kind, attempt_id.job, **data)


@pytest.mark.parametrize("seconds", [0.0, 1.0, HOUR])
def test_nothing_runs(seconds):
    week = Week("0")
    assert decide(week, seconds) == []
