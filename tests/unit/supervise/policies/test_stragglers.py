"""Slow executions: moved if their checkpoints can be reached, else copied, within a budget."""

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
REMOTE = Output(Location("s3://bucket/path"))


def make_config(n_jobs=10, output=None, checkpoint=None, max_attempts=3, **recovery):
    jobs = {
        str(n): Job(
            str(n), (), Resources(), Limits(max_attempts=max_attempts), (), output=output, checkpoint=checkpoint
        )
        for n in range(n_jobs)
    }
    settings = Recovery(**{"straggler_budget": 0.2, "min_gain_s": 60.0, **recovery})
    return PolicyConfig(settings, jobs, has_multiple_sites=True, outputs_staged=True)


MOVE_CONFIG = make_config(output=REMOTE, checkpoint=CheckpointConfig("ckpt.pt"))


class PoolRun(RunBuilder):
    """A run whose jobs start at the same time, each at a site. All times are by the store's clock."""

    def __init__(self, *jobs):
        super().__init__(*jobs)
        self.submitted = set()

    def submit(self, attempt_id="0-1", job="0", is_confirmed=True):
        self.submitted.add(attempt_id)
        super().submit(attempt_id, job, is_confirmed)

    def start_execution(self, job, site, host="", at=1e-3, attempt_id=""):
        self.now, attempt_id = at, attempt_id or f"{job}-1"
        if attempt_id == f"{job}-1" and attempt_id not in self.submitted:
            self.submit(attempt_id, job)
        agent = f"agent-{attempt_id}"
        self.add_event(
            "engine-log", kinds.EXECUTION_STARTED, job, attempt=attempt_id, execution=1, site=site, host=host
        )
        self.add_event(agent, kinds.AGENT_STARTED, job, attempt=attempt_id, host=host or f"w{job}", pid=7, site=site)
        self.add_event(agent, kinds.STAGE_STARTED, job, stage="steps")

    def end_execution(self, job, at, attempt_id=""):
        self.now, attempt_id = at, attempt_id or f"{job}-1"
        data = {"outcome": "succeeded", "exit_code": 0, "failure": None, "seconds": at}
        self.add_event(f"agent-{attempt_id}", kinds.AGENT_ENDED, job, **data)
        self.end_attempt(attempt_id, job, 0)

    def succeed(self, job, at):
        self.end_execution(job, at)
        self.end_job("succeeded", job, emitter=f"agent-{job}-1")

    def report(self, job, step, total=100, attempt_id=""):
        self.add_event(f"agent-{attempt_id or f'{job}-1'}", kinds.METRIC, job, step=step, total_steps=total)


def build_run(*, slow_site="Slow", n_jobs=10, runtime_s=HOUR):
    """Build a run in which all jobs but job 0 succeed after an hour, at other sites."""
    run = PoolRun(*map(str, range(n_jobs)))
    run.start_execution("0", slow_site, "slow1")
    for n in range(1, n_jobs):
        run.start_execution(str(n), "AB"[n % 2], f"fast{n}")
    for n in range(1, n_jobs):
        run.succeed(str(n), runtime_s)
    return run


def decide(run, at, config=None):
    return straggler_policy(config or make_config())(run.state, (), at)


