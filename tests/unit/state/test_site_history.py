"""What is learned of places over runs: failures and slowness, less as time goes by."""

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


def visit(site="A", at=NOW, key="", run="r", **more):
    return SiteObservation(run, key or f"{site}{at}{more}", at, "htcondor", site, more.pop("node", f"{site}1"), **more)


def bad(site, at=NOW, number=1, **more):
    return visit(site, at, f"{site}{at}{number}", failure_kind="gpu_unusable", is_site_fault=True, **more)


def known(*visits, now=NOW):
    return SiteHistory.from_observations(visits, now)


class TestStandings:
    def test_a_site_where_attempts_fail_is_avoided_with_a_reason(self):
        found = known(bad("A", number=1), bad("A", number=2), visit("B"))
        assert found.avoided_sites == {"A": "100% of the executions there failed (gpu_unusable 2 times)"}
        assert found.avoided_nodes == {}, "its machines need not be named"

    def test_not_if_more_end_well_there(self):
        good = [visit("A", key=f"good{n}") for n in range(3)]
        assert known(bad("A", number=1), bad("A", number=2), *good, visit("B")).avoided_sites == {}

    def test_nor_for_one_failure_nor_if_there_is_no_other_place(self):
        assert known(bad("A"), visit("B")).avoided_sites == {}
        assert known(bad("A", number=1), bad("A", number=2)).avoided_sites == {}

    def test_failures_that_are_nobodys_fault_do_not_count(self):
        evicted = [visit("A", key=f"e{n}", failure_kind="evicted") for n in range(9)]
        place = known(*evicted, visit("B")).sites["A"]
        assert (place.fault_weight, place.success_weight, place.avoid_reason, place.score) == (0, 0, "", 1.0)

    def test_nor_do_those_of_a_run_that_failed_alike_at_several_sites(self):
        """A broken image: the run says nothing of the sites."""
        broken = [bad(site, number=n, run="broken") for site in "AB" for n in (1, 2)]
        assert known(*broken, visit("C")).avoided_sites == {}
        assert set(known(*broken, visit("C"), visit("C", key="x", run="broken")).avoided_sites) == {"A", "B"}

    def test_nor_do_those_for_which_the_place_is_not_to_blame(self):
        story = RunBuilder()
        story.add_failed_attempt_at("A", 1, "out_of_memory")
        story.add_failed_attempt_at("A", 2, "gpu_unusable")
        assert [one.is_site_fault for one in observations_from_job("r", story.job, "htcondor")] == [False, True]

    def test_it_is_forgiven_with_time(self):
        failed = [bad("A", number=1), bad("A", number=2), visit("B")]
        assert known(*failed, now=NOW + HALF_LIFE_S).sites["A"].fault_weight == pytest.approx(1.0)
        assert known(*failed, now=NOW + HALF_LIFE_S).avoided_sites == {}
        assert known(*failed, now=NOW + MAX_AGE_S).observations == ()

    def test_slowness_is_forgiven_too(self):
        """A site that was slow for weeks and is quick since."""
        usual = [visit("B", key=f"b{n}", run="new", steps_s=100.0) for n in range(9)]
        old = NOW - 4 * HALF_LIFE_S
        usual += [visit("B", at=old, key=f"o{n}", run="old", steps_s=100.0) for n in range(20)]
        slow = [visit("A", at=old, key=f"s{n}", run="old", steps_s=300.0) for n in range(9)]
        quick = [visit("A", key=f"q{n}", run="new", steps_s=100.0) for n in range(4)]
        assert known(*usual, *slow, now=old).sites["A"].slowdown == pytest.approx(3.0)
        assert known(*usual, *slow, *quick).sites["A"].slowdown == pytest.approx(1.0)

    def test_the_middle_of_what_was_seen(self):
        assert weighted_median([]) is None
        assert weighted_median([(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)]) == 2.0
        assert weighted_median([(1.0, 0.5), (2.0, 0.5)]) == 1.5
        assert weighted_median([(1.0, 1.0), (5.0, 0.1), (6.0, 0.1)]) == 1.0

    def test_a_slow_machine_at_a_quick_site(self):
        quick = [visit("A", key=f"q{n}", node=f"a{n}", steps_s=100.0) for n in range(9)]
        slow = [visit("A", key=f"s{n}", node="snail", steps_s=300.0) for n in range(3)]
        found = known(*quick, *slow)
        assert found.avoided_nodes == {"snail": "trainings take 3.0 times as long there"}
        assert found.avoided_sites == {} and found.nodes["snail"].score == pytest.approx(1 / 3)

    def test_runs_are_compared_with_themselves_only(self):
        long = [visit("A", key=f"l{n}", run="long", steps_s=9000.0) for n in range(3)]
        short = [visit("B", key=f"s{n}", run="short", steps_s=9.0) for n in range(3)]
        found = known(*long, *short)
        assert [found.sites[name].slowdown for name in "AB"] == [1.0, 1.0]

    def test_and_so_are_points_of_a_matrix(self):
        long = [visit("A", key=f"l{n}", point="epochs=90", steps_s=9000.0) for n in range(3)]
        short = [visit("B", key=f"s{n}", point="epochs=1", steps_s=100.0) for n in range(3)]
        found = known(*long, *short)
        assert [found.sites[name].slowdown for name in "AB"] == [1.0, 1.0]

    def test_two_trainings_tell_nothing(self):
        assert known(visit("A", steps_s=9.0), visit("B", steps_s=900.0)).sites["B"].slowdown is None

    def test_a_warm_site(self):
        found = known(
            visit("A", dataset_id="d", fetched_bytes=7),
            visit("B", dataset_id="e", fetched_bytes=7),
            visit("C", dataset_id="d"),
        )
        assert [found.has_warm_cache(site, "d") for site in "ABCX"] == [True, False, False, False]
        assert not found.has_warm_cache("A", "")
        assert not known(visit("A", NOW - 3 * DAY, dataset_id="d", fetched_bytes=7)).has_warm_cache("A", "d")

    def test_other_engines_are_left_out_where_one_is_asked_for(self):
        here = SiteObservation("r", "k", NOW, "local", "local", "me")
        assert [v.site for v in SiteHistory.from_observations([here, visit("A")], NOW, "htcondor").observations] == [
            "A"
        ]


