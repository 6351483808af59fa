"""The submit description, compared with golden files. `make_golden` writes them."""

from __future__ import annotations

import re
from pathlib import Path

import classad2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packtrain.engines.api import Overrides, min_live_interval_s
from packtrain.engines.htcondor.machine_requirements import machine_terms
from packtrain.engines.htcondor.run_settings import RunSettings, SitePreferences
from packtrain.engines.htcondor.submit_description import (
    SubmitBatch,
    render_items,
    render_submit_description,
)
from packtrain.engines.htcondor.submit_lines import merge_lines, rejected_lines
from packtrain.errors import UsageError
from packtrain.plan import (
    CheckpointConfig,
    GpuRequirements,
    Input,
    Limits,
    Location,
    MachineRequirements,
    RemoteFile,
    Resources,
    RunAction,
    RunFolder,
    Step,
)
from tests.support.condor_plans import STEP, container_environment, make_job, output_at, pixi_environment
from tests.support.paths import TESTS_DIR

GOLDEN = TESTS_DIR / "golden" / "htcondor"
FOLDER = RunFolder(Path("/home/ada/.packtrain/runs/cifar-x7kq"))
INPUTS_DIR = f"{FOLDER.htcondor}/inputs"

GPU = Resources(
    cpus_per_task=4,
    mem_per_cpu_mb=4000,
    gpus=1,
    gpu=GpuRequirements(min_memory_mb=24000, min_capability="8.0", min_cuda="12.1"),
)
MANY = [(make_job(number), f"{number}-1") for number in range(3)]


def make_batch(*attempts, inputs=None, **more) -> SubmitBatch:
    return SubmitBatch(
        run_id="cifar-x7kq", n_jobs=len(attempts), attempts=attempts, transfer_inputs=inputs or {}, **more
    )


CASES = {
    "one": (make_batch((make_job(), "0-1")), RunSettings()),
    "many": (make_batch(*MANY), RunSettings(max_jobs=100, max_idle=20, project="Vision")),
    "gpu": (
        make_batch((make_job(resources=GPU, limits=Limits(wall_time_s=15 * 3600)), "0-1")),
        RunSettings(
            disk_mb=150_000, submit_lines=(("requirements", 'GLIDEIN_Site != "Slow"'), ("+WantGPULab", "true"))
        ),
    ),
    "container": (
        make_batch((make_job(environment=container_environment("docker://pytorch/pytorch:2.7")), "0-2")),
        RunSettings(),
    ),
    "pixi": (
        make_batch(
            (
                make_job(
                    resources=GPU,
                    environment=pixi_environment(
                        FOLDER.pixi_environment("gpu"), min_glibc="2.28", min_cuda="12.1", archspec="x86_64_v3"
                    ),
                ),
                "0-1",
            ),
            inputs={"0-1": (f"{INPUTS_DIR}/input-0", str(FOLDER.pixi_environment("gpu")))},
        ),
        RunSettings(submit_lines=(("requirements", "HasAVX"),)),
    ),
    "checkpoint": (
        make_batch(
            (make_job(checkpoint=CheckpointConfig("ckpt.pt")), "0-1"),
            has_secrets=True,
            inputs={"0-1": (f"{INPUTS_DIR}/input-0",)},
        ),
        RunSettings(),
    ),
    "checkpoint-s3": (
        make_batch((make_job(checkpoint=CheckpointConfig("ckpt.pt"), output=output_at("s3://bucket/out")), "0-1")),
        RunSettings(lease_s=7200, duration_category="Long"),
    ),
    "inputs-differ": (
        make_batch(
            *MANY, inputs={"0-1": (f"{INPUTS_DIR}/input-0",), "1-1": (f"{INPUTS_DIR}/input-0", "osdf:///data/x.tar")}
        ),
        RunSettings(submit_lines=(("transfer_input_files", "/home/ada/extra.txt"), ("request_disk", "9GB"))),
    ),
}


def requirements(overrides, *lines) -> str:
    text = render_submit_description(
        make_batch((make_job(), "0-2"), overrides=overrides),
        FOLDER,
        FOLDER.htcondor / "0-2.items",
        RunSettings(submit_lines=lines),
    )
    return next((line.partition("= ")[2] for line in text.splitlines() if line.startswith("requirements")), "")


def test_failed_sites_are_avoided():
    expression = requirements(Overrides(avoid_sites=("Slow",), avoid_nodes=("w1.a.edu",)))
    assert expression == 'GLIDEIN_ResourceName =!= "Slow" && GLIDEIN_Site =!= "Slow" && Machine =!= "w1.a.edu"'
    assert requirements(Overrides()) == ""


