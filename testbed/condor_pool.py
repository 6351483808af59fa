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
from testbed.condor_config import SCHEDD, SITES, Site
from testbed.condor_network import Groups
from testbed.condor_security import Trust
from testbed.ports import free_ports

_PATIENCE_S = 60.0
Found = TypeVar("Found")


class Pool:
    """`folder` is the pool's own: configuration, logs, queue, sandboxes."""

    def __init__(self, folder: Path, *, sites: Sequence[Site] = SITES, patience_s: float = _PATIENCE_S) -> None:
        self.folder, self.sites, self._patience_s = folder.resolve(), tuple(sites), patience_s
        self._trust, self.groups = Trust(), Groups(len(self.sites))
        self.config = condor_config.write(self.folder, free_ports(1)[0], self.sites, self._trust.folder)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Pool:
        self.groups.make()
        self._trust.make()
        for number in range(len(self.sites)):
            condor_config.write_startd(self.folder, number, self.groups.join(number))
        keeper = [sys.executable, "-m", "testbed.condor_init", str(condor.program("condor_master")), "-f"]
        more = {"X509_CERT_DIR": str(self._trust.folder)}  # for HTCondor's own plugins
        with open(self.folder / "log/master.out", "wb") as log:
            self._process = subprocess.Popen(
                [*condor.in_own_processes(), *keeper],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=debian.PROJECT,
                env=self.environment | more,
                start_new_session=True,  # Ctrl-C is for whoever started it
            )
        try:
            self.await_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.communicate()  # the end of its input ends it
        self.groups.remove()
        self._trust.remove()

    # What a user does

    @property
    def environment(self) -> dict[str, str]:
        """What a user's shell has there."""
        path = f"{_paths()}:{os.environ['PATH']}"
        return {**os.environ, "CONDOR_CONFIG": str(self.config), "PATH": path}

    def command(self, command: Sequence[object]) -> list[str]:
        """The command as one of a user of the pool; it needs `environment`."""
        return [*condor.as_user(), *map(str, command)]

    def run(self, command: Sequence[object], **more: Any) -> subprocess.CompletedProcess[str]:
        """Such a command, to its end; `more` is for subprocess.run. Unless `check=False` it must succeed."""
        check = more.pop("check", True)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": self.environment, **more}
        done: subprocess.CompletedProcess[str] = subprocess.run(self.command(command), text=True, **options)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def packtrain(self, arguments: Sequence[object], **more: Any) -> subprocess.CompletedProcess[str]:
        return self.run([sys.executable, "-m", "packtrain", *arguments], **more)

    def queue(self, constraint: str = "true", *attributes: str) -> list[dict[str, Any]]:
        """The ads of the jobs in the queue."""
        return self._ads("condor_q", "-allusers", constraint, attributes)

    def history(self, constraint: str = "true", *attributes: str) -> list[dict[str, Any]]:
        """The ads of jobs that left the queue; waited for, since they are written a moment after the job's log."""
        return self.await_some(
            lambda: self._ads("condor_history", "-forwards", constraint, attributes),
            f"the history has no job with {constraint}",
        )

    def _ads(self, tool: str, option: str, constraint: str, attributes: Sequence[str]) -> list[dict[str, Any]]:
        wanted = ["-attributes", ",".join(attributes)] if attributes else []
        said = self.run([tool, option, "-json", "-constraint", constraint, *wanted]).stdout
        return list(json.loads(said or "[]"))

    def await_job(self, constraint: str, *, status: int, attributes: Sequence[str] = ()) -> dict[str, Any]:
        """The ad of the first job that fits, once it has the status (1 idle, 2 running, 5 held)."""
        wanted = f"({constraint}) && JobStatus == {status}"
        return self.await_some(lambda: self.queue(wanted, *attributes), f"no job with {wanted}")[0]

    def await_some(self, look: Callable[[], Found], otherwise: str) -> Found:
        deadline = time.monotonic() + self._patience_s
        while time.monotonic() < deadline:
            if found := look():
                return found
            time.sleep(0.1)
        raise TimeoutError(f"{otherwise}; the pool's logs are in {self.folder / 'log'}")

    # What sites offer

    def trust(self, authority: Path) -> None:
        """Let transfer plugins and jobs take certificates of this CA."""
        self._trust.add(authority)

    def federation(self, host: str) -> None:
        """Let osdf:///… be of this federation, for the pool's own plugin."""
        (self.folder / "etc/federation").write_text(host)

    @contextlib.contextmanager
    def configured(self, **settings: object) -> Iterator[None]:
        """Other settings of the daemons for a while."""
        knobs = condor_config.knobs(self.folder)
        before = {name: self.setting(name) for name in settings}
        knobs.write_text(condor_config.lines(settings))
        self._reconfigure({name: str(value) for name, value in settings.items()})
        try:
            yield
        finally:
            knobs.unlink()
            self._reconfigure(before)

    def setting(self, name: str) -> str | None:
        """A setting as the schedd has it now."""
        told = self.run(["condor_config_val", "-schedd", "-name", SCHEDD, name], check=False)
        return told.stdout.strip() if told.returncode == 0 else None

    def _reconfigure(self, wanted: dict[str, str | None]) -> None:
        self.kill("master", number=signal.SIGHUP)  # which tells all others
        self.await_some(lambda: all(self.setting(n) == v for n, v in wanted.items()), f"the schedd has not {wanted}")

    # What befalls it

    def cut(self, site: str) -> contextlib.AbstractContextManager[None]:
        """`with`: nothing comes to the site nor leaves it; all that runs there goes on."""
        return self.groups.cut(self._number(site))

    def kill(self, daemon: str, site: str | None = None, number: int = signal.SIGKILL) -> int:
        """A signal to all masters, schedds, shadows, starters or startds (of the site); how many there were."""
        found = list(self.processes(daemon, site))
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(found)

    def processes(self, daemon: str, site: str | None = None) -> Iterator[int]:
        mine = f"site{self._number(site)}" if site else None
        for pid, words, parents in self._tree():
            if words[0].endswith(f"condor_{daemon}") and (mine is None or any(mine in line for line in parents)):
                yield pid

    def commands(self) -> Iterator[tuple[int, list[str]]]:
        """All that runs in the pool, daemons and jobs."""
        return ((pid, words) for pid, words, _ in self._tree())

    def _tree(self) -> Iterator[tuple[int, list[str], list[list[str]]]]:
        assert self._process is not None
        return _descendants(self._process.pid, [])

    def _number(self, site: str) -> int:
        return [known.name for known in self.sites].index(site)

    def await_up(self) -> None:
        """Until all daemons have told the collector of themselves and the schedd answers."""
        assert self._process is not None
        process = self._process
        self.await_some(lambda: process.poll() is not None or self._is_up(), "the pool did not start")
        if process.poll() is not None:
            raise RuntimeError(f"the pool did not start:\n{(self.folder / 'log/master.out').read_text()[-2000:]}")

    def _is_up(self) -> bool:
        seen = self.run(["condor_status", "-any", "-af", "MyType"], check=False).stdout.split()
        enough = seen.count("Machine") >= len(self.sites) and "Scheduler" in seen
        return enough and self.run(["condor_q", "-totals"], check=False).returncode == 0


def _descendants(pid: int, parents: list[list[str]]) -> Iterator[tuple[int, list[str], list[list[str]]]]:
    """Every process below this one: its command, and those of itself and its parents."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        line = [*parents, words]
        yield pid, words, line
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _descendants(int(child), line)


def _paths() -> str:
    return f"{condor.folder()}/usr/bin:{condor.folder()}/usr/sbin:{Path(sys.executable).parent}"


HOW_TO = """\
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
        Pool(Path(folder)) as pool,
    ):
        print(_how_to(pool), flush=True)
        signal.pause()


def _how_to(pool: Pool) -> str:
    names = ", ".join(site.name for site in pool.sites)
    version = pool.run(["condor_version"]).stdout.splitlines()[0].strip("$ ")
    user = " ".join(condor.as_user())
    shell = f"{user} bash    # an ordinary user: HTCondor runs no jobs of root" if user else ""
    return HOW_TO.format(version=version, sites=names, pool=pool, path=_paths(), shell=shell)


if __name__ == "__main__":
    main()
