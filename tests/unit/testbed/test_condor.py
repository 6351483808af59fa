"""The pool's configuration and certificates, without a pool."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from testbed import condor, condor_config, debian, osdf_plugin
from testbed.condor_config import SITES
from testbed.condor_network import SiteCgroups
from testbed.condor_security import TrustedCertificates
from testbed.federation import CertificateAuthority, Federation

pytestmark = pytest.mark.slow  # HTCondor and Apptainer are installed at the first use


@pytest.fixture
def config(tmp_path):
    return condor_config.write_pool_config(tmp_path / "pool", 12345, SITES, tmp_path / "certificates")


def value(config, name, *options):
    command = [*condor.user_prefix(), condor.program_path("condor_config_val"), *options, name]
    told = subprocess.run(command, env={**os.environ, "CONDOR_CONFIG": str(config)}, capture_output=True, text=True)
    return told.stdout.strip()


def test_htcondor_understands_the_configuration(config):
    assert value(config, "COLLECTOR_HOST") == "127.0.0.1:12345"
    assert value(config, "NUM_CPUS", "-subsystem", "STARTD", "-local-name", "site1") == str(SITES[1].cpus)
    assert value(config, "FILESYSTEM_DOMAIN") != value(config, "FILESYSTEM_DOMAIN", "-subsystem", "STARTER")


def test_knobs_count_more_than_anything_else(config):
    condor_config.dynamic_config_path(config.parent).write_text(
        condor_config.format_settings({"START": "False", "NEGOTIATOR_INTERVAL": 7})
    )
    assert (value(config, "START"), value(config, "NEGOTIATOR_INTERVAL")) == ("False", "7")


def test_every_gpu_of_the_inventory_has_a_name_of_its_own(config):
    listed = [condor_config.gpu_discovery_output(number, site) for number, site in enumerate(SITES)]
    names = [word for text in listed for word in text.splitlines()[0].split('"')[1].split(", ")]
    assert len(set(names)) == len(names) == sum(site.gpus for site in SITES)


def test_the_plugin_says_what_it_can_do_without_starting_python(config):
    said = subprocess.check_output([config.parent / "etc/osdf_plugin", "-classad"], text=True, env={"PATH": ""})
    assert 'SupportedMethods = "osdf, pelican"' in said


def test_the_plugin_tells_what_it_brought_and_what_not(tmp_path):
    (tmp_path / "objects/data").mkdir(parents=True)
    (tmp_path / "objects/data/x").write_text("bytes")
    asked = (f'[ Url = "osdf:///data/{name}"; LocalFileName = "{tmp_path}/{name}" ]\n' for name in ("x", "nothing"))
    (tmp_path / "in").write_text("".join(asked))
    with Federation(tmp_path / "objects") as federation:
        (tmp_path / "federation").write_text(federation.host)
        where = [str(tmp_path / "federation"), str(federation.ca)]
        code = osdf_plugin.main([*where, "-infile", str(tmp_path / "in"), "-outfile", str(tmp_path / "out")])
    assert code == 1
    assert (tmp_path / "x").read_text() == "bytes"
    told = (tmp_path / "out").read_text()
    assert "TransferSuccess = true" in told
    assert "404" in told


def test_authorities_of_one_name_are_both_trusted(tmp_path):
    trust = TrustedCertificates()
    trust.create()
    try:
        before = trust.bundle.stat().st_size
        made = [CertificateAuthority(tmp_path / name).ca for name in ("one", "two")]
        for authority in made:
            trust.add(authority)
        for authority in made:
            verify = ["openssl", "verify", "-CApath", trust.folder, authority]
            assert subprocess.run(verify, capture_output=True).returncode == 0
        assert trust.bundle.stat().st_size == before + sum(authority.stat().st_size for authority in made)
    finally:
        trust.remove()
    assert not trust.folder.exists()


def test_what_a_killed_process_left_is_swept_away():
    program = (
        "import os; from testbed.condor_security import Trust\n"
        "trust = Trust(); trust.make(); print(trust.folder, flush=True); os.abort()"
    )
    left = subprocess.run([sys.executable, "-c", program], cwd=debian.PROJECT_ROOT, capture_output=True, text=True)
    trust = TrustedCertificates()
    trust.create()
    trust.remove()
    assert left.stdout.strip() and not os.path.exists(left.stdout.strip())


def test_a_site_without_a_group_cannot_be_cut_off():
    with pytest.raises(RuntimeError, match="only be cut off by root"), SiteCgroups(1).disconnect(0):
        pass