class TestVisits:
    def story(self):
        told = RunBuilder()
        told.now = 5.0
        told.submit()
        told.place(site="A")
        told.start_agent("agent-1")
        told.add_stage("fetch", duration_s=4.0, bytes=400, source="https://cache.example.org:8443/ns")
        told.add_stage("steps", duration_s=50.0)
        return told

    def visits(self, story):
        return list(observations_from_job("run-1", story.job, "htcondor", "d"))

    def test_one_that_succeeded(self):
        story = self.story()
        assert self.visits(story) == [], "not before its end"
        story.end_agent()
        story.end_attempt()
        (found,) = self.visits(story)
        assert (found.site, found.node, found.failure_kind, found.is_site_fault) == ("here", "w9", "", False)
        assert (found.steps_s, found.source_host, fetch_bytes_per_s(found), found.dataset_id) == (
            50.0,
            "cache.example.org",
            100.0,
            "d",
        )
        assert SiteObservation.from_data({**found.to_data(), "newer": 1}) == found

    def test_one_that_failed_by_its_place(self):
        story = self.story()
        story.end_agent("failed", failure="gpu_unusable")
        story.end_attempt()
        (found,) = self.visits(story)
        assert (found.failure_kind, found.is_site_fault, found.steps_s) == ("gpu_unusable", True, 0.0)

    def test_what_a_supervisor_ended_tells_nothing_unless_it_was_too_slow(self):
        story = self.story()
        story.cancel()
        story.end_agent("failed", failure="terminated")
        story.end_attempt()
        assert self.visits(story) == []
        story.add_supervisor_event(kinds.DECISION_MADE, action="move", attempt="0-1", reason="late", avoid_nodes=["w9"])
        (found,) = self.visits(story)
        assert (found.failure_kind, found.is_site_fault) == ("too_slow", True)

    def test_one_that_never_ran_was_nowhere(self):
        story = RunBuilder()
        story.submit()
        story.end_attempt()
        assert self.visits(story) == []


