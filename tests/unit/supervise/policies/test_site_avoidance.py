"""The sites and nodes that a run avoids."""

from __future__ import annotations

import pytest

from packtrain.engines.api import Overrides
from packtrain.events import kinds
from packtrain.supervise.decisions import Cancel, Submit, event_from_decision
from packtrain.supervise.policies import relax_overrides_policy, submit_policy
from packtrain.supervise.policies.site_avoidance import find_avoided_locations
from tests.support.event_builder import RunBuilder
from tests.support.policy_runs import HOUR_S, job_ids, make_policy_config


class TestSiteAvoidance:
    def build_run(self):
        run = RunBuilder("0", "1", "2")
        run.now = 1000.0
        run.add_succeeded_attempt_at("B", 1, "2", host="b1")
        return run

    def test_failed_node_is_avoided_for_a_while(self):
        run = self.build_run()
        run.add_failed_attempt_at("A", 1, "gpu_unusable", host="slot1@a1")
        assert find_avoided_locations(run.state, make_policy_config(), 1000.0 + HOUR_S - 1) == ((), ("a1",))
        assert find_avoided_locations(run.state, make_policy_config(), 1000.0 + HOUR_S) == ((), ())

    def test_site_with_two_failed_nodes(self):
        run = self.build_run()
        run.add_failed_attempt_at("A", 1, "gpu_unusable", host="a1")
        run.add_failed_attempt_at("A", 1, "host_unknown", "1", host="a2")
        assert find_avoided_locations(run.state, make_policy_config(), 1001.0) == (("A",), ()), (
            "its nodes are not listed as well"
        )
        assert find_avoided_locations(run.state, make_policy_config(), 1001.0 + HOUR_S)[0] == (), (
            "the faults weigh half"
        )

    def test_site_with_more_successes_is_not_avoided(self):
        run = self.build_run()
        run.add_failed_attempt_at("B", 1, "gpu_unusable", host="b8")
        run.add_failed_attempt_at("B", 1, "gpu_unusable", "1", host="b9")
        for number in (2, 3):
            run.add_succeeded_attempt_at("B", number, "2", host="b1")
        run.add_succeeded_attempt_at("C", 4, "2", host="c1")
        assert find_avoided_locations(run.state, make_policy_config(), 1001.0) == ((), ("b8", "b9"))

    @pytest.mark.parametrize(
        "kind", ["step_failed", "service_unavailable", "evicted", "object_missing", "out_of_memory", "transfer_refused"]
    )
    def test_only_site_faults_count(self, kind):
        run = self.build_run()
        run.add_failed_attempt_at("A", 1, kind, host="a1")
        run.add_failed_attempt_at("A", 1, kind, "1", host="a2")
        assert find_avoided_locations(run.state, make_policy_config(), 1001.0) == ((), ())

    def build_broken_image(self):
        """Build a run that fails with a broken image at two sites, and with something else at a third one."""
        run = RunBuilder(*job_ids(5))
        for number, site in enumerate("AABB"):
            run.add_failed_attempt_at(
                site, 1, "container_failed", str(number), host=f"w{number}", detail="no such image"
            )
        run.add_failed_attempt_at("C", 1, "service_unavailable", "4", host="c1")
        return run

    def test_common_faults_do_not_count(self):
        assert find_avoided_locations(self.build_broken_image().state, make_policy_config(5), 1.0) == ((), ())

    def test_common_fault_disproved_by_longer_execution(self):
        run = self.build_broken_image()
        run.now = 1.0
        run.submit("4-2", "4")
        run.add_event("agent-4-2", "agent.started", "4", attempt="4-2", host="c1", pid=7, site="C")
        assert find_avoided_locations(run.state, make_policy_config(5), 2.0) == ((), ())
        assert find_avoided_locations(run.state, make_policy_config(5), 60.0) == (("A", "B"), ()), (
            "it has run longer than the failed ones"
        )

    def test_pool_time_limit_counts_as_slow_node(self):
        run = self.build_run()
        run.add_failed_attempt_at("A", 1, "pool_time_limit", host="a1")
        assert find_avoided_locations(run.state, make_policy_config(), 1001.0) == ((), ("a1",))

    def test_not_all_sites_are_avoided(self):
        run = RunBuilder("0", "1")
        run.add_failed_attempt_at("A", 1, "gpu_unusable", host="a1")
        run.add_failed_attempt_at("A", 1, "gpu_unusable", "1", host="a2")
        assert find_avoided_locations(run.state, make_policy_config(), 0.0) == ((), ())

    def test_nothing_is_avoided_on_single_site(self):
        run = self.build_run()
        run.add_failed_attempt_at("A", 1, "gpu_unusable", host="a1")
        assert find_avoided_locations(run.state, make_policy_config(has_multiple_sites=False), 1001.0) == ((), ())

    def test_next_attempt_avoids_node(self):
        run = self.build_run()
        run.add_failed_attempt_at("A", 1, "gpu_unusable", host="a1")
        (retry,) = submit_policy(make_policy_config())(run.state, ["0"], 1100.0)
        assert retry.overrides == Overrides(avoid_nodes=("a1",))
        assert event_from_decision(retry)[1]["overrides"] == {"avoid_nodes": ["a1"]}

    def test_restrictions_are_dropped_after_long_wait(self):
        run = self.build_run()
        run.add_failed_attempt_at("A", 1, "gpu_unusable", host="a1")
        run.add_supervisor_event(
            kinds.DECISION_MADE, action="submit", attempt="0-2", reason="r", overrides={"avoid_nodes": ["a1"]}
        )
        run.confirm("0-2")
        assert relax_overrides_policy(make_policy_config())(run.state, ["0"], 1000.0 + HOUR_S / 6 - 1) == []
        (cancel,) = relax_overrides_policy(make_policy_config())(run.state, ["0"], 1000.0 + HOUR_S / 6)
        assert isinstance(cancel, Cancel) and cancel.attempt_id == "0-2"
        run.cancel("0-2")
        run.end_attempt("0-2")
        (retry,) = submit_policy(make_policy_config())(run.state, ["0"], 1100.0)
        assert retry == Submit("0", "0-3", retry.reason)
        assert len(run.job.counted_failures) == 1, "waiting does not count as a failure"

    def test_wait_follows_median_queue_time(self):
        """In a busy pool every wait is long."""
        run = self.build_run()
        run.submit("1-1", "1")
        run.now += 2 * HOUR_S
        run.start_execution(1, "1-1", "1")
        run.add_failed_attempt_at("A", 1, "gpu_unusable", host="a1")
        run.add_supervisor_event(
            kinds.DECISION_MADE, action="submit", attempt="0-2", reason="r", overrides={"avoid_nodes": ["a1"]}
        )
        run.confirm("0-2")
        assert relax_overrides_policy(make_policy_config())(run.state, ["0"], run.now + 3 * HOUR_S) == []
        assert relax_overrides_policy(make_policy_config())(run.state, ["0"], run.now + 4 * HOUR_S)

    def test_resources_are_kept_when_restrictions_are_dropped(self):
        run = self.build_run()
        run.add_failed_attempt_at("A", 1, "out_of_memory", host="a1")
        run.add_failed_attempt_at("A", 2, "disk_full", host="a2")
        (retry,) = submit_policy(make_policy_config())(run.state, ["0"], 1100.0)
        assert (retry.overrides.memory_factor, retry.overrides.disk_factor) == (2.0, 2.0)
        overrides = event_from_decision(retry)[1]["overrides"]
        run.add_supervisor_event(kinds.DECISION_MADE, action="submit", attempt="0-3", reason="r", overrides=overrides)
        run.confirm("0-3")
        (cancel,) = relax_overrides_policy(make_policy_config())(run.state, ["0"], 1e6)
        run.cancel(cancel.attempt_id)
        run.end_attempt(cancel.attempt_id)
        (retry,) = submit_policy(make_policy_config())(run.state, ["0"], 1e6)
        assert retry.overrides == Overrides(memory_factor=2.0, disk_factor=2.0), "only the restrictions are dropped"
        run.add_supervisor_event(
            kinds.DECISION_MADE,
            action="submit",
            attempt="0-4",
            reason="r",
            overrides=event_from_decision(retry)[1]["overrides"],
        )
        run.confirm("0-4")
        assert relax_overrides_policy(make_policy_config())(run.state, ["0"], 1e9) == []

    def test_running_or_unrestricted_attempts_are_kept(self):
        run = self.build_run()
        run.submit("0-1")
        run.add_supervisor_event(
            kinds.DECISION_MADE, "1", action="submit", attempt="1-1", reason="r", overrides={"avoid_nodes": ["a1"]}
        )
        run.start_agent("agent-1", "1-1", "1")
        assert relax_overrides_policy(make_policy_config(3))(run.state, ["0", "1"], 1e9) == []
