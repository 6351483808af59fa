"""Machines and sites that are avoided."""

from __future__ import annotations

import pytest

from packtrain.engines.api import Amendment
from packtrain.supervise.decisions import Cancel, Submit, event_of
from packtrain.supervise.policies import loosen, start
from packtrain.supervise.policies.site_avoidance import avoided
from tests.support.event_builder import Story
from tests.support.policy_runs import HOUR, names, pool


class TestAvoiding:
    def story(self):
        told = Story("0", "1", "2")
        told.now = 1000.0
        told.succeed_at("B", 1, "2", host="b1")
        return told

    def test_the_machine_that_failed_for_a_while(self):
        story = self.story()
        story.fail_at("A", 1, "gpu_unusable", host="slot1@a1")
        assert avoided(story.state, pool(), 1000.0 + HOUR - 1) == ((), ("a1",))
        assert avoided(story.state, pool(), 1000.0 + HOUR) == ((), ())

    def test_a_site_where_two_machines_failed(self):
        story = self.story()
        story.fail_at("A", 1, "gpu_unusable", host="a1")
        story.fail_at("A", 1, "host_unknown", "1", host="a2")
        assert avoided(story.state, pool(), 1001.0) == (("A",), ()), "its machines need not be named"
        assert avoided(story.state, pool(), 1001.0 + HOUR)[0] == (), "by then they weigh half"

    def test_not_a_site_where_more_ended_well(self):
        story = self.story()
        story.fail_at("B", 1, "gpu_unusable", host="b8")
        story.fail_at("B", 1, "gpu_unusable", "1", host="b9")
        for number in (2, 3):
            story.succeed_at("B", number, "2", host="b1")
        story.succeed_at("C", 4, "2", host="c1")
        assert avoided(story.state, pool(), 1001.0) == ((), ("b8", "b9"))

    @pytest.mark.parametrize(
        "kind", ["step_failed", "service_unavailable", "evicted", "object_missing", "out_of_memory", "delivery_refused"]
    )
    def test_not_for_what_is_no_fault_of_the_place(self, kind):
        story = self.story()
        story.fail_at("A", 1, kind, host="a1")
        story.fail_at("A", 1, kind, "1", host="a2")
        assert avoided(story.state, pool(), 1001.0) == ((), ())

    def broken_image(self):
        """At two sites of three; at the third one something else happened."""
        story = Story(*names(5))
        for number, site in enumerate("AABB"):
            story.fail_at(site, 1, "container_failed", str(number), host=f"w{number}", detail="no such image")
        story.fail_at("C", 1, "service_unavailable", "4", host="c1")
        return story

    def test_not_for_what_is_the_same_everywhere(self):
        assert avoided(self.broken_image().state, pool(5), 1.0) == ((), ())

    def test_but_if_another_job_has_got_past_it(self):
        story = self.broken_image()
        story.now = 1.0
        story.submit("4-2", "4")
        story.say("agent-4-2", "attempt.started", "4", decision="4-2", host="c1", pid=7, site="C")
        assert avoided(story.state, pool(5), 2.0) == ((), ())
        assert avoided(story.state, pool(5), 60.0) == (("A", "B"), ()), "it has outlived the others"

    def test_the_pools_time_limit_speaks_of_a_slow_machine(self):
        story = self.story()
        story.fail_at("A", 1, "time_limit", host="a1")
        assert avoided(story.state, pool(), 1001.0) == ((), ("a1",))

    def test_never_every_place_that_is_known(self):
        story = Story("0", "1")
        story.fail_at("A", 1, "gpu_unusable", host="a1")
        story.fail_at("A", 1, "gpu_unusable", "1", host="a2")
        assert avoided(story.state, pool(), 0.0) == ((), ())

    def test_never_on_one_machine(self):
        story = self.story()
        story.fail_at("A", 1, "gpu_unusable", host="a1")
        assert avoided(story.state, pool(many_sites=False), 1001.0) == ((), ())

    def test_what_is_asked_for_next_says_so(self):
        story = self.story()
        story.fail_at("A", 1, "gpu_unusable", host="a1")
        (again,) = start(pool())(story.state, ["0"], 1100.0)
        assert again.amendment == Amendment(avoid_machines=("a1",))
        assert event_of(again)[1]["amendment"] == {"avoid_machines": ["a1"]}

    def test_waiting_too_long_for_another_place_it_is_asked_for_as_planned(self):
        story = self.story()
        story.fail_at("A", 1, "gpu_unusable", host="a1")
        story.supervise("decided", action="submit", id="0-2", reason="r", amendment={"avoid_machines": ["a1"]})
        story.confirm("0-2")
        assert loosen(pool())(story.state, ["0"], 1000.0 + HOUR / 6 - 1) == []
        (cancel,) = loosen(pool())(story.state, ["0"], 1000.0 + HOUR / 6)
        assert isinstance(cancel, Cancel) and cancel.target == "0-2"
        story.cancel("0-2")
        story.gone("0-2")
        (again,) = start(pool())(story.state, ["0"], 1100.0)
        assert again == Submit("0", "0-3", again.reason)
        assert len(story.job.spent) == 1, "waiting costs no attempt"

    def test_where_jobs_wait_for_hours_it_is_waited_for_another_place_as_long(self):
        """In a busy pool every wait is longer than ten minutes."""
        story = self.story()
        story.submit("1-1", "1")
        story.now += 2 * HOUR
        story.placed(1, "1-1", "1")
        story.fail_at("A", 1, "gpu_unusable", host="a1")
        story.supervise("decided", action="submit", id="0-2", reason="r", amendment={"avoid_machines": ["a1"]})
        story.confirm("0-2")
        assert loosen(pool())(story.state, ["0"], story.now + 3 * HOUR) == []
        assert loosen(pool())(story.state, ["0"], story.now + 4 * HOUR)

    def test_more_memory_and_disk_are_kept_however_long_that_takes(self):
        story = self.story()
        story.fail_at("A", 1, "out_of_memory", host="a1")
        story.fail_at("A", 2, "disk_full", host="a2")
        (again,) = start(pool())(story.state, ["0"], 1100.0)
        assert (again.amendment.memory, again.amendment.disk) == (2.0, 2.0)
        given = event_of(again)[1]["amendment"]
        story.supervise("decided", action="submit", id="0-3", reason="r", amendment=given)
        story.confirm("0-3")
        (cancel,) = loosen(pool())(story.state, ["0"], 1e6)
        story.cancel(cancel.target)
        story.gone(cancel.target)
        (again,) = start(pool())(story.state, ["0"], 1e6)
        assert again.amendment == Amendment(memory=2.0, disk=2.0), "only the places are forgotten"
        story.supervise("decided", action="submit", id="0-4", reason="r", amendment=event_of(again)[1]["amendment"])
        story.confirm("0-4")
        assert loosen(pool())(story.state, ["0"], 1e9) == []

    def test_one_that_runs_or_is_as_planned_waits_for_nothing(self):
        story = self.story()
        story.submit("0-1")
        story.supervise("decided", "1", action="submit", id="1-1", reason="r", amendment={"avoid_machines": ["a1"]})
        story.start("agent-1", "1-1", "1")
        assert loosen(pool(3))(story.state, ["0", "1"], 1e9) == []
