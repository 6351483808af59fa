"""The preflight of a submission: query its inputs for sizes, and add what that reveals to the plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

from packtrain.planner.plan_summary import PlanSummary, summarize_plan
from packtrain.planner.preflight import PreflightResult, add_sizes, check_input_access, run_preflight
from packtrain.planner.published_digests import check_digests
from packtrain.spec.diagnostics import Diagnostic
from packtrain.spec.user_config import load_user_config
from packtrain.submission.prepare import Submission


@dataclass(frozen=True)
class SubmissionPreflight:
    """The submission with sizes in its plan, the summary of that plan, and digests that a job could not check."""

    submission: Submission
    summary: PlanSummary
    digest_errors: tuple[Diagnostic, ...] = ()


def run_submission_preflight(submission: Submission, *, offline: bool) -> SubmissionPreflight:
    """Query the inputs for their sizes, unless `offline`, and check that the pool can reach them."""
    assert submission.plan_result is not None
    result = PreflightResult() if offline else run_preflight(submission.plan, submission.resolved_secrets.values)
    plan = add_sizes(submission.plan, result)
    summary = summarize_plan(plan, result)
    digest_errors = tuple(check_digests(plan, submission.source_map))
    access_problems: tuple[Diagnostic, ...] = ()
    if plan.engine != "local" and not digest_errors:
        submit_commands = load_user_config().htcondor.submit_commands
        access_problems = tuple(check_input_access(plan, result, submission.source_map, submit_commands))
    diagnostics = tuple(dict.fromkeys((*submission.diagnostics, *access_problems)))
    submission = replace(
        submission,
        plan_result=replace(submission.plan_result, plan=plan),
        disk_bytes=summary.disk_bytes,
        diagnostics=diagnostics,
    )
    return SubmissionPreflight(submission, summary, digest_errors)
