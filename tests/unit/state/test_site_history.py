"""The history of sites across runs."""

from __future__ import annotations

import pytest

from packtrain.engines.htcondor.run_settings import RunSettings, SitePreferences
from packtrain.events import kinds
from packtrain.plan import HostSpeed, Input, Job, Limits, Location, RemoteFile, Resources
from packtrain.state.site_history import (
    HALF_LIFE_S,
    MAX_AGE_S,
    SiteHistory,
    SiteObservation,
    compute_dataset_id,
    fetch_bytes_per_s,
    observations_from_job,
    weighted_median,
)
from packtrain.views.site_table import build_site_rows, sparkline
from tests.support.event_builder import RunBuilder

DAY = 86400.0
NOW = 100 * DAY


def observation(site="A", at=NOW, key="", run="r", **more):
    return SiteObservation(run, key or f"{site}{at}{more}", at, "htcondor", site, more.pop("node", f"{site}1"), **more)


def fault(site, at=NOW, number=1, **more):
    return observation(site, at, f"{site}{at}{number}", failure_kind="gpu_unusable", is_site_fault=True, **more)


def history_of(*observations, now=NOW):
    return SiteHistory.from_observations(observations, now)


class TestSiteStats:
    def test_failing_site_is_avoided(self):
        history = history_of(fault("A", number=1), fault("A", number=2), observation("B"))
        assert history.avoided_sites == {"A": "100% of the executions there failed (gpu_unusable 2 times)"}
        assert history.avoided_nodes == {}, "its nodes are not listed as well"

    def test_site_with_more_successes_is_not_avoided(self):
        good = [observation("A", key=f"good{n}") for n in range(3)]
        assert history_of(fault("A", number=1), fault("A", number=2), *good, observation("B")).avoided_sites == {}

    def test_one_failure_or_only_site_is_not_avoided(self):
        assert history_of(fault("A"), observation("B")).avoided_sites == {}
        assert history_of(fault("A", number=1), fault("A", number=2)).avoided_sites == {}

    def test_evictions_do_not_count(self):
        evictions = [observation("A", key=f"e{n}", failure_kind="evicted") for n in range(9)]
        site = history_of(*evictions, observation("B")).sites["A"]
        assert (site.fault_weight, site.success_weight, site.avoid_reason, site.score) == (0, 0, "", 1.0)

    def test_common_faults_do_not_count(self):
        """A run with a broken image shows nothing about the sites."""
        broken = [fault(site, number=n, run="broken") for site in "AB" for n in (1, 2)]
        assert history_of(*broken, observation("C")).avoided_sites == {}
        assert set(history_of(*broken, observation("C"), observation("C", key="x", run="broken")).avoided_sites) == {
            "A",
            "B",
        }

    def test_only_site_faults_count(self):
        run = RunBuilder()
        run.add_failed_attempt_at("A", 1, "out_of_memory")
        run.add_failed_attempt_at("A", 2, "gpu_unusable")
        assert [o.is_site_fault for o in observations_from_job("r", run.job, "htcondor")] == [False, True]

    def test_faults_lose_weight(self):
        failed = [fault("A", number=1), fault("A", number=2), observation("B")]
        assert history_of(*failed, now=NOW + HALF_LIFE_S).sites["A"].fault_weight == pytest.approx(1.0)
        assert history_of(*failed, now=NOW + HALF_LIFE_S).avoided_sites == {}
        assert history_of(*failed, now=NOW + MAX_AGE_S).observations == ()

    def test_slowdown_loses_weight(self):
        """A site was slow for weeks and is fast now."""
        usual = [observation("B", key=f"b{n}", run="new", steps_s=100.0) for n in range(9)]
        old = NOW - 4 * HALF_LIFE_S
        usual += [observation("B", at=old, key=f"o{n}", run="old", steps_s=100.0) for n in range(20)]
        slow = [observation("A", at=old, key=f"s{n}", run="old", steps_s=300.0) for n in range(9)]
        fast = [observation("A", key=f"q{n}", run="new", steps_s=100.0) for n in range(4)]
        assert history_of(*usual, *slow, now=old).sites["A"].slowdown == pytest.approx(3.0)
        assert history_of(*usual, *slow, *fast).sites["A"].slowdown == pytest.approx(1.0)

    def test_weighted_median(self):
        assert weighted_median([]) is None
        assert weighted_median([(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)]) == 2.0
        assert weighted_median([(1.0, 0.5), (2.0, 0.5)]) == 1.5
        assert weighted_median([(1.0, 1.0), (5.0, 0.1), (6.0, 0.1)]) == 1.0

    def test_slow_node_at_fast_site(self):
        fast = [observation("A", key=f"q{n}", node=f"a{n}", steps_s=100.0) for n in range(9)]
        slow = [observation("A", key=f"s{n}", node="slow1", steps_s=300.0) for n in range(3)]
        history = history_of(*fast, *slow)
        assert history.avoided_nodes == {"slow1": "trainings take 3.0 times as long there"}
        assert history.avoided_sites == {} and history.nodes["slow1"].score == pytest.approx(1 / 3)

    def test_only_same_run_is_compared(self):
        long = [observation("A", key=f"l{n}", run="long", steps_s=9000.0) for n in range(3)]
        short = [observation("B", key=f"s{n}", run="short", steps_s=9.0) for n in range(3)]
        history = history_of(*long, *short)
        assert [history.sites[name].slowdown for name in "AB"] == [1.0, 1.0]

    def test_only_same_point_is_compared(self):
        long = [observation("A", key=f"l{n}", point="epochs=90", steps_s=9000.0) for n in range(3)]
        short = [observation("B", key=f"s{n}", point="epochs=1", steps_s=100.0) for n in range(3)]
        history = history_of(*long, *short)
        assert [history.sites[name].slowdown for name in "AB"] == [1.0, 1.0]

    def test_two_trainings_are_not_enough(self):
        assert history_of(observation("A", steps_s=9.0), observation("B", steps_s=900.0)).sites["B"].slowdown is None

    def test_warm_cache(self):
        history = history_of(
            observation("A", dataset_id="d", fetched_bytes=7),
            observation("B", dataset_id="e", fetched_bytes=7),
            observation("C", dataset_id="d"),
        )
        assert [history.has_warm_cache(site, "d") for site in "ABCX"] == [True, False, False, False]
        assert not history.has_warm_cache("A", "")
        assert not history_of(observation("A", NOW - 3 * DAY, dataset_id="d", fetched_bytes=7)).has_warm_cache("A", "d")

    def test_filter_by_engine(self):
        here = SiteObservation("r", "k", NOW, "local", "local", "me")
        assert [
            o.site for o in SiteHistory.from_observations([here, observation("A")], NOW, "htcondor").observations
        ] == ["A"]


