"""A Slurm cluster of three nodes: starts in about a second, and ends with the process that started it.

    with Cluster(folder, "26.05") as cluster:
        cluster.run(["sbatch", "--parsable", "job.sh"])    as an ordinary user
        cluster.kill("slurmctld"); cluster.start("slurmctld")
        cluster.lose_node("n2")                            its slurmd and slurmstepd are killed

With `accounting=True` slurmdbd and a MariaDB server run, too, and sacct answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import condor, ports
from testbed.slurm import config, install
from testbed.slurm.config import NODES, Node, Ports

_START_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 0.05
_MAPPED_UID = 5  # see `condor.user_prefix`


class Cluster:
    """A running cluster; a context manager.

    Attributes:
        folder: Configuration, state, spool and logs.
        user: The user that runs the daemons and the jobs.
        version: Slurm's major version, e.g. (22, 5).
        pids: Process ids of the daemons by name: munged, mariadbd, slurmdbd, slurmctld; a slurmd has its node's name.
    """

    def __init__(
        self,
        folder: Path,
        version: str = install.NEWEST,
        *,
        nodes: Sequence[Node] = NODES,
        accounting: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Write the configuration.

        Args:
            folder: A new folder, or that of a cluster that has ended: then its jobs and job numbers continue.
            version: A key of `install.SUITES`.
            nodes: The nodes.
            accounting: Run slurmdbd.
            settings: Lines of slurm.conf that replace the default ones.
        """
        self.folder, self.nodes, self.accounting = folder.resolve(), tuple(nodes), accounting
        major, minor = version.split(".")
        self.version = (int(major), int(minor))
        self.slurm_dir = install.slurm_dir(version)
        self.folder.mkdir(parents=True, exist_ok=True)
        slurmctld, slurmdbd, *node_ports = ports.reserve_ports(2 + len(self.nodes))
        self._ports = Ports(slurmctld, slurmdbd, tuple(node_ports))
        self.user = pwd.getpwuid(_MAPPED_UID if os.geteuid() == 0 else os.geteuid()).pw_name
        self.conf = config.write_config(
            self.folder,
            self.slurm_dir,
            version=self.version,
            ports=self._ports,
            nodes=self.nodes,
            user=self.user,
            settings=settings or {},
            has_accounting=accounting,
        )
        self.pids: dict[str, int] = {}
        self._init: subprocess.Popen[str] | None = None

    def __enter__(self) -> Cluster:
        init_argv = [sys.executable, str(Path(__file__).with_name("init.py"))]
        self._init = subprocess.Popen(
            [*condor.pid_namespace_prefix(), *init_argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            self.start("munged")
            self.wait_until((self.folder / "munge/socket").exists, "munged did not start")
            if self.accounting:
                self._start_accounting()
            self.start("slurmctld")
            for node in self.nodes:
                self.start(node.name)
            self.wait_until_idle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._init is not None and self._init.stdin is not None:
            self._init.stdin.close()
            self._init.wait()
            self._init = None

    @property
    def env(self) -> dict[str, str]:
        """The environment of a user of the cluster."""
        path = f"{self.slurm_dir}/usr/bin:{self.slurm_dir}/usr/sbin:{os.environ['PATH']}"
        database = {"MYSQL_UNIX_PORT": str(self.folder / "db/socket")} if self.accounting else {}
        return {**os.environ, **database, "SLURM_CONF": str(self.conf), "PATH": path}

    def run(self, argv: Sequence[object], check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command as an ordinary user of the cluster."""
        defaults: dict[str, Any] = {"capture_output": True, "text": True, "env": self.env}
        result = subprocess.run([*condor.user_prefix(), *map(str, argv)], **{**defaults, **options})
        if check and result.returncode:
            raise RuntimeError(
                f"{' '.join(map(str, argv))}: exit code {result.returncode}\n{result.stdout}{result.stderr}"
            )
        return result

    def cancel_all(self) -> None:
        """Cancel all jobs and wait until they have left their nodes."""
        self.run(["scancel", "--user", self.user])
        self.wait_until(lambda: not self.run(["squeue", "-h"]).stdout, "cancelled jobs still run")

    def start(self, name: str) -> int:
        """Start a daemon, a key of `pids`, and return its process id."""
        assert self._init is not None and self._init.stdin is not None and self._init.stdout is not None
        request = {
            "argv": self._daemon_argv(name),
            "env": self.env,
            "log": str(self.folder / f"log/{name}.out"),
            "cwd": str(self.folder),
        }
        self._init.stdin.write(json.dumps(request) + "\n")
        self._init.stdin.flush()
        self.pids[name] = self._outer_pid(int(self._init.stdout.readline()))
        return self.pids[name]

    def kill(self, name: str, signal_number: int = signal.SIGKILL) -> None:
        """Send a signal to a daemon."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[name], signal_number)

    def stop(self, name: str) -> None:
        """End a daemon so that it saves its state, and wait for its end."""
        self.kill(name, signal.SIGTERM)
        self.wait_until(lambda: not Path(f"/proc/{self.pids[name]}").exists(), f"{name} did not stop")

    def kill_job_steps(self, node_name: str) -> int:
        """Kill the slurmstepd processes of all jobs on a node, and return how many there were.

        The programs of the jobs survive, as on a node that only lost its network.
        """
        job_ids = self.run(["squeue", "-h", "-w", node_name, "-o", "%A"]).stdout.split()
        titles = tuple(f"slurmstepd: [{job_id}." for job_id in job_ids)
        pids = [pid for pid, argv in self._processes() if argv[0].startswith(titles)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def kill_processes(self, text: str) -> int:
        """Kill the cluster's processes, also those of jobs, whose command line has a text; return how many."""
        pids = [pid for pid, argv in self._processes() if any(text in argument for argument in argv)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def lose_node(self, node_name: str) -> None:
        """Kill the slurmd of a node and the slurmstepd of its jobs. `start` brings the node back."""
        self.kill_job_steps(node_name)
        self.kill(node_name)

    def restart_controller(self) -> None:
        """Kill slurmctld with SIGKILL, start it again and wait until it answers."""
        self.kill("slurmctld")
        self.start("slurmctld")
        self.wait_for_controller()

    def wait_for_controller(self) -> None:
        """Wait until slurmctld answers."""
        self.wait_until(
            lambda: self.run(["scontrol", "ping"], check=False).returncode == 0, "slurmctld does not answer"
        )

    def wait_until_idle(self) -> None:
        """Wait until all nodes accept jobs."""

        def are_nodes_up() -> bool:
            output = self.run(["sinfo", "-h", "-N", "-p", "main", "-o", "%T"], check=False).stdout
            return sum(state in ("idle", "mixed") for state in output.split()) >= len(self.nodes)

        self.wait_until(are_nodes_up, "the nodes did not become idle")

    def _daemon_argv(self, name: str) -> list[str]:
        folder = self.folder
        if name == "munged":
            return [
                self._program("munged"), "--foreground", "--force", "--num-threads=4",
                f"--key-file={folder}/munge/key", f"--socket={folder}/munge/socket", f"--pid-file={folder}/munge/pid",
                f"--log-file={folder}/log/munged.log", f"--seed-file={folder}/munge/seed",
            ]  # fmt: skip
        if name == "mariadbd":
            return self._mariadbd_argv()
        if name == "slurmdbd":
            return [self._program("slurmdbd"), "-D"]
        if name == "slurmctld":
            # 26.05 that was killed before it first saved the usage of accounts does not start again without -i.
            ignore_state_errors = ["-i"] if self.accounting else []
            return [self._program("slurmctld"), "-D", *ignore_state_errors, "-f", str(self.conf)]
        return [self._program("slurmd"), "-D", "-N", name, "-f", str(self.conf), "-d", self._program("slurmstepd")]

    def _program(self, name: str) -> str:
        candidates = (self.slurm_dir / folder / name for folder in ("usr/sbin", "usr/bin"))
        return str(next(path for path in candidates if path.exists()))

    def _start_accounting(self) -> None:
        if not (self.folder / "db/data/mysql").exists():
            self._create_database()
        self.start("mariadbd")
        self.wait_until((self.folder / "db/socket").exists, "mariadbd did not start")
        self.start("slurmdbd")
        self.wait_until(lambda: _is_listening(self._ports.slurmdbd), "slurmdbd did not start")

    def _create_database(self) -> None:
        """Create the system tables, which slurmdbd's stored procedures need, and an empty database.

        There are no accounts: only this user can open the socket.
        """
        (self.folder / "db/data").mkdir(parents=True, exist_ok=True)
        system_tables = (install.mariadb_dir() / "usr/share/mysql/mysql_system_tables.sql").read_bytes()
        sql = b"create database mysql;\nuse mysql;\n" + system_tables + b"\ncreate database slurm_acct;\n"
        with open(self.folder / "log/mariadb-install.out", "wb") as log:
            argv = [*condor.user_prefix(), *self._mariadbd_argv(), "--bootstrap"]
            subprocess.run(argv, input=sql, stdout=log, stderr=log, check=True)

    def _mariadbd_argv(self) -> list[str]:
        database, mariadb = self.folder / "db", install.mariadb_dir()
        return [
            f"{mariadb}/usr/sbin/mariadbd", "--no-defaults", "--skip-grant-tables", "--skip-networking",
            f"--datadir={database}/data", f"--socket={database}/socket", f"--pid-file={database}/pid",
            f"--plugin-dir={database}", f"--lc-messages-dir={mariadb}/usr/share/mysql",
            "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--innodb-lock-wait-timeout=900",
            "--innodb-flush-log-at-trx-commit=0", "--innodb-temp-data-file-path=ibtmp1:1M:autoextend",
            "--innodb-data-file-path=ibdata1:1M:autoextend", "--innodb-undo-tablespaces=0",
        ]  # fmt: skip

    def wait_until(self, condition: Callable[[], bool], message: str, timeout_s: float = _START_TIMEOUT_S) -> None:
        """Wait until the condition is true. Raises TimeoutError with the message and the path of the logs."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline or self._init is None or self._init.poll() is not None:
                raise TimeoutError(f"{message}; the logs are in {self.folder / 'log'}")
            time.sleep(_POLL_INTERVAL_S)

    def _outer_pid(self, inner_pid: int) -> int:
        """Return the process id outside of the namespace."""
        for pid, _ in self._processes():
            with contextlib.suppress(OSError):
                match = re.search(r"^NSpid:\s+(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
                namespace_pids = match[1].split() if match else []
                if len(namespace_pids) > 1 and namespace_pids[-1] == str(inner_pid):
                    return pid
        raise RuntimeError(f"the daemon with process id {inner_pid} in the namespace has exited")

    def _processes(self) -> Iterator[tuple[int, list[str]]]:
        assert self._init is not None
        return _descendants(self._init.pid)


def _descendants(pid: int) -> Iterator[tuple[int, list[str]]]:
    with contextlib.suppress(OSError):
        yield pid, Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _descendants(int(child))


def _is_listening(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
