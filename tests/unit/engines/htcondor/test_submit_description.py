"""The submit description, compared with golden files: `make_golden` below writes them anew."""

from __future__ import annotations

import re
from pathlib import Path

import classad2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packtrain.engines.api import Overrides
from packtrain.engines.htcondor.run_settings import RunSettings, SitePreferences
from packtrain.engines.htcondor.submit_description import (
    SubmitBatch,
    merge_lines,
    min_live_interval_s,
    rejected_lines,
    render_items,
    render_submit_description,
)
from packtrain.errors import UsageError
from packtrain.plan import CheckpointConfig, GpuRequirements, Limits, Resources, RunAction, RunFolder, Step
from tests.support.condor_plans import STEP, container_environment, make_job, output_at
from tests.support.paths import TESTS_DIR

GOLDEN = TESTS_DIR / "golden" / "htcondor"
FOLDER = RunFolder(Path("/home/ada/.packtrain/runs/cifar-x7kq"))
NATIVE = f"{FOLDER.htcondor}/native"

GPU = Resources(
    cpus_per_task=4,
    mem_per_cpu_mb=4000,
    gpus=1,
    gpu=GpuRequirements(min_memory_mb=24000, min_capability="8.0", min_cuda="12.1"),
)
MANY = [(make_job(number), f"{number}-1") for number in range(3)]


def batch(*attempts, inputs=None, **more) -> SubmitBatch:
    return SubmitBatch("cifar-x7kq", more.pop("jobs", len(attempts)), attempts, inputs or {}, **more)


CASES = {
    "one": (batch((make_job(), "0-1")), RunSettings()),
    "many": (batch(*MANY), RunSettings(max_jobs=100, max_idle=20, project="Vision")),
    "gpu": (
        batch((make_job(resources=GPU, limits=Limits(wall_time_s=15 * 3600)), "0-1")),
        RunSettings(
            disk_mb=150_000, submit_lines=(("requirements", 'GLIDEIN_Site != "Slow"'), ("+WantGPULab", "true"))
        ),
    ),
    "container": (
        batch((make_job(environment=container_environment("docker://pytorch/pytorch:2.7")), "0-2")),
        RunSettings(),
    ),
    "checkpoint": (
        batch(
            (make_job(checkpoint=CheckpointConfig("ckpt.pt")), "0-1"),
            has_secrets=True,
            inputs={"0-1": (f"{NATIVE}/in-0",)},
        ),
        RunSettings(),
    ),
    "checkpoint-s3": (
        batch((make_job(checkpoint=CheckpointConfig("ckpt.pt"), output=output_at("s3://bucket/out")), "0-1")),
        RunSettings(lease_s=7200, duration_category="Long"),
    ),
    "inputs-differ": (
        batch(*MANY, inputs={"0-1": (f"{NATIVE}/in-0",), "1-1": (f"{NATIVE}/in-0", "osdf:///data/x.tar")}),
        RunSettings(submit_lines=(("transfer_input_files", "/home/ada/extra.txt"), ("request_disk", "9GB"))),
    ),
}


def requirements(amendment, *lines) -> str:
    text = render_submit_description(
        batch((make_job(), "0-2"), overrides=amendment),
        FOLDER,
        FOLDER.htcondor / "0-2.items",
        RunSettings(submit_lines=lines),
    )
    return next((line.partition("= ")[2] for line in text.splitlines() if line.startswith("requirements")), "")


def test_places_that_failed_are_avoided():
    made = requirements(Overrides(avoid_sites=("Slow",), avoid_nodes=("w1.a.edu",)))
    assert made == 'GLIDEIN_ResourceName =!= "Slow" && GLIDEIN_Site =!= "Slow" && Machine =!= "w1.a.edu"'
    assert requirements(Overrides()) == ""


def test_a_persons_own_requirements_stay():
    made = requirements(Overrides(avoid_nodes=("w1",)), ("Requirements", "HasAVX || Arch"))
    assert made == '(Machine =!= "w1") && (HasAVX || Arch)'


@pytest.mark.parametrize("name", ['x" || true || "', "$(ENV)", "a\nqueue 9", "", "é"])
def test_a_name_that_a_log_should_not_have_is_left_out(name):
    assert requirements(Overrides(avoid_sites=(name,), avoid_nodes=(name,))) == ""


class TestHintsOfEarlierRuns:
    HINTS = SitePreferences({"Slow": "why"}, {"w1": "why"}, {"Fast": 12, "Slow": -67, 'x" || true': 5})
    BAD = '(time() - QDate > 3600 || (GLIDEIN_ResourceName =!= "Slow" && GLIDEIN_Site =!= "Slow" && Machine =!= "w1"))'

    def lines(self, *theirs, amendment=Overrides()):  # noqa: B008
        made, items = batch((make_job(), "0-1"), overrides=amendment), FOLDER.htcondor / "0-1.items"
        text = render_submit_description(
            made, FOLDER, items, RunSettings(site_preferences=self.HINTS, submit_lines=theirs)
        )
        return dict(line.split(" = ", 1) for line in re.sub(" += ", " = ", text).splitlines() if " = " in line)

    def test_bad_places_are_taken_only_by_who_waits_for_long(self):
        assert self.lines()["requirements"] == self.BAD
        both = self.lines(amendment=Overrides(avoid_nodes=("w2",)))["requirements"]
        assert both == f'Machine =!= "w2" && {self.BAD}'

    def test_better_places_have_a_rank(self):
        terms = [f'ifThenElse(GLIDEIN_ResourceName =?= "{n}" || GLIDEIN_Site =?= "{n}", {r}, 0)' for n, r in FAST_SLOW]
        assert self.lines()["rank"] == " + ".join(terms), "and a name that is none is left out"

    def test_a_persons_own_words_count(self):
        assert self.lines(("Rank", "Mips"))["rank"] == "Mips"
        assert self.lines(("requirements", "HasAVX"))["requirements"] == f"({self.BAD}) && (HasAVX)"
        pinned = self.lines(("requirements", 'GLIDEIN_Site == "Slow"'))
        assert pinned["requirements"] == 'GLIDEIN_Site == "Slow"' and "rank" not in pinned