@pytest.mark.parametrize(
    ("requires", "machine", "matches"),
    [
        ({"min_glibc": "2.28"}, {"OpSysAndVer": "CentOS7"}, False),
        ({"min_glibc": "2.28"}, {"OpSysAndVer": "AlmaLinux8"}, True),
        ({"min_glibc": "2.34"}, {"OpSysAndVer": "Rocky8"}, False),
        ({"min_glibc": "2.34"}, {"OpSysAndVer": "Debian12"}, True),
        ({"min_glibc": "2.34"}, {"OpSysAndVer": "Gentoo2"}, True),
        ({"min_glibc": "2.34"}, {}, True),
        ({"archspec": "x86_64_v3"}, {"Microarch": "x86_64-v2"}, False),
        ({"archspec": "x86_64_v3"}, {"Microarch": "x86_64-v3"}, True),
        ({"archspec": "x86_64_v3"}, {"Microarch": "x86_64-v4"}, True),
        ({"archspec": "x86_64_v3"}, {}, True),
        ({"min_glibc": "2.34", "archspec": "x86_64_v4"}, {"OpSysAndVer": "RedHat9", "Microarch": "x86_64-v3"}, False),
        ({"archspec": "skylake"}, {"Microarch": "x86_64-v1"}, True),
    ],
)
def test_machines_of_a_pixi_environment(requires, machine, matches):
    """Machines on which the packages cannot run are excluded; those that do not say what they are, are not."""
    terms = list(machine_terms(MachineRequirements(**requires)))
    job = classad2.ClassAd({"Requirements": classad2.ExprTree(" && ".join(terms) or "true")})
    job["OpSysAndVer"] = "CentOS7"  # of the job, which is not asked
    assert classad2.ClassAd(machine).matches(job) is matches


@pytest.mark.parametrize("url", ["file:///staging/data.tar", "chtc+stash:///data.tar"])
def test_plugins_of_the_pool_are_required(url):
    """Only machines whose plugins fetch the URL match; the credential before a + is not part of the scheme."""
    job = make_job(inputs=(Input("", "input", (RemoteFile("data.tar", (Location(url),)),), transfer="plugin"),))
    text = render_submit_description(make_batch((job, "0-1")), FOLDER, FOLDER.htcondor / "0-1.items", RunSettings())
    scheme = "file" if url.startswith("file") else "stash"
    assert f'= stringListIMember("{scheme}", TARGET.HasFileTransferPluginMethods)\n' in text


def test_user_requirements_are_kept():
    expression = requirements(Overrides(avoid_nodes=("w1",)), ("Requirements", "HasAVX || Arch"))
    assert expression == '(Machine =!= "w1") && (HasAVX || Arch)'


@pytest.mark.parametrize("name", ['x" || true || "', "$(ENV)", "a\nqueue 9", "", "é"])
def test_unsafe_names_are_left_out(name):
    assert requirements(Overrides(avoid_sites=(name,), avoid_nodes=(name,))) == ""


class TestSitePreferences:
    PREFERENCES = SitePreferences({"Slow": "why"}, {"w1": "why"}, {"Fast": 12, "Slow": -67, 'x" || true': 5})
    AVOIDED = (
        '(time() - QDate > 3600 || (GLIDEIN_ResourceName =!= "Slow" && GLIDEIN_Site =!= "Slow" && Machine =!= "w1"))'
    )

    def lines(self, *user_lines, overrides=Overrides()):  # noqa: B008
        batch, items_path = make_batch((make_job(), "0-1"), overrides=overrides), FOLDER.htcondor / "0-1.items"
        settings = RunSettings(site_preferences=self.PREFERENCES, submit_lines=user_lines)
        text = render_submit_description(batch, FOLDER, items_path, settings)
        return dict(line.split(" = ", 1) for line in re.sub(" += ", " = ", text).splitlines() if " = " in line)

    def test_avoided_sites_after_long_wait(self):
        assert self.lines()["requirements"] == self.AVOIDED
        both = self.lines(overrides=Overrides(avoid_nodes=("w2",)))["requirements"]
        assert both == f'Machine =!= "w2" && {self.AVOIDED}'

    def test_ranks(self):
        terms = [f'ifThenElse(GLIDEIN_ResourceName =?= "{n}" || GLIDEIN_Site =?= "{n}", {r}, 0)' for n, r in FAST_SLOW]
        assert self.lines()["rank"] == " + ".join(terms), "an unsafe name is left out"

    def test_user_lines_win(self):
        assert self.lines(("Rank", "Mips"))["rank"] == "Mips"
        assert self.lines(("requirements", "HasAVX"))["requirements"] == f"({self.AVOIDED}) && (HasAVX)"
        pinned = self.lines(("requirements", 'GLIDEIN_Site == "Slow"'))
        assert pinned["requirements"] == 'GLIDEIN_Site == "Slow"' and "rank" not in pinned


