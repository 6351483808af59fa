"""The configuration and certificates of a pool, without starting it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from testbed import condor, condor_config, debian, osdf_plugin
from testbed.condor_config import SITES
from testbed.condor_security import TrustedCertificates
from testbed.federation import CertificateAuthority, Federation
from testbed.site_cgroups import SiteCgroups

pytestmark = pytest.mark.slow  # HTCondor and Apptainer are installed on first use


@pytest.fixture
def config(tmp_path):
    return condor_config.write_pool_config(tmp_path / "pool", 12345, SITES, tmp_path / "certificates")


def config_value(config, name, *options):
    command = [*condor.user_prefix(), condor.program_path("condor_config_val"), *options, name]
    result = subprocess.run(command, env={**os.environ, "CONDOR_CONFIG": str(config)}, capture_output=True, text=True)
    return result.stdout.strip()


def test_configuration(config):
    assert config_value(config, "COLLECTOR_HOST") == "127.0.0.1:12345"
    assert config_value(config, "NUM_CPUS", "-subsystem", "STARTD", "-local-name", "site1") == str(SITES[1].cpus)
    assert config_value(config, "FILESYSTEM_DOMAIN") != config_value(
        config, "FILESYSTEM_DOMAIN", "-subsystem", "STARTER"
    )


def test_overrides_win(config):
    condor_config.dynamic_config_path(config.parent).write_text(
        condor_config.format_settings({"START": "False", "NEGOTIATOR_INTERVAL": 7})
    )
    assert (config_value(config, "START"), config_value(config, "NEGOTIATOR_INTERVAL")) == ("False", "7")


def test_gpu_names_are_unique(config):
    outputs = [condor_config.gpu_discovery_output(number, site) for number, site in enumerate(SITES)]
    names = [name for text in outputs for name in text.splitlines()[0].split('"')[1].split(", ")]
    assert len(set(names)) == len(names) == sum(site.gpus for site in SITES)


def test_plugin_classad_without_python(config):
    output = subprocess.check_output([config.parent / "etc/osdf_plugin", "-classad"], text=True, env={"PATH": ""})
    assert 'SupportedMethods = "osdf, pelican"' in output


def test_plugin_reports_success_and_failure(tmp_path):
    (tmp_path / "objects/data").mkdir(parents=True)
    (tmp_path / "objects/data/x").write_text("bytes")
    requests = (f'[ Url = "osdf:///data/{name}"; LocalFileName = "{tmp_path}/{name}" ]\n' for name in ("x", "nothing"))
    (tmp_path / "in").write_text("".join(requests))
    with Federation(tmp_path / "objects") as federation:
        (tmp_path / "federation").write_text(federation.host)
        arguments = [str(tmp_path / "federation"), str(federation.ca)]
        code = osdf_plugin.main([*arguments, "-infile", str(tmp_path / "in"), "-outfile", str(tmp_path / "out")])
    assert code == 1
    assert (tmp_path / "x").read_text() == "bytes"
    output = (tmp_path / "out").read_text()
    assert "TransferSuccess = true" in output
    assert "404" in output


def test_cas_with_same_name(tmp_path):
    trust = TrustedCertificates()
    trust.create()
    try:
        before = trust.bundle.stat().st_size
        ca_files = [CertificateAuthority(tmp_path / name).ca for name in ("one", "two")]
        for ca_file in ca_files:
            trust.add(ca_file)
        for ca_file in ca_files:
            verify = ["openssl", "verify", "-CApath", trust.folder, ca_file]
            assert subprocess.run(verify, capture_output=True).returncode == 0
        assert trust.bundle.stat().st_size == before + sum(ca_file.stat().st_size for ca_file in ca_files)
    finally:
        trust.remove()
    assert not trust.folder.exists()


def test_stale_folder_is_removed():
    program = (
        "import os; from testbed.condor_security import TrustedCertificates\n"
        "trust = TrustedCertificates(); trust.create(); print(trust.folder, flush=True); os.abort()"
    )
    killed = subprocess.run([sys.executable, "-c", program], cwd=debian.PROJECT_ROOT, capture_output=True, text=True)
    trust = TrustedCertificates()
    trust.create()
    trust.remove()
    assert killed.stdout.strip() and not os.path.exists(killed.stdout.strip())


def test_disconnect_needs_cgroup():
    with pytest.raises(RuntimeError, match="needs root and control groups"), SiteCgroups(1).disconnect(0):
        pass