class TestCopies:
    def test_execution_older_than_all_others(self):
        run = build_run()
        assert decide(run, 1.2 * HOUR) == []
        (copy,) = decide(run, 1.3 * HOUR)
        assert copy == Submit("0", "0-2", copy.reason, Overrides(avoid_sites=("Slow",)), "0-1")
        assert copy.reason == "it needs about 1 h 18 min more on slow1 at Slow, but about 1 h elsewhere"
        assert event_from_decision(copy)[1]["copy_of"] == "0-1"

    def test_own_progress_counts_more_than_age(self):
        run = build_run()
        run.report("0", 90)
        assert decide(run, 1.5 * HOUR) == [], "it is nearly done"
        run.report("0", 10)
        (copy,) = decide(run, 1.1 * HOUR)
        assert copy.job == "0"

    def test_slow_progress_before_any_job_ends(self):
        run = PoolRun("0", "1", "2", "3", "4")
        for n in range(5):
            run.start_execution(str(n), "Slow" if n == 0 else "AB"[n % 2])
            run.report(str(n), 12 if n == 0 else 50)
        (copy,) = decide(run, 0.5 * HOUR)
        assert (copy.job, copy.overrides.avoid_sites) == ("0", ("Slow",))

    def test_setup_time_is_excluded(self):
        """The published program unpacked for 977 s before its first step."""
        run = build_run()
        run.now = 0.3 * HOUR
        run.report("0", 1)
        run.now = 0.36 * HOUR
        run.report("0", 8)
        assert decide(run, 0.37 * HOUR) == [], "it makes 7% progress in 4 minutes"

    def test_busy_pool_needs_free_node(self):
        run = PoolRun("0", "1", "2", "3", "4")
        for n in range(5):
            run.submit(f"{n}-1", str(n))
        for n in range(5):
            run.start_execution(str(n), "Slow" if n == 0 else "AB"[n % 2], at=30 * HOUR)
            run.report(str(n), 6 if n == 0 else 50)
        assert decide(run, 30.5 * HOUR) == [], "all had to wait for more than a day"
        run.succeed("1", 31 * HOUR)
        (copy,) = decide(run, 31 * HOUR)
        assert copy.job == "0"

    def test_little_progress_is_no_estimate(self):
        run = build_run()
        run.report("0", 4)
        assert decide(run, 0.9 * HOUR) == []

    def test_only_node_is_avoided_at_fast_site(self):
        run = build_run(slow_site="A")
        (copy,) = decide(run, 2 * HOUR)
        assert copy.overrides == Overrides(avoid_nodes=("slow1",))

    def test_only_node_is_avoided_if_no_other_site_is_known(self):
        run = PoolRun(*"01234")
        for n in "01234":
            run.start_execution(n, "A", f"w{n}")
        for n in "1234":
            run.succeed(n, HOUR)
        (copy,) = decide(run, 2 * HOUR)
        assert copy.overrides == Overrides(avoid_nodes=("w0",))

    def test_two_peers_are_not_enough(self):
        assert decide(build_run(n_jobs=3), 10 * HOUR, make_config(straggler_budget=1.0)) == []

    def test_only_one_copy(self):
        run = build_run()
        start_copy(run, 2 * HOUR)
        assert decide(run, 3 * HOUR) == []
        run.cancel("0-2")
        run.end_attempt("0-2")
        assert decide(run, 3 * HOUR) == []

    @pytest.mark.parametrize(
        "config",
        [
            make_config(straggler_budget=0.0),
            make_config(straggler_budget=0.05),
            make_config(max_attempts=1),
            make_config(output=REMOTE),
            make_config(min_gain_s=2 * HOUR),
            replace(make_config(), has_multiple_sites=False),
            replace(make_config(), has_pinned_sites=True),
            replace(make_config(), outputs_staged=False),
        ],
        ids=["off", "expensive", "attempts", "remote", "gain", "one site", "pinned", "shared folder"],
    )
    def test_config_without_copies(self, config):
        assert decide(build_run(), 2 * HOUR, config) == []
        assert decide(build_run(), 2 * HOUR), "the default configuration does copy"

    def test_job_with_local_output_is_copied(self):
        assert decide(build_run(), 2 * HOUR, make_config(output=Output(Location("file:///data/out"))))

    def test_not_while_jobs_wait_for_nodes(self):
        run = build_run()
        for n in range(10, 30):
            run.submit(f"{n}-1", str(n))
        assert decide(run, 2 * HOUR, make_config(30)) == []

    def test_not_in_run_without_budget(self):
        run = build_run()
        run.add_failed_attempt_at("A", 1, "service_unavailable", "10")
        run.end_job("failed", "10")
        assert decide(run, 2 * HOUR, make_config(11))
        assert decide(run, 2 * HOUR, make_config(11, max_failures=1)) == []

    def test_not_if_cancellation_is_requested(self):
        run = build_run()
        run.request_cancel("0")
        assert decide(run, 2 * HOUR) == []

    def test_largest_gain_first_within_budget(self):
        run = PoolRun(*map(str, range(12)))
        for n in range(12):
            run.start_execution(str(n), "Slow" if n < 2 else "AB"[n % 2], f"w{n}")
            run.report(str(n), 10 + n)
        for n in range(2, 12):
            run.succeed(str(n), HOUR)
        twice = decide(run, 1.1 * HOUR, make_config(12, straggler_budget=0.2))
        assert [copy.job for copy in twice] == ["0", "1"]
        once = decide(run, 1.1 * HOUR, make_config(12, straggler_budget=0.05))
        assert [copy.job for copy in once] == ["0"]

    def test_expensive_copies_are_ended(self):
        run = build_run()
        start_copy(run, 2 * HOUR)
        assert decide(run, 5 * HOUR, make_config(straggler_budget=0.25)) == []
        (cancel,) = decide(run, 9 * HOUR, make_config(straggler_budget=0.25))
        assert cancel == Cancel("0", "0-2", "copies have used up the straggler budget (25% of the run's slot time)")

    def test_copy_without_node_is_ended(self):
        run = build_run()
        submit_copy(run, 2 * HOUR)
        (cancel,) = relax_overrides_policy(make_config())(run.state, ["0"], 3 * HOUR)
        assert (cancel.attempt_id, cancel.reason) == ("0-2", "no other node took this second copy")
        run.cancel("0-2")
        run.end_attempt("0-2")
        run.add_event("agent-0-1", kinds.AGENT_ENDED, outcome="failed", exit_code=1, failure=None, seconds=1.0)
        run.end_attempt("0-1")
        assert job_result_policy(make_config(max_attempts=1))(run.state, ["0"], 1e6)[0].result is JobStatus.FAILED, (
            "its only attempt failed"
        )


