"""From a workflow to a run on disk, in one path that the command line and the Python API share.

`prepare` loads, checks and plans a workflow and returns a `Submission`; what takes long is reported to a `Progress`.
`create_run` writes the run's folder and adds it to the store. Start reading at `prepare.prepare`.
"""

from packtrain.pixi_workspace.manifest import find_manifest
from packtrain.spec.diagnostics import WorkflowError
from packtrain.spec.models.workflow import workflow_json_schema
from packtrain.submission.create_run import create_run
from packtrain.submission.load_workflow import convert_file
from packtrain.submission.pixi_workflow import make_pixi_workflow
from packtrain.submission.prepare import Goal, Submission, prepare
from packtrain.submission.progress import Progress

__all__ = [
    "Goal",
    "Progress",
    "Submission",
    "WorkflowError",
    "convert_file",
    "create_run",
    "find_manifest",
    "make_pixi_workflow",
    "prepare",
    "workflow_json_schema",
]