class TestSpeeds:
    def test_of_hosts_anywhere_and_by_site(self):
        at_a = [visit("A", key=f"{n}", fetched_bytes=n * 10**9, fetch_s=10.0, source_host="one.org") for n in (1, 2, 9)]
        at_b = visit("B", fetched_bytes=10**9, fetch_s=100.0, source_host="two.org")
        assert known(*at_a, at_b).source_speeds() == (
            HostSpeed("one.org", 200_000_000),
            HostSpeed("two.org", 10_000_000),
            HostSpeed("one.org", 200_000_000, "A"),
            HostSpeed("two.org", 10_000_000, "B"),
        )

    def test_the_newest_ones_as_far_as_a_plan_has_room(self):
        many = [visit(f"S{n}", NOW - n, fetched_bytes=10**9, fetch_s=1.0, source_host=f"h{n}.org") for n in range(99)]
        told = known(*many).source_speeds()
        assert len(told) == 60 and {speed.host for speed in told} == {f"h{n}.org" for n in range(30)}

    def test_what_is_small_or_came_from_nowhere_tells_nothing_nor_does_the_only_host(self):
        told = visit("A", fetched_bytes=10**9, fetch_s=10.0, source_host="one.org")
        small = visit("A", key="s", fetched_bytes=9_999_999, fetch_s=0.1, source_host="two.org")
        unknown = visit("A", key="u", fetched_bytes=10**9, fetch_s=1.0)
        assert known(told, small, unknown).source_speeds() == ()


def test_the_same_addresses_are_the_same_dataset():
    def job(*urls):
        items = tuple(RemoteFile(url, (Location(url),)) for url in urls)
        return Job("0", (), Resources(), Limits(), (), inputs=(Input("", "input", items),) if urls else ())

    assert (
        compute_dataset_id(job("a:/x", "a:/y"))
        == compute_dataset_id(job("a:/y", "a:/x"))
        != compute_dataset_id(job("a:/x"))
    )
    assert compute_dataset_id(job()) == ""


class TestHints:
    KNOWN = known(
        bad("Bad", number=1),
        bad("Bad", number=2),
        *[visit("Fast", key=f"f{n}", steps_s=80.0, dataset_id="d", fetched_bytes=1) for n in range(3)],
        *[visit("Slow", key=f"s{n}", steps_s=160.0) for n in range(4)],
    )

    def test_better_places_have_the_higher_rank(self):
        hints = SitePreferences.from_history(self.KNOWN, "d")
        assert hints.ranks == {"Bad": -67, "Fast": 110}, "twice as quick, and warm; what is usual needs no rank"
        assert list(hints.avoid_sites) == ["Bad"]

    def test_they_survive_the_settings_of_a_run(self, tmp_path):
        made = RunSettings(project="p", site_preferences=SitePreferences.from_history(self.KNOWN, "d"))
        made.write(tmp_path / "settings.json")
        assert RunSettings.read(tmp_path / "settings.json") == made

    def test_settings_of_an_earlier_version_have_none(self, tmp_path):
        (tmp_path / "settings.json").write_text('{"project": "p"}')
        assert RunSettings.read(tmp_path / "settings.json").site_preferences == SitePreferences()


class TestRows:
    def test_the_best_first_with_their_outcomes(self):
        found = known(bad("A", number=1), bad("A", NOW - 1, number=2), visit("B", fetched_bytes=8, fetch_s=2.0))
        rows = build_site_rows(found.sites, found.avoided_sites)
        assert [(row.name, row.outcome_sparkline, row.failure_rate) for row in rows] == [
            ("B", "█", 0.0),
            ("A", "▁▁", 1.0),
        ]
        assert rows[0].bytes_per_s == 4.0 and rows[0].speed_sparkline == "█" and rows[1].avoid_reason

    @pytest.mark.parametrize(("values", "line"), [([], ""), ([0.0], ""), ([1.0, 2.0, 4.0, 8.0], "▂▃▅█")])
    def test_sparklines(self, values, line):
        assert sparkline(values) == line