class TestMatrix:
    """Jobs of a matrix, some of which have more work than others."""

    def build_matrix_run(self, points, steps):
        """Build a run whose jobs start at sites A, B, C, … and report their steps after an hour."""
        run = PoolRun(*map(str, range(len(points))))
        run.events[0].data["points"].update({str(n): {"p": point} for n, point in enumerate(points)})
        for n, _ in enumerate(points):
            run.start_execution(str(n), "ABC"[n % 3], f"w{n}")
        run.now = HOUR
        for n, step in enumerate(steps):
            run.report(str(n), step)
        return run

    def test_points_with_more_work_are_not_slow(self):
        run = self.build_matrix_run("abcdef", (90, 90, 45, 45, 12, 12))
        assert decide(run, HOUR, make_config(6, straggler_budget=1.0)) == []

    def test_slow_job_among_equal_points(self):
        run = self.build_matrix_run("abcdef", (90, 80, 85, 88, 91, 12))
        assert [copy.job for copy in decide(run, HOUR, make_config(6, straggler_budget=1.0))] == ["5"]

    def test_slow_job_of_same_point(self):
        run = self.build_matrix_run("aaaabbbb", (90, 90, 90, 90, 12, 60, 14, 13))
        assert decide(run, HOUR, make_config(8, straggler_budget=1.0)) == [], "most of them are equally slow"
        run = self.build_matrix_run("aaaabbbb", (90, 90, 90, 90, 44, 45, 10, 46))
        assert [copy.job for copy in decide(run, HOUR, make_config(8, straggler_budget=1.0))] == ["6"]


def submit_copy(run, at):
    run.now = at
    run.add_supervisor_event(
        kinds.DECISION_MADE,
        action="submit",
        attempt="0-2",
        reason="slow",
        copy_of="0-1",
        overrides={"avoid_sites": ["Slow"]},
    )
    run.confirm("0-2")


def start_copy(run, at):
    submit_copy(run, at)
    run.start_execution("0", "A", "fast9", at, "0-2")


class TestAcceptFirstSuccess:
    def test_copy_succeeds_first(self):
        run = build_run()
        start_copy(run, 2 * HOUR)
        assert accept_first_success(run.state, ["0"], 2 * HOUR) == []
        run.end_execution("0", 3 * HOUR, "0-2")
        accept, cancel = accept_first_success(run.state, ["0"], 3 * HOUR)
        assert accept == Accept("0", "0-2", "attempt 0-2 succeeded first", "agent-0-2")
        assert cancel == Cancel("0", "0-1", "attempt 0-2 succeeded first")
        (end,) = job_result_policy(make_config())(run.state, ["0"], 3 * HOUR)
        assert (end.result, end.emitter) == (JobStatus.SUCCEEDED, "agent-0-2")

    def test_original_succeeds_first(self):
        run = build_run()
        start_copy(run, 2 * HOUR)
        run.end_execution("0", 2.5 * HOUR)
        accept, cancel = accept_first_success(run.state, ["0"], 3 * HOUR)
        assert (accept.attempt_id, cancel.attempt_id) == ("0-1", "0-2")

    def test_accepted_attempt_does_not_change(self):
        """The supervisor dies after it accepted a copy, and the next one learns that the original succeeded before."""
        run = build_run()
        start_copy(run, 2 * HOUR)
        run.end_execution("0", 3 * HOUR, "0-2")
        run.add_supervisor_event(kinds.DECISION_MADE, action="accept", attempt="0-2", reason="r")
        run.replace_supervisor()
        run.end_execution("0", 2.9 * HOUR)
        assert accept_first_success(run.state, ["0"], 3 * HOUR) == []
        (end,) = job_result_policy(make_config())(run.state, ["0"], 3 * HOUR)
        assert isinstance(end, EndJob) and end.emitter == "agent-0-2"
        run.end_job("succeeded", emitter="agent-0-2")
        assert run.job.latest_execution.attempt_id == "0-2"

    def test_single_attempt_needs_no_decision(self):
        run = build_run()
        run.end_execution("0", HOUR)
        assert accept_first_success(run.state, ["0"], HOUR) == []

    def test_live_attempt_is_ended_after_result(self):
        run = build_run()
        start_copy(run, 2 * HOUR)
        run.end_execution("0", 3 * HOUR, "0-2")
        run.add_supervisor_event(kinds.DECISION_MADE, action="accept", attempt="0-2", reason="r")
        run.end_job("succeeded", emitter="agent-0-2")
        assert [d.attempt_id for d in accept_first_success(run.state, ["0"], 3 * HOUR)] == ["0-1"]

    def test_superseded_attempt(self):
        run = build_run()
        start_copy(run, 2 * HOUR)
        run.end_execution("0", 3 * HOUR, "0-2")
        run.add_supervisor_event(kinds.DECISION_MADE, action="accept", attempt="0-2", reason="r")
        run.add_supervisor_event(
            kinds.DECISION_MADE, action="cancel", attempt="0-1", reason="attempt 0-2 succeeded first"
        )
        run.end_agent("failed", "agent-0-1", failure="terminated")
        run.end_attempt("0-1")
        failure = run.job.executions[0].failure
        assert (failure.kind, failure.detail) == ("superseded", "attempt 0-2 succeeded first")
        assert "Slow" not in run.state.stats.sites, "the site is not to blame"