class TestObservations:
    def build_run(self):
        run = RunBuilder()
        run.now = 5.0
        run.submit()
        run.start_execution(site="A")
        run.start_agent("agent-1")
        run.add_stage("fetch", duration_s=4.0, bytes=400, source="https://cache.example.org:8443/ns")
        run.add_stage("steps", duration_s=50.0)
        return run

    def observations_of(self, run):
        return list(observations_from_job("run-1", run.job, "htcondor", "d"))

    def test_succeeded_execution(self):
        run = self.build_run()
        assert self.observations_of(run) == [], "only when it has ended"
        run.end_agent()
        run.end_attempt()
        (observation,) = self.observations_of(run)
        assert (observation.site, observation.node, observation.failure_kind, observation.is_site_fault) == (
            "here",
            "w9",
            "",
            False,
        )
        assert (
            observation.steps_s,
            observation.source_host,
            fetch_bytes_per_s(observation),
            observation.dataset_id,
        ) == (
            50.0,
            "cache.example.org",
            100.0,
            "d",
        )
        assert SiteObservation.from_data({**observation.to_data(), "unknown": 1}) == observation

    def test_site_fault(self):
        run = self.build_run()
        run.end_agent("failed", failure="gpu_unusable")
        run.end_attempt()
        (observation,) = self.observations_of(run)
        assert (observation.failure_kind, observation.is_site_fault, observation.steps_s) == ("gpu_unusable", True, 0.0)

    def test_cancelled_execution_counts_only_if_moved(self):
        run = self.build_run()
        run.cancel()
        run.end_agent("failed", failure="terminated")
        run.end_attempt()
        assert self.observations_of(run) == []
        run.add_supervisor_event(kinds.DECISION_MADE, action="move", attempt="0-1", reason="slow", avoid_nodes=["w9"])
        (observation,) = self.observations_of(run)
        assert (observation.failure_kind, observation.is_site_fault) == ("too_slow", True)

    def test_execution_that_never_ran(self):
        run = RunBuilder()
        run.submit()
        run.end_attempt()
        assert self.observations_of(run) == []


