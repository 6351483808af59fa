"""Environments with `use: site`: the machine's own `pixi` installs and activates them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping

from packtrain.agent.context import AttemptContext
from packtrain.agent.processes.output_capture import OutputCapture
from packtrain.agent.processes.process_table import ProcessSpec
from packtrain.errors import FailedError
from packtrain.plan import PixiEnvironment

_HOOK_TIMEOUT_S = 120.0


def use_site_pixi(context: AttemptContext, pixi: PixiEnvironment) -> None:
    """Install the environment with the site's pixi. Raises FailedError: environment_unsupported, activation_failed."""
    program = shutil.which("pixi")
    if program is None:
        raise FailedError(
            "environment_unsupported",
            "the workflow says `use: site`, but there is no pixi on the PATH of jobs here; remove `use: site`, or run "
            "elsewhere",
        )
    workspace = context.sandbox.root / pixi.workspace
    options = ("--frozen", "--manifest-path", str(workspace / pixi.manifest), "--environment", pixi.name)
    out, err = OutputCapture(context.redactor), OutputCapture(context.redactor)
    process = context.processes.start(
        ProcessSpec((program, "install", *options), dict(os.environ), workspace), out, err
    )
    code = process.wait()
    if code:
        context.stop.check()
        detail = (
            f"`pixi install` of the site failed with code {code}: {err.last_line() or out.last_line() or 'no output'}"
        )
        raise FailedError("environment_unsupported", detail)

    def activate(environ: Mapping[str, str]) -> dict[str, str]:
        try:
            hook = subprocess.run(
                (program, "shell-hook", "--json", *options),
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd=workspace,
                timeout=_HOOK_TIMEOUT_S,
                check=True,
            )
            return {**environ, **json.loads(hook.stdout)["environment_variables"]}
        except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
            stderr = getattr(error, "stderr", None) or b""
            last_line = stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            detail = f"`pixi shell-hook` of the site failed: {last_line or error}"
            raise FailedError("activation_failed", detail) from None

    context.pixi.activate = activate
    context.pixi.python_path = [str(workspace / folder) for folder in pixi.python_path]
    activate(os.environ)
