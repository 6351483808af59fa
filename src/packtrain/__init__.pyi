from packtrain.api import Job as Job
from packtrain.api import JobResult as JobResult
from packtrain.api import Run as Run
from packtrain.api import fetch as fetch
from packtrain.api import get_run as get_run
from packtrain.api import list_runs as list_runs
from packtrain.api import submit as submit
from packtrain.errors import FailedError as FailedError
from packtrain.errors import NotFoundError as NotFoundError
from packtrain.errors import PacktrainError as PacktrainError
from packtrain.errors import UnavailableError as UnavailableError
from packtrain.errors import UsageError as UsageError
from packtrain.spec.diagnostics import WorkflowError as WorkflowError

__version__: str
