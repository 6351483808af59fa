"""A real HTCondor pool of three sites on this machine, up in seconds, gone with whoever started it.

    with Pool(folder) as pool:
        pool.run(["condor_submit", "job.sub"], cwd=…)       as an ordinary user of the pool
        pool.packtrain(["run", "workflow.yaml", "--on", "htcondor"], cwd=…)
        pool.queue("ClusterId == 1")                        the jobs, as dicts
        pool.kill("schedd"); pool.await_up()
        with pool.configured(MAX_TRANSFER_INPUT_MB=5), pool.cut("PDX-Coeus-CE1"): …

The sites' jobs trust the certificates given to `trust`, and find the federation given to `federation` under osdf:///.
`python -m testbed.condor_pool` (or `make pool`) starts one for a person.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from testbed import condor, condor_config, debian
from testbed.condor_config import SCHEDD_NAME, SITES, PoolSite
from testbed.condor_network import SiteCgroups
from testbed.condor_security import TrustedCertificates
from testbed.ports import reserve_ports

_TIMEOUT_S = 60.0
T = TypeVar("T")


class CondorPool:
    """`folder` is the pool's own: configuration, logs, queue, sandboxes."""

    def __init__(self, folder: Path, *, sites: Sequence[PoolSite] = SITES, timeout_s: float = _TIMEOUT_S) -> None:
        self.folder, self.sites, self._timeout_s = folder.resolve(), tuple(sites), timeout_s
        self._trusted_certificates, self.site_cgroups = TrustedCertificates(), SiteCgroups(len(self.sites))
        self.config_path = condor_config.write_pool_config(
            self.folder, reserve_ports(1)[0], self.sites, self._trusted_certificates.folder
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> CondorPool:
        self.site_cgroups.create()
        self._trusted_certificates.create()
        for number in range(len(self.sites)):
            condor_config.write_startd_script(self.folder, number, self.site_cgroups.join_command(number))
        keeper = [sys.executable, "-m", "testbed.condor_init", str(condor.program_path("condor_master")), "-f"]
        more = {"X509_CERT_DIR": str(self._trusted_certificates.folder)}  # for HTCondor's own plugins
        with open(self.folder / "log/master.out", "wb") as log:
            self._process = subprocess.Popen(
                [*condor.pid_namespace_prefix(), *keeper],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=debian.PROJECT_ROOT,
                env=self.user_environment | more,
                start_new_session=True,  # Ctrl-C is for whoever started it
            )
        try:
            self.wait_until_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.communicate()  # the end of its input ends it
        self.site_cgroups.remove()
        self._trusted_certificates.remove()

    # What a user does

    @property
    def user_environment(self) -> dict[str, str]:
        """What a user's shell has there."""
        path = f"{_bin_path()}:{os.environ['PATH']}"
        return {**os.environ, "CONDOR_CONFIG": str(self.config_path), "PATH": path}

    def user_command(self, argv: Sequence[object]) -> list[str]:
        """The command as one of a user of the pool; it needs `environment`."""
        return [*condor.user_prefix(), *map(str, argv)]

    def run_as_user(self, argv: Sequence[object], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        """Such a command, to its end; `more` is for subprocess.run. Unless `check=False` it must succeed."""
        check = kwargs.pop("check", True)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": self.user_environment, **kwargs}
        done: subprocess.CompletedProcess[str] = subprocess.run(self.user_command(argv), text=True, **options)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(map(str, argv))}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def run_packtrain(self, arguments: Sequence[object], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        return self.run_as_user([sys.executable, "-m", "packtrain", *arguments], **kwargs)

    def queue(self, constraint: str = "true", *attributes: str) -> list[dict[str, Any]]:
        """The ads of the jobs in the queue."""
        return self._query_ads("condor_q", "-allusers", constraint, attributes)

    def history(self, constraint: str = "true", *attributes: str) -> list[dict[str, Any]]:
        """The ads of jobs that left the queue; waited for, since they are written a moment after the job's log."""
        return self.wait_for(
            lambda: self._query_ads("condor_history", "-forwards", constraint, attributes),
            f"the history has no job with {constraint}",
        )

    def _query_ads(self, tool: str, option: str, constraint: str, attributes: Sequence[str]) -> list[dict[str, Any]]:
        wanted = ["-attributes", ",".join(attributes)] if attributes else []
        said = self.run_as_user([tool, option, "-json", "-constraint", constraint, *wanted]).stdout
        return list(json.loads(said or "[]"))

    def wait_for_job(self, constraint: str, *, status: int, attributes: Sequence[str] = ()) -> dict[str, Any]:
        """The ad of the first job that fits, once it has the status (1 idle, 2 running, 5 held)."""
        wanted = f"({constraint}) && JobStatus == {status}"
        return self.wait_for(lambda: self.queue(wanted, *attributes), f"no job with {wanted}")[0]

    def wait_for(self, condition: Callable[[], T], message: str) -> T:
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            if found := condition():
                return found
            time.sleep(0.1)
        raise TimeoutError(f"{message}; the pool's logs are in {self.folder / 'log'}")

    # What sites offer

    def trust_ca(self, ca_file: Path) -> None:
        """Let transfer plugins and jobs take certificates of this CA."""
        self._trusted_certificates.add(ca_file)

    def set_federation(self, host: str) -> None:
        """Let osdf:///… be of this federation, for the pool's own plugin."""
        (self.folder / "etc/federation").write_text(host)

    @contextlib.contextmanager
    def override_config(self, **settings: object) -> Iterator[None]:
        """Other settings of the daemons for a while."""
        knobs = condor_config.dynamic_config_path(self.folder)
        before = {name: self.get_setting(name) for name in settings}
        knobs.write_text(condor_config.format_settings(settings))
        self._reconfigure({name: str(value) for name, value in settings.items()})
        try:
            yield
        finally:
            knobs.unlink()
            self._reconfigure(before)

    def get_setting(self, name: str) -> str | None:
        """A setting as the schedd has it now."""
        told = self.run_as_user(["condor_config_val", "-schedd", "-name", SCHEDD_NAME, name], check=False)
        return told.stdout.strip() if told.returncode == 0 else None

    def _reconfigure(self, expected: dict[str, str | None]) -> None:
        self.kill_daemon("master", signum=signal.SIGHUP)  # which tells all others
        self.wait_for(
            lambda: all(self.get_setting(n) == v for n, v in expected.items()), f"the schedd has not {expected}"
        )

    # What befalls it

    def disconnect_site(self, site: str) -> contextlib.AbstractContextManager[None]:
        """`with`: nothing comes to the site nor leaves it; all that runs there goes on."""
        return self.site_cgroups.disconnect(self._site_index(site))

    def kill_daemon(self, daemon: str, site: str | None = None, signum: int = signal.SIGKILL) -> int:
        """A signal to all masters, schedds, shadows, starters or startds (of the site); how many there were."""
        found = list(self.find_processes(daemon, site))
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)
        return len(found)

    def find_processes(self, daemon: str, site: str | None = None) -> Iterator[int]:
        mine = f"site{self._site_index(site)}" if site else None
        for pid, words, parents in self._process_tree():
            if words[0].endswith(f"condor_{daemon}") and (mine is None or any(mine in line for line in parents)):
                yield pid

    def process_commands(self) -> Iterator[tuple[int, list[str]]]:
        """All that runs in the pool, daemons and jobs."""
        return ((pid, words) for pid, words, _ in self._process_tree())

    def _process_tree(self) -> Iterator[tuple[int, list[str], list[list[str]]]]:
        assert self._process is not None
        return _iter_descendants(self._process.pid, [])

    def _site_index(self, site: str) -> int:
        return [known.name for known in self.sites].index(site)

    def wait_until_up(self) -> None:
        """Until all daemons have told the collector of themselves and the schedd answers."""
        assert self._process is not None
        process = self._process
        self.wait_for(lambda: process.poll() is not None or self._is_up(), "the pool did not start")
        if process.poll() is not None:
            raise RuntimeError(f"the pool did not start:\n{(self.folder / 'log/master.out').read_text()[-2000:]}")

    def _is_up(self) -> bool:
        seen = self.run_as_user(["condor_status", "-any", "-af", "MyType"], check=False).stdout.split()
        enough = seen.count("Machine") >= len(self.sites) and "Scheduler" in seen
        return enough and self.run_as_user(["condor_q", "-totals"], check=False).returncode == 0


def _iter_descendants(pid: int, parents: list[list[str]]) -> Iterator[tuple[int, list[str], list[list[str]]]]:
    """Every process below this one: its command, and those of itself and its parents."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        line = [*parents, words]
        yield pid, words, line
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _iter_descendants(int(child), line)


def _bin_path() -> str:
    return f"{condor.install_dir()}/usr/bin:{condor.install_dir()}/usr/sbin:{Path(sys.executable).parent}"


USAGE = """\
{version}
A pool is up, with the sites {sites}. In another shell:

    export CONDOR_CONFIG={pool.config}
    export PATH={path}:$PATH
    {shell}
    condor_status
    packtrain run workflow.yaml --on htcondor
    condor_q

Its logs are in {pool.folder}/log. Ctrl-C ends it, with all its jobs.
"""


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="packtrain-pool-") as folder,
        CondorPool(Path(folder)) as pool,
    ):
        print(_format_usage(pool), flush=True)
        signal.pause()


def _format_usage(pool: CondorPool) -> str:
    names = ", ".join(site.name for site in pool.sites)
    version = pool.run_as_user(["condor_version"]).stdout.splitlines()[0].strip("$ ")
    user = " ".join(condor.user_prefix())
    shell = f"{user} bash    # an ordinary user: HTCondor runs no jobs of root" if user else ""
    return USAGE.format(version=version, sites=names, pool=pool, path=_bin_path(), shell=shell)


if __name__ == "__main__":
    main()
