"""The stage `install`: provide the job's Pixi environment. It exists only in jobs that have one.

The packages are fetched, verified and installed, several at once. With a download cache, packages and installed
prefixes are shared with other jobs; otherwise the prefix is a part of the sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from packtrain.agent.context import AttemptContext, StageStats
from packtrain.agent.live.progress import StageProgress
from packtrain.agent.stages.gpu_kernel import check_gpu_kernel
from packtrain.agent.stages.unpack import max_unpacked_bytes
from packtrain.errors import FailedError, FormatError
from packtrain.pixi.activation import Activation, activate, shell_hook
from packtrain.pixi.installer import InstallResult, install_packages
from packtrain.pixi.package_extractor import PrefixTooLongError
from packtrain.pixi.package_sources import PackageFetcher
from packtrain.pixi.pixi_command import write_pixi_command
from packtrain.pixi.prefix_store import ensure_prefix
from packtrain.plan import ENVIRONMENT_FILE, PixiEnvironment, PixiLock, RemoteFile, read_pixi_lock
from packtrain.transfer.fetch import fetch
from packtrain.transfer.urls import join_url

_MAX_PREFIX_BYTES = 255  # the length of the placeholder that conda-build and rattler-build use
_SHORT_ROOT = Path("/tmp")  # noqa: S108 - only a link with a random name is created there
_FULL_DISK_KINDS = frozenset({"disk_full", "archive_too_large"})  # of the cache; the scratch may have space
_KEY_CHARS = 32  # of the digest: the prefix is a part of many paths, so it should be short


def install_environment(context: AttemptContext, stats: StageStats) -> None:
    """Install and activate the job's Pixi environment.

    Raises:
        FailedError: package_broken, environment_unsupported, activation_failed, archive_too_large, disk_full, and
            everything a transfer may raise.
    """
    pixi = context.job.environment.pixi
    assert pixi is not None
    if pixi.use == "site":
        from packtrain.agent.stages.site_pixi import use_site_pixi

        use_site_pixi(context, pixi)
        return
    prefix, lock = _Installation(context, pixi, stats).provide()
    activation = make_activation(context, pixi, prefix)
    state = context.pixi
    state.activate = lambda environ: activate(activation, environ)
    state.python_path = [str(context.sandbox.root / pixi.workspace / folder) for folder in pixi.python_path]
    state.command_folder = _write_command(context, pixi, activation, lock)
    state.activate(os.environ)  # its errors belong to this stage
    check_gpu_kernel(context, prefix, lock)


class _Installation:
    """Provides the prefix of one environment."""

    def __init__(self, context: AttemptContext, pixi: PixiEnvironment, stats: StageStats) -> None:
        self._context, self._pixi, self._stats = context, pixi, stats
        self._check_cancelled = context.stop.check
        self._result: InstallResult | None = None

    def provide(self) -> tuple[str, PixiLock]:
        """Return the installed prefix and its packages."""
        self._stats.update(packages=self._pixi.n_packages, bytes=0, files=0, retries=0, source="")
        self._lock = self._fetch_lock()
        try:
            prefix = self._provide_shared() or self._provide_private(self._private_folder)
        except PrefixTooLongError as error:
            prefix = self._provide_by_short_link(error)
        self._stats.update(prefix=prefix, was_installed=self._result is not None)
        return prefix, self._lock

    @property
    def _private_folder(self) -> Path:
        return self._context.sandbox.root / ".pixi" / "envs" / self._pixi.name

    def _fetch_lock(self) -> PixiLock:
        path = self._context.sandbox.tmp / ENVIRONMENT_FILE
        location = replace(self._pixi.folder, url=join_url(self._pixi.folder.url, ENVIRONMENT_FILE))
        fetch(
            RemoteFile(ENVIRONMENT_FILE, (location,)),
            path,
            self._context.secrets.resolve_secret,
            retry_timeout_s=self._context.job.retry_timeout_s,
            check_cancelled=self._check_cancelled,
            on_progress=lambda done, total: None,
        )
        try:
            return read_pixi_lock(path)
        except FormatError as error:
            raise FailedError("plan_unreadable", str(error)) from error
        finally:
            path.unlink()

    def _provide_shared(self) -> str | None:
        """Return the prefix in the download cache, or None if it cannot be there."""
        cache, pixi = self._context.download_cache, self._pixi
        if cache is None:
            return None
        key = pixi.digest[:_KEY_CHARS]
        opened = cache.environment_dir(key, f"Pixi environment {pixi.name}", pixi.installed_bytes)
        path = self._context.pixi.resources.enter_context(opened)
        if path is None or len(os.fsencode(path)) > _MAX_PREFIX_BYTES:
            return None
        try:
            self._ensure_shared(path)
            if self._result is not None:
                cache.set_size(key, self._result.bytes)
            return str(path)
        except (OSError, FailedError) as error:
            if isinstance(error, FailedError) and error.kind not in _FULL_DISK_KINDS:
                raise
            self._context.emit_notice("install", f"the environment cannot be in the download cache: {error}")
            return None

    def _ensure_shared(self, path: Path) -> None:
        def report_wait() -> None:
            text = f"another job installs the environment {self._pixi.name}; waiting for it"
            self._context.emit_notice("install", text)

        path.parent.mkdir(parents=True, exist_ok=True)
        ensure_prefix(path, lambda folder: self._install(folder, str(path)), self._check_cancelled, report_wait)

    def _provide_private(self, folder: Path, prefix: str = "") -> str:
        """Install a prefix that belongs to this job."""
        prefix = prefix or str(folder)
        if len(os.fsencode(prefix)) > _MAX_PREFIX_BYTES:
            raise PrefixTooLongError(prefix, _MAX_PREFIX_BYTES)
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = folder.with_name(f"{folder.name}.new-{os.urandom(4).hex()}")
        self._install(new, prefix)
        new.rename(folder)
        return prefix

    def _provide_by_short_link(self, error: PrefixTooLongError) -> str:
        """Install a private prefix whose path is a short link."""
        link = _SHORT_ROOT / f"packtrain-{os.urandom(4).hex()}"
        self._context.emit_notice("install", f"{error}; the environment {self._pixi.name} is used by the link {link}")
        try:
            link.symlink_to(self._private_folder)
        except OSError as link_error:
            raise _too_long_error(error, link_error) from link_error
        self._context.pixi.resources.callback(link.unlink)
        try:
            return self._provide_private(self._private_folder, str(link))
        except PrefixTooLongError as second_error:
            raise _too_long_error(error, second_error) from second_error

    def _install(self, folder: Path, prefix: str) -> None:
        context, pixi = self._context, self._pixi
        packages = context.sandbox.tmp / "packages"
        packages.mkdir(exist_ok=True)
        progress = StageProgress(context.journal, "install", pixi.download_bytes if not pixi.n_unknown_sizes else None)
        fetcher = PackageFetcher(
            pixi,
            packages,
            context.download_cache,
            context.secrets.resolve_secret,
            retry_timeout_s=context.job.retry_timeout_s,
            check_cancelled=self._check_cancelled,
            on_progress=progress.start_part(pixi.name),
        )
        try:
            self._result = install_packages(
                self._lock,
                folder,
                prefix,
                fetcher.open_package,
                max_bytes=max_unpacked_bytes(context, 0),
                name=f"the environment {pixi.name}",
                check_cancelled=self._check_cancelled,
            )
        finally:
            self._stats.update(vars(fetcher.downloads))
        progress.finish_part(fetcher.downloads.bytes)
        progress.finish()
        self._stats.update(unpacked_files=self._result.files, unpacked_bytes=self._result.bytes)


def _too_long_error(error: PrefixTooLongError, second_error: Exception) -> FailedError:
    detail = f"{error}, and no shorter path could be used: {second_error}; use a shorter scratch folder"
    return FailedError("environment_unsupported", detail)


def make_activation(context: AttemptContext, pixi: PixiEnvironment, prefix: str) -> Activation:
    """Return what activates the environment on this machine."""
    workspace = context.sandbox.root / pixi.workspace
    return Activation(
        prefix,
        _pixi_variables(pixi, workspace),
        tuple(str(workspace / script) for script in pixi.activation_scripts),
        {variable.key: context.secrets.resolve_secret(variable.value) for variable in pixi.activation_env},
    )


def _pixi_variables(pixi: PixiEnvironment, workspace: Path) -> Mapping[str, str]:
    """Return the variables that tell programs which environment they are in."""
    label = pixi.workspace_name if pixi.name == "default" else f"{pixi.workspace_name}:{pixi.name}"
    return {
        "CONDA_DEFAULT_ENV": label,
        "PIXI_PROJECT_ROOT": str(workspace),
        "PIXI_PROJECT_NAME": pixi.workspace_name,
        "PIXI_PROJECT_MANIFEST": str(workspace / pixi.manifest),
        "PIXI_PROJECT_VERSION": pixi.workspace_version or "NO_VERSION_SPECIFIED",
        "PIXI_ENVIRONMENT_NAME": pixi.name,
        "PIXI_ENVIRONMENT_PLATFORMS": ",".join(pixi.platforms),
        "PIXI_PROMPT": f"({label}) ",
        "PIXI_IN_SHELL": "1",
    }


def _write_command(context: AttemptContext, pixi: PixiEnvironment, activation: Activation, lock: PixiLock) -> Path:
    folder = context.sandbox.root / ".pixi" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    hook_file = folder.with_name("shell-hook.sh")
    hook_file.write_text(shell_hook(activation), encoding="utf-8")
    write_pixi_command(folder / "pixi", pixi.name, context.sandbox.root / pixi.workspace, hook_file, lock.tasks)
    return folder