FAST_SLOW = (("Fast", 12), ("Slow", -67))


def test_an_attempt_whose_data_come_another_way_has_a_plan_of_its_own():
    text = render_submit_description(
        batch((make_job(), "0-2"), amendment=Overrides(fetch_with_agent=True)), FOLDER, Path("i"), RunSettings()
    )
    assert f"{FOLDER.root}/jobs/$(job)/attempts/$(decision)/plan.json" in text
    assert f"{FOLDER.root}/jobs/$(job)/plan.json" not in text


def text_of(name: str) -> str:
    made, settings = CASES[name]
    items = FOLDER.htcondor / f"{made.attempts[0][1]}.items"
    return render_submit_description(made, FOLDER, items, settings) + "\n# items:\n" + render_items(made)


def make_golden() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name in CASES:
        (GOLDEN / f"{name}.sub").write_text(text_of(name), encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_the_description_is_as_expected(name):
    assert text_of(name) == (GOLDEN / f"{name}.sub").read_text(encoding="utf-8")


def test_requirements_of_a_person_are_joined_never_lost():
    ours = [("requirements", "A")]
    assert merge_lines(ours, [("Requirements", "B || C")]) == [("requirements", "(A) && (B || C)")]
    assert merge_lines([], [("requirements", "B"), ("requirements", "C")]) == [("requirements", "(B) && (C)")]


@pytest.mark.parametrize(
    ("theirs", "starts", "reason", "subcode"),
    [
        ([("periodic_hold", "Cold")], 9, None, 0),
        ([("periodic_hold", "Cold")], 99, "ours", 5501),
        ([("Periodic_Hold", "Cold"), ("periodic_hold_reason", '"it is cold"')], 9, "it is cold", 0),
        ([("periodic_hold_subcode", "7"), ("periodic_hold", "Cold")], 9, None, 7),
        ([("periodic_hold_subcode", "7"), ("periodic_hold", "Cold")], 99, "ours", 5501),
    ],
)
def test_a_hold_has_the_reason_of_the_one_whose_condition_it_was(theirs, starts, reason, subcode):
    ours = [
        ("periodic_hold", "(NumShadowStarts > 10)"),
        ("periodic_hold_reason", '"ours"'),
        ("periodic_hold_subcode", "5501"),
    ]
    made = dict(merge_lines(ours, theirs))
    ad = classad2.ClassAd({"Cold": True, "NumShadowStarts": starts})
    seen = {name: classad2.ExprTree(value).eval(ad) for name, value in made.items()}
    assert seen["periodic_hold"] is True and seen["periodic_hold_subcode"] == subcode
    assert seen["periodic_hold_reason"] == (reason or classad2.Value.Undefined)


def test_settings_are_replaced_by_the_workflow_whatever_their_letters():
    assert merge_lines([("+ProjectName", '"a"')], [("my.projectname", '"b"')]) == [("+ProjectName", '"b"')]
    assert merge_lines([("request_disk", "1GB")], [("Request_Disk", "2GB"), ("nice_user", "true")]) == [
        ("request_disk", "2GB"),
        ("nice_user", "true"),
    ]


@pytest.mark.parametrize("key", ["executable", "Arguments", "queue", "+PacktrainRun", "MY.PacktrainJob", "dagman_log"])
def test_what_packtrain_sets_itself_is_refused(key):
    assert [found for found, _ in rejected_lines([(key, "x"), ("rank", "Mips")])] == [key]


@pytest.mark.parametrize("path", ["/home/a,b", "/home/$(x)", "/home/\n"])
def test_folders_that_cannot_be_named_in_a_list_are_refused(path):
    with pytest.raises(UsageError, match="cannot take files from the folder"):
        render_submit_description(batch((make_job(), "0-1")), RunFolder(Path(path)), Path("/x"), RunSettings())


@pytest.mark.parametrize(
    ("environment", "steps"),
    [
        (container_environment("/a.sif", mount_home=True), (STEP,)),
        (container_environment("docker://a", username="me"), (STEP,)),
        (
            container_environment("/a.sif"),
            (STEP, Step("b", RunAction("x", container=container_environment("/b.sif").container))),
        ),
    ],
    ids=["mount", "login", "two images"],
)
def test_what_only_the_agent_can_give_is_left_to_it(environment, steps):
    made = render_submit_description(
        batch((make_job(environment=environment, steps=steps), "0-1")), FOLDER, Path("/x"), RunSettings()
    )
    assert "container_image" not in made and "--in-container" not in made


@given(st.integers(1, 10**6))
def test_all_jobs_together_never_update_more_than_twenty_times_a_second(jobs):
    assert jobs / min_live_interval_s(jobs) <= 20 and min_live_interval_s(jobs) >= 2


def test_settings_survive_their_file(tmp_path):
    settings = CASES["gpu"][1]
    settings.write(tmp_path / "settings.json")
    assert RunSettings.read(tmp_path / "settings.json") == settings