class TestMoves:
    def build_slow_run(self, saved=20, step=20):
        run = build_run()
        run.save_checkpoint(saved, "agent-0-1")
        run.report("0", step)
        return run

    def test_move_with_reachable_checkpoint(self):
        (move,) = decide(self.build_slow_run(), HOUR, MOVE_CONFIG)
        assert move == Move("0", "0-1", move.reason, ("Slow",), ())
        assert move.reason == "it needs about 4 h more on slow1 at Slow, but about 48 min elsewhere"

    def test_move_without_checkpoint_needs_own_progress(self):
        run = build_run()
        assert decide(run, 3 * HOUR, MOVE_CONFIG) == [], (
            "its age alone is no reason, and a copy would write to the same storage"
        )
        run.now = HOUR
        run.report("0", 20)
        (move,) = decide(run, HOUR, MOVE_CONFIG)
        assert move.reason.endswith("about 1 h elsewhere")

    def test_fetching_execution_is_judged_by_age(self):
        run = build_run()
        agent = "agent-0-9"
        run.submit("0-9")
        run.end_attempt("0-1")
        run.add_event(agent, kinds.AGENT_STARTED, attempt="0-9", host="slow1", pid=7, site="Slow")
        run.add_event(agent, kinds.STAGE_STARTED, stage="fetch")
        run.now += 60.0
        run.add_event(agent, kinds.PROGRESS, stage="fetch", done=6, total=100, unit="bytes")
        assert decide(run, HOUR + 100.0, MOVE_CONFIG) == [], "a few bytes are not enough for an estimate"
        assert decide(run, HOUR + HOUR, MOVE_CONFIG) == []
        (move,) = decide(run, HOUR + 1.3 * HOUR, MOVE_CONFIG)
        assert move.attempt_id == "0-9"

    def test_restored_checkpoint_counts(self):
        run = build_run()
        run.add_event("agent-0-1", kinds.CHECKPOINT_RESTORED, step=40)
        run.now = HOUR
        run.report("0", 52)
        (move,) = decide(run, HOUR, MOVE_CONFIG)
        assert move.reason.endswith("about 36 min elsewhere")

    def test_not_if_unsaved_work_outweighs_gain(self):
        run = build_run()
        run.save_checkpoint(1, "agent-0-1")
        run.report("0", 46)
        assert decide(run, HOUR, MOVE_CONFIG) == []
        run.save_checkpoint(40, "agent-0-1")
        assert decide(run, HOUR, MOVE_CONFIG)

    def test_next_attempts_avoid_slow_node(self):
        run = self.build_slow_run()
        run.now = HOUR
        (move,) = decide(run, HOUR, MOVE_CONFIG)
        store_decision(run, move)
        assert decide(run, HOUR, MOVE_CONFIG) == [], "only once"
        run.end_agent("failed", "agent-0-1", failure="terminated")
        run.end_attempt("0-1")
        assert run.job.executions[0].failure.kind == "too_slow"
        assert len(run.job.counted_failures) == 0
        (retry,) = submit_policy(MOVE_CONFIG)(run.state, ["0"], HOUR)
        assert retry.overrides == Overrides(avoid_sites=("Slow",), avoid_nodes=("slow1",))
        assert find_avoided_locations(run.state, MOVE_CONFIG, HOUR) == ((), ("slow1",))

    def test_slow_node_is_avoided_from_decision_on(self):
        """If two jobs are moved at once, neither may get the node of the other."""
        run = self.build_slow_run()
        run.now = HOUR
        store_decision(run, decide(run, HOUR, MOVE_CONFIG)[0])
        assert run.job.live_executions, "it has not ended yet"
        assert find_avoided_locations(run.state, MOVE_CONFIG, HOUR) == ((), ("slow1",))
        assert find_avoided_locations(run.state, MOVE_CONFIG, 3 * HOUR) == ((), ()), "only for a while"

    def test_slow_node_is_avoided_after_requeue(self):
        run = self.build_slow_run()
        store_decision(run, decide(run, HOUR, MOVE_CONFIG)[0])
        run.end_agent("requeued", "agent-0-1")
        run.end_attempt("0-1")
        assert find_avoided_locations(run.state, MOVE_CONFIG, HOUR) == ((), ("slow1",))

    def test_second_move_avoids_site(self):
        """The next node there was slow, too."""
        run = build_run(slow_site="A")
        for attempt_id, avoids in (("0-1", ((), ("slow1",))), ("0-2", (("A",), ()))):
            run.save_checkpoint(20, f"agent-{attempt_id}")
            run.report("0", 20, attempt_id=attempt_id)
            (move,) = decide(run, run.now + HOUR, MOVE_CONFIG)
            assert (move.avoid_sites, move.avoid_nodes) == avoids
            store_decision(run, move)
            run.end_attempt(attempt_id)
            run.submit("0-2")
            run.start_execution("0", "A", "slow2", at=run.now + HOUR, attempt_id="0-2")

    @pytest.mark.parametrize("has_ended", [False, True])
    def test_lost_work_stays_within_budget(self, has_ended):
        """Twenty jobs are slow and have no checkpoint, so each move loses all of their work."""
        config = make_config(60, output=REMOTE, checkpoint=CheckpointConfig("ckpt.pt"), straggler_budget=0.05)
        run = PoolRun(*map(str, range(60)))
        for n in range(60):
            run.start_execution(str(n), "Slow" if n < 20 else "AB"[n % 2], f"w{n}")
        for n in range(20, 60):
            run.succeed(str(n), HOUR)
        for n in range(20):
            run.report(str(n), 20)
        moved = []
        for minute in range(10):
            run.now = HOUR + 60.0 * minute
            decisions = decide(run, run.now, config)
            moved += [(move.job, run.now) for move in decisions]
            for move in decisions:
                store_decision(run, move)
                if has_ended:
                    run.end_attempt(move.attempt_id, move.job)
        lost_s = sum(at for _, at in moved)
        assert 0 < lost_s <= 0.05 * (40 * HOUR + 20 * 5 * HOUR), moved

    def test_unsaved_work_is_part_of_cost(self):
        run = self.build_slow_run(saved=10, step=20)
        assert decide(run, HOUR, replace(MOVE_CONFIG, recovery=replace(MOVE_CONFIG.recovery, straggler_budget=0.05)))
        cost_share = 0.5 * HOUR / (9 * HOUR + 5 * HOUR)
        smaller = replace(MOVE_CONFIG, recovery=replace(MOVE_CONFIG.recovery, straggler_budget=cost_share * 0.9))
        assert decide(run, HOUR, smaller) == []

    def test_at_most_two_moves(self):
        run = build_run()
        for number in (1, 2, 3):
            attempt_id = f"0-{number}"
            if number > 1:
                run.submit(attempt_id)
                run.start_execution("0", "Slow", at=number * HOUR, attempt_id=attempt_id)
            run.save_checkpoint(20, f"agent-{attempt_id}")
            run.report("0", 20, attempt_id=attempt_id)
            decisions = decide(run, (number + 1) * HOUR, MOVE_CONFIG)
            assert [type(decision) for decision in decisions] == ([Move] if number < 3 else [])
            for move in decisions:
                store_decision(run, move)
                run.end_attempt(attempt_id)


def store_decision(run, decision):
    kind, data = event_from_decision(decision)
    run.add_supervisor_event(kind, decision.job, **data)


@pytest.mark.parametrize("seconds", [0.0, 1.0, HOUR])
def test_no_running_jobs(seconds):
    run = PoolRun("0")
    assert decide(run, seconds) == []
