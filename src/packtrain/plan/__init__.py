"""The plan of a run: complete, versioned JSON that describes every job. Shipped to the worker.

A *plan* has *jobs*; a job has inputs, steps, expected outputs and limits. A *location* is a URL with the credentials
that it needs; a *secret* is the name of a file, never a value.

Start with `model` (the frozen dataclasses, whose field names are the JSON keys), then `codec` (dataclasses to JSON and
back, docs/formats/plan.md) and `run_folder` (the paths of a run). The package `planner` makes plans from workflow
files, `agent` carries them out.
"""

from packtrain.plan.codec import decode, encode, read_plan, write_plan
from packtrain.plan.model import (
    PLAN_VERSION,
    Bound,
    CheckpointConfig,
    CollectedOutput,
    Container,
    Digest,
    EnvironmentConfig,
    EnvVar,
    ExpectedOutput,
    ForAction,
    GpuRequirements,
    GroupAction,
    HostSpeed,
    HttpHeader,
    Input,
    Job,
    LaunchAction,
    Limits,
    Location,
    Mount,
    Output,
    Plan,
    Recovery,
    RemoteFile,
    Resources,
    RunAction,
    S3Access,
    Secret,
    SecretOrStr,
    Step,
    StepResources,
    UseAction,
)
from packtrain.plan.output_manifest import ManifestEntry, OutputManifest
from packtrain.plan.run_folder import AttemptFolder, RunFolder

__all__ = [
    "PLAN_VERSION",
    "AttemptFolder",
    "Bound",
    "CheckpointConfig",
    "CollectedOutput",
    "Container",
    "Digest",
    "EnvVar",
    "EnvironmentConfig",
    "ExpectedOutput",
    "ForAction",
    "GpuRequirements",
    "GroupAction",
    "HostSpeed",
    "HttpHeader",
    "Input",
    "Job",
    "LaunchAction",
    "Limits",
    "Location",
    "ManifestEntry",
    "Mount",
    "Output",
    "OutputManifest",
    "Plan",
    "Recovery",
    "RemoteFile",
    "Resources",
    "RunAction",
    "RunFolder",
    "S3Access",
    "Secret",
    "SecretOrStr",
    "Step",
    "StepResources",
    "UseAction",
    "decode",
    "encode",
    "read_plan",
    "write_plan",
]