class TestSpeeds:
    def test_speeds_overall_and_by_site(self):
        at_a = [
            observation("A", key=f"{n}", fetched_bytes=n * 10**9, fetch_s=10.0, source_host="one.org")
            for n in (1, 2, 9)
        ]
        at_b = observation("B", fetched_bytes=10**9, fetch_s=100.0, source_host="two.org")
        assert history_of(*at_a, at_b).source_speeds() == (
            HostSpeed("one.org", 200_000_000),
            HostSpeed("two.org", 10_000_000),
            HostSpeed("one.org", 200_000_000, "A"),
            HostSpeed("two.org", 10_000_000, "B"),
        )

    def test_number_of_speeds_is_limited(self):
        many = [
            observation(f"S{n}", NOW - n, fetched_bytes=10**9, fetch_s=1.0, source_host=f"h{n}.org") for n in range(99)
        ]
        speeds = history_of(*many).source_speeds()
        assert len(speeds) == 60 and {speed.host for speed in speeds} == {f"h{n}.org" for n in range(30)}

    def test_small_transfers_and_single_host_are_ignored(self):
        large = observation("A", fetched_bytes=10**9, fetch_s=10.0, source_host="one.org")
        small = observation("A", key="s", fetched_bytes=9_999_999, fetch_s=0.1, source_host="two.org")
        unknown = observation("A", key="u", fetched_bytes=10**9, fetch_s=1.0)
        assert history_of(large, small, unknown).source_speeds() == ()


def test_dataset_id():
    def job(*urls):
        files = tuple(RemoteFile(url, (Location(url),)) for url in urls)
        return Job("0", (), Resources(), Limits(), (), inputs=(Input("", "input", files),) if urls else ())

    assert (
        compute_dataset_id(job("a:/x", "a:/y"))
        == compute_dataset_id(job("a:/y", "a:/x"))
        != compute_dataset_id(job("a:/x"))
    )
    assert compute_dataset_id(job()) == ""


class TestSitePreferences:
    HISTORY = history_of(
        fault("Bad", number=1),
        fault("Bad", number=2),
        *[observation("Fast", key=f"f{n}", steps_s=80.0, dataset_id="d", fetched_bytes=1) for n in range(3)],
        *[observation("Slow", key=f"s{n}", steps_s=160.0) for n in range(4)],
    )

    def test_better_sites_have_higher_ranks(self):
        preferences = SitePreferences.from_history(self.HISTORY, "d")
        assert preferences.ranks == {"Bad": -67, "Fast": 110}, (
            "twice as fast with a warm cache; typical sites have no rank"
        )
        assert list(preferences.avoid_sites) == ["Bad"]

    def test_preferences_are_stored_in_run_settings(self, tmp_path):
        settings = RunSettings(project="p", site_preferences=SitePreferences.from_history(self.HISTORY, "d"))
        settings.write(tmp_path / "run_settings.json")
        assert RunSettings.read(tmp_path / "run_settings.json") == settings

    def test_run_settings_without_preferences(self, tmp_path):
        (tmp_path / "run_settings.json").write_text('{"project": "p"}')
        assert RunSettings.read(tmp_path / "run_settings.json").site_preferences == SitePreferences()


class TestRows:
    def test_rows_are_sorted_by_score(self):
        history = history_of(
            fault("A", number=1), fault("A", NOW - 1, number=2), observation("B", fetched_bytes=8, fetch_s=2.0)
        )
        rows = build_site_rows(history)
        assert [(row.name, row.outcome_sparkline, row.failure_rate) for row in rows] == [
            ("B", "█", 0.0),
            ("A", "▁▁", 1.0),
        ]
        assert rows[0].bytes_per_s == 4.0 and rows[0].speed_sparkline == "█" and rows[1].avoid_reason

    @pytest.mark.parametrize(("values", "line"), [([], ""), ([0.0], ""), ([1.0, 2.0, 4.0, 8.0], "▂▃▅█")])
    def test_sparklines(self, values, line):
        assert sparkline(values) == line
