"""Machines and sites that are avoided."""

from __future__ import annotations

import pytest

from packtrain.engines.api import Overrides
from packtrain.events import kinds
from packtrain.supervise.decisions import Cancel, Submit, event_from_decision
from packtrain.supervise.policies import relax_overrides_policy, submit_policy
from packtrain.supervise.policies.site_avoidance import find_avoided_locations
from tests.support.event_builder import RunBuilder
from tests.support.policy_runs import HOUR_S, job_ids, make_policy_config


class TestAvoiding:
    def story(self):
        told = RunBuilder("0", "1", "2")
        told.now = 1000.0
        told.add_succeeded_attempt_at("B", 1, "2", host="b1")
        return told

    def test_the_machine_that_failed_for_a_while(self):
        story = self.story()
        story.add_failed_attempt_at("A", 1, "gpu_unusable", host="slot1@a1")
        assert find_avoided_locations(story.state, make_policy_config(), 1000.0 + HOUR_S - 1) == ((), ("a1",))
        assert find_avoided_locations(story.state, make_policy_config(), 1000.0 + HOUR_S) == ((), ())

    def test_a_site_where_two_machines_failed(self):
        story = self.story()
        story.add_failed_attempt_at("A", 1, "gpu_unusable", host="a1")
        story.add_failed_attempt_at("A", 1, "host_unknown", "1", host="a2")
        assert find_avoided_locations(story.state, make_policy_config(), 1001.0) == (("A",), ()), (
            "its machines need not be named"
        )
        assert find_avoided_locations(story.state, make_policy_config(), 1001.0 + HOUR_S)[0] == (), (
            "by then they weigh half"
        )

    def test_not_a_site_where_more_ended_well(self):
        story = self.story()
        story.add_failed_attempt_at("B", 1, "gpu_unusable", host="b8")
        story.add_failed_attempt_at("B", 1, "gpu_unusable", "1", host="b9")
        for number in (2, 3):
            story.add_succeeded_attempt_at("B", number, "2", host="b1")
        story.add_succeeded_attempt_at("C", 4, "2", host="c1")
        assert find_avoided_locations(story.state, make_policy_config(), 1001.0) == ((), ("b8", "b9"))

    @pytest.mark.parametrize(
        "kind", ["step_failed", "service_unavailable", "evicted", "object_missing", "out_of_memory", "transfer_refused"]
    )
    def test_not_for_what_is_no_fault_of_the_place(self, kind):
        story = self.story()
        story.add_failed_attempt_at("A", 1, kind, host="a1")
        story.add_failed_attempt_at("A", 1, kind, "1", host="a2")
        assert find_avoided_locations(story.state, make_policy_config(), 1001.0) == ((), ())

    def broken_image(self):
        """At two sites of three; at the third one something else happened."""
        story = RunBuilder(*job_ids(5))
        for number, site in enumerate("AABB"):
            story.add_failed_attempt_at(
                site, 1, "container_failed", str(number), host=f"w{number}", detail="no such image"
            )
        story.add_failed_attempt_at("C", 1, "service_unavailable", "4", host="c1")
        return story

    def test_not_for_what_is_the_same_everywhere(self):
        assert find_avoided_locations(self.broken_image().state, make_policy_config(5), 1.0) == ((), ())

    def test_but_if_another_job_has_got_past_it(self):
        story = self.broken_image()
        story.now = 1.0
        story.submit("4-2", "4")
        story.add_event("agent-4-2", "agent.started", "4", attempt="4-2", host="c1", pid=7, site="C")
        assert find_avoided_locations(story.state, make_policy_config(5), 2.0) == ((), ())
        assert find_avoided_locations(story.state, make_policy_config(5), 60.0) == (("A", "B"), ()), (
            "it has outlived the others"
        )

    def test_the_pools_time_limit_speaks_of_a_slow_machine(self):
        story = self.story()
        story.add_failed_attempt_at("A", 1, "pool_time_limit", host="a1")
        assert find_avoided_locations(story.state, make_policy_config(), 1001.0) == ((), ("a1",))

    def test_never_every_place_that_is_known(self):
        story = RunBuilder("0", "1")
        story.add_failed_attempt_at("A", 1, "gpu_unusable", host="a1")
        story.add_failed_attempt_at("A", 1, "gpu_unusable", "1", host="a2")
        assert find_avoided_locations(story.state, make_policy_config(), 0.0) == ((), ())

    def test_never_on_one_machine(self):
        story = self.story()
        story.add_failed_attempt_at("A", 1, "gpu_unusable", host="a1")
        assert find_avoided_locations(story.state, make_policy_config(has_multiple_sites=False), 1001.0) == ((), ())

    def test_what_is_asked_for_next_says_so(self):
        story = self.story()
        story.add_failed_attempt_at("A", 1, "gpu_unusable", host="a1")
        (again,) = submit_policy(make_policy_config())(story.state, ["0"], 1100.0)
        assert again.overrides == Overrides(avoid_nodes=("a1",))
        assert event_from_decision(again)[1]["overrides"] == {"avoid_nodes": ["a1"]}

    def test_waiting_too_long_for_another_place_it_is_asked_for_as_planned(self):
        story = self.story()
        story.add_failed_attempt_at("A", 1, "gpu_unusable", host="a1")
        story.add_supervisor_event(
            kinds.DECISION_MADE, action="submit", attempt="0-2", reason="r", overrides={"avoid_nodes": ["a1"]}
        )
        story.confirm("0-2")
        assert relax_overrides_policy(make_policy_config())(story.state, ["0"], 1000.0 + HOUR_S / 6 - 1) == []
        (cancel,) = relax_overrides_policy(make_policy_config())(story.state, ["0"], 1000.0 + HOUR_S / 6)
        assert isinstance(cancel, Cancel) and cancel.attempt_id == "0-2"
        story.cancel("0-2")
        story.end_attempt("0-2")
        (again,) = submit_policy(make_policy_config())(story.state, ["0"], 1100.0)
        assert again == Submit("0", "0-3", again.reason)
        assert len(story.job.counted_failures) == 1, "waiting costs no attempt"

    def test_where_jobs_wait_for_hours_it_is_waited_for_another_place_as_long(self):
        """In a busy pool every wait is longer than ten minutes."""
        story = self.story()
        story.submit("1-1", "1")
        story.now += 2 * HOUR_S
        story.place(1, "1-1", "1")
        story.add_failed_attempt_at("A", 1, "gpu_unusable", host="a1")
        story.add_supervisor_event(
            kinds.DECISION_MADE, action="submit", attempt="0-2", reason="r", overrides={"avoid_nodes": ["a1"]}
        )
        story.confirm("0-2")
        assert relax_overrides_policy(make_policy_config())(story.state, ["0"], story.now + 3 * HOUR_S) == []
        assert relax_overrides_policy(make_policy_config())(story.state, ["0"], story.now + 4 * HOUR_S)

    def test_more_memory_and_disk_are_kept_however_long_that_takes(self):
        story = self.story()
        story.add_failed_attempt_at("A", 1, "out_of_memory", host="a1")
        story.add_failed_attempt_at("A", 2, "disk_full", host="a2")
        (again,) = submit_policy(make_policy_config())(story.state, ["0"], 1100.0)
        assert (again.overrides.memory_factor, again.overrides.disk_factor) == (2.0, 2.0)
        given = event_from_decision(again)[1]["overrides"]
        story.add_supervisor_event(kinds.DECISION_MADE, action="submit", attempt="0-3", reason="r", overrides=given)
        story.confirm("0-3")
        (cancel,) = relax_overrides_policy(make_policy_config())(story.state, ["0"], 1e6)
        story.cancel(cancel.attempt_id)
        story.end_attempt(cancel.attempt_id)
        (again,) = submit_policy(make_policy_config())(story.state, ["0"], 1e6)
        assert again.overrides == Overrides(memory_factor=2.0, disk_factor=2.0), "only the places are forgotten"
        story.add_supervisor_event(
            kinds.DECISION_MADE,
            action="submit",
            attempt="0-4",
            reason="r",
            overrides=event_from_decision(again)[1]["overrides"],
        )
        story.confirm("0-4")
        assert relax_overrides_policy(make_policy_config())(story.state, ["0"], 1e9) == []

    def test_one_that_runs_or_is_as_planned_waits_for_nothing(self):
        story = self.story()
        story.submit("0-1")
        story.add_supervisor_event(
            kinds.DECISION_MADE, "1", action="submit", attempt="1-1", reason="r", overrides={"avoid_nodes": ["a1"]}
        )
        story.start_agent("agent-1", "1-1", "1")
        assert relax_overrides_policy(make_policy_config(3))(story.state, ["0", "1"], 1e9) == []
