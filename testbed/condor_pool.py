"""A real HTCondor pool of three sites on this machine. It starts in seconds and ends with its parent process.

    with CondorPool(folder) as pool:
        pool.run_as_user(["condor_submit", "job.sub"], cwd=…)   # as an ordinary user of the pool
        pool.run_packtrain(["run", "workflow.yaml", "--on", "htcondor"], cwd=…)
        pool.queue("ClusterId == 1")                            # the jobs, as dicts
        pool.kill_daemon("schedd"); pool.wait_until_up()
        with pool.override_config(MAX_TRANSFER_INPUT_MB=5), pool.disconnect_site("PDX-Coeus-CE1"): …

Jobs trust the CAs given to `trust_ca`, and osdf:/// URLs refer to the federation given to `set_federation`.
`python -m testbed.condor_pool` (or `make pool`) starts a pool for interactive use.
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
from testbed.condor_security import TrustedCertificates
from testbed.ports import reserve_ports
from testbed.site_cgroups import SiteCgroups

_TIMEOUT_S = 180.0  # generous, for a busy machine
T = TypeVar("T")


class CondorPool:
    """A pool. `folder` holds its configuration, logs, queue and sandboxes."""

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
        init = [sys.executable, "-m", "testbed.condor_init", str(condor.program_path("condor_master")), "-f"]
        certificates = {"X509_CERT_DIR": str(self._trusted_certificates.folder)}  # for HTCondor's own plugins
        with open(self.folder / "log/master.out", "wb") as log:
            self._process = subprocess.Popen(
                [*condor.pid_namespace_prefix(), *init],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=debian.PROJECT_ROOT,
                env=self.user_environment | certificates,
                start_new_session=True,  # Ctrl-C must not reach the daemons
            )
        try:
            self.wait_until_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.communicate()  # closes its standard input, which ends it
        self.site_cgroups.remove()
        self._trusted_certificates.remove()

    @property
    def user_environment(self) -> dict[str, str]:
        """The environment of a user's shell."""
        path = f"{_bin_path()}:{os.environ['PATH']}"
        return {**os.environ, "CONDOR_CONFIG": str(self.config_path), "PATH": path}

    def user_command(self, argv: Sequence[object]) -> list[str]:
        """Return argv to run a command as a user of the pool. It needs `user_environment`."""
        return [*condor.user_prefix(), *map(str, argv)]

    def run_as_user(self, argv: Sequence[object], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        """Run a command as a user of the pool. `kwargs` go to subprocess.run; failure raises unless `check=False`."""
        check = kwargs.pop("check", True)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": self.user_environment, **kwargs}
        result: subprocess.CompletedProcess[str] = subprocess.run(self.user_command(argv), text=True, **options)
        if check and result.returncode:
            raise RuntimeError(
                f"{' '.join(map(str, argv))}: exit {result.returncode}\n{result.stdout}\n{result.stderr}"
            )
        return result

    def run_packtrain(self, arguments: Sequence[object], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        """Run packtrain as a user of the pool."""
        return self.run_as_user([sys.executable, "-m", "packtrain", *arguments], **kwargs)

    def queue(self, constraint: str = "true", *attributes: str) -> list[dict[str, Any]]:
        """Return the ads of the jobs in the queue."""
        return self._query_ads("condor_q", "-allusers", constraint, attributes)

    def history(self, constraint: str = "true", *attributes: str) -> list[dict[str, Any]]:
        """Wait for the ads of jobs that left the queue, which are written shortly after the job's log."""
        return self.wait_for(
            lambda: self._query_ads("condor_history", "-forwards", constraint, attributes),
            f"the history has no job with {constraint}",
        )

    def _query_ads(self, tool: str, option: str, constraint: str, attributes: Sequence[str]) -> list[dict[str, Any]]:
        projection = ["-attributes", ",".join(attributes)] if attributes else []
        output = self.run_as_user([tool, option, "-json", "-constraint", constraint, *projection]).stdout
        return list(json.loads(output or "[]"))

    def wait_for_job(self, constraint: str, *, status: int, attributes: Sequence[str] = ()) -> dict[str, Any]:
        """Wait for the first matching job with this status (1 idle, 2 running, 5 held) and return its ad."""
        full_constraint = f"({constraint}) && JobStatus == {status}"
        return self.wait_for(lambda: self.queue(full_constraint, *attributes), f"no job with {full_constraint}")[0]

    def wait_for(self, condition: Callable[[], T], message: str) -> T:
        """Poll `condition` until it returns something true. Raises TimeoutError with `message`."""
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            if result := condition():
                return result
            time.sleep(0.1)
        raise TimeoutError(f"{message}; the pool's logs are in {self.folder / 'log'}")

    def trust_ca(self, ca_file: Path) -> None:
        """Make transfer plugins and jobs trust this CA."""
        self._trusted_certificates.add(ca_file)

    def set_federation(self, host: str) -> None:
        """Make osdf:/// URLs refer to this federation, for the pool's own plugin."""
        (self.folder / "etc/federation").write_text(host)

    @contextlib.contextmanager
    def override_config(self, **settings: object) -> Iterator[None]:
        """Change settings of the daemons, in a `with` block."""
        overrides = condor_config.dynamic_config_path(self.folder)
        before = {name: self.get_setting(name) for name in settings}
        overrides.write_text(condor_config.format_settings(settings))
        self._reconfigure({name: str(value) for name, value in settings.items()})
        try:
            yield
        finally:
            overrides.unlink()
            self._reconfigure(before)

    def get_setting(self, name: str) -> str | None:
        """Return a setting of the running schedd, or None if it is not set."""
        result = self.run_as_user(["condor_config_val", "-schedd", "-name", SCHEDD_NAME, name], check=False)
        return result.stdout.strip() if result.returncode == 0 else None

    def _reconfigure(self, expected: dict[str, str | None]) -> None:
        self.kill_daemon("master", signum=signal.SIGHUP)  # it reconfigures all other daemons
        self.wait_for(
            lambda: all(self.get_setting(n) == v for n, v in expected.items()),
            f"the schedd does not have the settings {expected}",
        )

    def disconnect_site(self, site: str) -> contextlib.AbstractContextManager[None]:
        """Disconnect a site from the network in a `with` block. Its processes keep running."""
        return self.site_cgroups.disconnect(self._site_index(site))

    def kill_daemon(self, daemon: str, site: str | None = None, signum: int = signal.SIGKILL) -> int:
        """Send a signal to all masters, schedds, shadows, starters or startds (of a site). Return their number."""
        pids = list(self.find_processes(daemon, site))
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)
        return len(pids)

    def find_processes(self, daemon: str, site: str | None = None) -> Iterator[int]:
        """Yield the process ids of a daemon, of one site if given."""
        name = f"site{self._site_index(site)}" if site else None
        for pid, argv, lineage in self._process_tree():
            if argv[0].endswith(f"condor_{daemon}") and (name is None or any(name in other for other in lineage)):
                yield pid

    def process_commands(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the process id and argv of everything that runs in the pool, daemons and jobs."""
        return ((pid, argv) for pid, argv, _ in self._process_tree())

    def _process_tree(self) -> Iterator[tuple[int, list[str], list[list[str]]]]:
        assert self._process is not None
        return _iter_descendants(self._process.pid, [])

    def _site_index(self, site: str) -> int:
        return [pool_site.name for pool_site in self.sites].index(site)

    def wait_until_up(self) -> None:
        """Wait until all daemons have registered with the collector and the schedd responds."""
        assert self._process is not None
        process = self._process
        self.wait_for(lambda: process.poll() is not None or self._is_up(), "the pool did not start")
        if process.poll() is not None:
            raise RuntimeError(f"the pool did not start:\n{(self.folder / 'log/master.out').read_text()[-2000:]}")

    def _is_up(self) -> bool:
        types = self.run_as_user(["condor_status", "-any", "-af", "MyType"], check=False).stdout.split()
        is_complete = types.count("Machine") >= len(self.sites) and "Scheduler" in types
        return is_complete and self.run_as_user(["condor_q", "-totals"], check=False).returncode == 0


def _iter_descendants(pid: int, ancestors: list[list[str]]) -> Iterator[tuple[int, list[str], list[list[str]]]]:
    """Yield every process below this one: pid, argv, and the argvs of its ancestors and itself."""
    with contextlib.suppress(OSError):
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        lineage = [*ancestors, argv]
        yield pid, argv, lineage
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _iter_descendants(int(child), lineage)


def _bin_path() -> str:
    return f"{condor.install_dir()}/usr/bin:{condor.install_dir()}/usr/sbin:{Path(sys.executable).parent}"


USAGE = """\
{version}
A pool with the sites {sites} is running. In another shell:

    export CONDOR_CONFIG={pool.config_path}
    export PATH={path}:$PATH
    {shell}
    condor_status
    packtrain run workflow.yaml --on htcondor
    condor_q

Its logs are in {pool.folder}/log. Ctrl-C stops it with all its jobs.
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
    shell = f"{user} bash    # as an ordinary user: HTCondor refuses jobs of root" if user else ""
    return USAGE.format(version=version, sites=names, pool=pool, path=_bin_path(), shell=shell)


if __name__ == "__main__":
    main()