FAST_SLOW = (("Fast", 12), ("Slow", -67))


def test_plan_of_attempt_that_fetches_with_agent():
    text = render_submit_description(
        make_batch((make_job(), "0-2"), overrides=Overrides(fetch_with_agent=True)), FOLDER, Path("i"), RunSettings()
    )
    assert f"{FOLDER.root}/jobs/$(job)/attempts/$(attempt)/plan.json" in text
    assert f"{FOLDER.root}/jobs/$(job)/plan.json" not in text


def render(name: str) -> str:
    batch, settings = CASES[name]
    items_path = FOLDER.htcondor / f"{batch.attempts[0][1]}.items"
    return render_submit_description(batch, FOLDER, items_path, settings) + "\n# items:\n" + render_items(batch)


def make_golden() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name in CASES:
        (GOLDEN / f"{name}.sub").write_text(render(name), encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_golden(name):
    assert render(name) == (GOLDEN / f"{name}.sub").read_text(encoding="utf-8")


def test_requirements_are_joined():
    assert merge_lines([("requirements", "A")], [("Requirements", "B || C")]) == [("requirements", "(A) && (B || C)")]
    assert merge_lines([], [("requirements", "B"), ("requirements", "C")]) == [("requirements", "(B) && (C)")]


@pytest.mark.parametrize(
    ("user_lines", "n_starts", "reason", "subcode"),
    [
        ([("periodic_hold", "Cold")], 9, None, 0),
        ([("periodic_hold", "Cold")], 99, "ours", 5501),
        ([("Periodic_Hold", "Cold"), ("periodic_hold_reason", '"it is cold"')], 9, "it is cold", 0),
        ([("periodic_hold_subcode", "7"), ("periodic_hold", "Cold")], 9, None, 7),
        ([("periodic_hold_subcode", "7"), ("periodic_hold", "Cold")], 99, "ours", 5501),
    ],
)
def test_hold_reason_of_user_or_packtrain(user_lines, n_starts, reason, subcode):
    generated = [
        ("periodic_hold", "(NumShadowStarts > 10)"),
        ("periodic_hold_reason", '"ours"'),
        ("periodic_hold_subcode", "5501"),
    ]
    merged = dict(merge_lines(generated, user_lines))
    ad = classad2.ClassAd({"Cold": True, "NumShadowStarts": n_starts})
    values = {name: classad2.ExprTree(value).eval(ad) for name, value in merged.items()}
    assert values["periodic_hold"] is True and values["periodic_hold_subcode"] == subcode
    assert values["periodic_hold_reason"] == (reason or classad2.Value.Undefined)


def test_keys_are_case_insensitive():
    assert merge_lines([("+ProjectName", '"a"')], [("my.projectname", '"b"')]) == [("+ProjectName", '"b"')]
    assert merge_lines([("request_disk", "1GB")], [("Request_Disk", "2GB"), ("nice_user", "true")]) == [
        ("request_disk", "2GB"),
        ("nice_user", "true"),
    ]


@pytest.mark.parametrize("key", ["executable", "Arguments", "queue", "+PacktrainRun", "MY.PacktrainJob", "dagman_log"])
def test_reserved_commands(key):
    assert [rejected for rejected, _ in rejected_lines([(key, "x"), ("rank", "Mips")])] == [key]


@pytest.mark.parametrize("path", ["/home/a,b", "/home/$(x)", "/home/\n"])
def test_invalid_folder_names(path):
    with pytest.raises(UsageError, match="cannot use files of the folder"):
        render_submit_description(make_batch((make_job(), "0-1")), RunFolder(Path(path)), Path("/x"), RunSettings())


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
def test_containers_that_only_the_agent_supports(environment, steps):
    text = render_submit_description(
        make_batch((make_job(environment=environment, steps=steps), "0-1")), FOLDER, Path("/x"), RunSettings()
    )
    assert "container_image" not in text and "--in-container" not in text


@given(st.integers(1, 10**6))
def test_live_updates_are_limited(jobs):
    assert jobs / min_live_interval_s(jobs) <= 20 and min_live_interval_s(jobs) >= 2


def test_run_settings_round_trip(tmp_path):
    settings = CASES["gpu"][1]
    settings.write(tmp_path / "run_settings.json")
    assert RunSettings.read(tmp_path / "run_settings.json") == settings
