"""Check that the PyTorch of a Pixi environment can use the GPU: a driver may load, and still not run its kernels."""

from __future__ import annotations

import os

from packtrain.agent.context import AttemptContext
from packtrain.agent.processes.output_capture import OutputCapture
from packtrain.agent.processes.process_table import ProcessSpec
from packtrain.errors import FailedError
from packtrain.plan import PixiLock

_PYTORCH_NAMES = frozenset({"pytorch", "pytorch-gpu", "torch"})
_PROGRAM = "import torch; x = torch.ones(8, device='cuda'); assert float((x + x).sum()) == 16"


def check_gpu_kernel(context: AttemptContext, prefix: str, lock: PixiLock) -> None:
    """Run a tiny kernel if the job requests GPUs and has PyTorch. Raises FailedError: gpu_unusable."""
    if not context.job.resources.gpus or not _PYTORCH_NAMES & {package.name for package in lock.packages}:
        return
    assert context.pixi.activate is not None
    variables = context.pixi.activate(os.environ)
    out, err = OutputCapture(context.redactor), OutputCapture(context.redactor)
    spec = ProcessSpec((f"{prefix}/bin/python", "-c", _PROGRAM), variables, context.sandbox.root)
    code = context.processes.start(spec, out, err).wait()
    if code:
        context.stop.check()
        raise FailedError(
            "gpu_unusable",
            "the PyTorch of the Pixi environment cannot run a kernel on this GPU: "
            f"{err.last_line() or f'exit code {code}'}; use another node, or lock packages for this GPU and its driver",
        )
