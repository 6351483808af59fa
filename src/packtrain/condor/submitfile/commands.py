"""The tables of submit commands: which are translated, passed through, ignored with a warning, or rejected."""

from __future__ import annotations

ALIASES = {
    "args": "arguments",
    "env": "environment",
    "stdin": "input",
    "in": "input",
    "stdout": "output",
    "out": "output",
    "stderr": "error",
    "err": "error",
    "initial_dir": "initialdir",
    "job_iwd": "initialdir",
    "iwd": "initialdir",
    "cmd": "executable",
    "shouldtransferfiles": "should_transfer_files",
    "whentotransferoutput": "when_to_transfer_output",
    "transferinputfiles": "transfer_input_files",
    "transferinput": "transfer_input_files",
    "transferoutputfiles": "transfer_output_files",
    "transferoutput": "transfer_output_files",
    "transferoutputremaps": "transfer_output_remaps",
    "transferexecutable": "transfer_executable",
    "requestcpus": "request_cpus",
    "requestmemory": "request_memory",
    "requestdisk": "request_disk",
    "requestgpus": "request_gpus",
    "requiregpus": "require_gpus",
    "get_env": "getenv",
    "jobbatchname": "batch_name",
    "job_batch_name": "batch_name",
    "userlog": "log",
    "user_log": "log",
    "maxretries": "max_retries",
    "singularityimage": "+singularityimage",
    "dockerimage": "docker_image",
    "containerimage": "container_image",
    "checkpointexitcode": "checkpoint_exit_code",
    "+checkpointexitcode": "checkpoint_exit_code",
    "+successcheckpointexitcode": "checkpoint_exit_code",
    "transfercheckpointfiles": "transfer_checkpoint_files",
    "+transfercheckpoint": "transfer_checkpoint_files",
}

_TRANSLATED = """
    universe executable arguments environment getenv container_image docker_image +singularityimage
    request_cpus request_memory request_disk request_gpus
    gpus_minimum_capability gpus_minimum_memory gpus_minimum_runtime
    transfer_executable transfer_input_files transfer_output_files transfer_output_remaps output_destination
    should_transfer_files when_to_transfer_output preserve_relative_paths
    input output error log initialdir max_retries checkpoint_exit_code transfer_checkpoint_files
"""

_PASSED_THROUGH = """
    requirements rank require_gpus gpus_maximum_capability gpus_maximum_memory cuda_version
    accounting_group accounting_group_user nice_user priority concurrency_limits concurrency_limits_expr
    notification notify_user email_attributes batch_name description batch_project batch_queue
    use_oauth_services use_scitokens scitokens_file use_x509userproxy x509userproxy
    job_lease_duration job_max_vacate_time allowed_execute_duration allowed_job_duration kill_sig kill_sig_timeout
    remove_kill_sig hold_kill_sig want_graceful_removal want_remote_io
    periodic_hold periodic_hold_reason periodic_hold_subcode periodic_release periodic_remove periodic_vacate
    max_materialize max_idle max_job_retirement_time retry_request_memory retry_request_memory_increase
    retry_request_memory_max retry_request_disk retry_request_disk_max
    job_machine_attrs job_machine_attrs_history_length job_ad_information_attrs ulog_execute_attrs
    keep_claim_idle next_job_start_delay coresize primary_unix_group manifest manifest_dir
    max_transfer_input_mb max_transfer_output_mb ssh_to_job_remote_home stack_size transfer_container
    container_target_dir docker_network_type docker_pull_policy mount_under_scratch
    cron_day_of_month cron_day_of_week cron_hour cron_minute cron_month cron_prep_time cron_window
    deferral_time deferral_prep_time deferral_window starter_log starter_debug
    erase_output_and_error_on_restart delegate_job_gsi_credentials_lifetime
"""
TRANSLATED, PASSED_THROUGH = frozenset(_TRANSLATED.split()), frozenset(_PASSED_THROUGH.split())
PATH_COMMANDS = ("x509userproxy", "scitokens_file", "manifest_dir")
"""Passed-through commands whose value is a path on the submit side."""
PASSED_THROUGH_PREFIXES = ("+", "request_", "my.")
PASSED_THROUGH_PARTS = ("_oauth_permissions", "_oauth_resource", "_oauth_options")

_RETRIES_REASON = "packtrain decides itself when to retry; `limits.maxAttempts` sets how often"
_EXIT_CODE_REASON = f"it would check the exit code of packtrain's agent, not of your program; {_RETRIES_REASON}"

IGNORED: dict[str, str] = {
    "on_exit_hold": _EXIT_CODE_REASON,
    "on_exit_hold_reason": _EXIT_CODE_REASON,
    "on_exit_hold_subcode": _EXIT_CODE_REASON,
    "on_exit_remove": _EXIT_CODE_REASON,
    "retry_until": _RETRIES_REASON,
    "stream_output": "`packtrain logs -f` shows what the program prints",
    "stream_error": "`packtrain logs -f` shows what the program prints",
    "stream_input": "the complete file is sent first",
    "transfer_plugins": "packtrain's agent fetches URLs",
    "leave_in_queue": "packtrain stores the history of jobs itself",
    "copy_to_spool": "the program is sent from its own folder",
    "log_xml": "packtrain uses its own log",
    "image_size": "HTCondor measures it",
    "load_profile": "it is for Windows only",
    "run_as_owner": "it is for Windows only",
    "dagman_log": "packtrain uses its own log",
    "submit_event_notes": "packtrain sets it",
    "submit_event_user_notes": "packtrain sets it",
    "encrypt_input_files": "the pool's own settings decide about encryption",
    "encrypt_output_files": "the pool's own settings decide about encryption",
    "dont_encrypt_input_files": "the pool's own settings decide about encryption",
    "dont_encrypt_output_files": "the pool's own settings decide about encryption",
    "encrypt_execute_directory": "the pool's own settings decide about encryption",
    "skip_if_dataflow": "every job runs",
    "append_files": "outputs replace existing files",
    "buffer_files": "nothing is buffered",
    "allow_startup_script": "nothing runs before the job",
    "max_transfer_retries": "packtrain's agent retries transfers itself",
}

REJECTED: dict[str, tuple[str, str]] = {
    "checkpoint_destination": (
        "checkpoints are stored with the outputs of the job",
        "use output_destination, or remove the line: HTCondor then keeps them on the access point",
    ),
    "success_exit_code": ("packtrain treats every exit code but 0 as a failure", "use a script that exits with 0"),
    "grid_resource": ("packtrain submits to the pool itself, not to a grid", "use condor_submit"),
    "machine_count": ("a job runs on one node", "use condor_submit"),
    "node_count": ("a job runs on one node", "use condor_submit"),
    "hold": ("packtrain does not submit jobs on hold", "remove the line"),
    "noop_job": ("packtrain runs every job", "remove the line"),
    "jar_files": ("packtrain does not start Java programs", "use a script that calls java"),
    "java_vm_args": ("packtrain does not start Java programs", "use a script that calls java"),
    "remote_initialdir": ("the program always runs in a folder of its own", "remove the line"),
    "public_input_files": ("packtrain has no cache for public files", "list them in transfer_input_files"),
    "aws_access_key_id_file": ("S3 keys are part of an input", "convert the file and add them below `s3:`"),
    "aws_secret_access_key_file": ("S3 keys are part of an input", "convert the file and add them below `s3:`"),
}
REJECTED_PREFIXES = ("vm_", "xen_", "kvm_", "ec2_", "azure_", "gce_", "nordugrid_", "arc_", "boinc_", "remote_")

KNOWN_COMMANDS = TRANSLATED | PASSED_THROUGH | frozenset(IGNORED) | frozenset(REJECTED)


def canonical_name(key: str) -> str:
    """Return the canonical name of a command: in lower case, with aliases resolved."""
    name = key.lower()
    return ALIASES.get(name, name)


def is_passed_through(name: str) -> bool:
    """Return whether a command is copied to the `htcondor:` section of the workflow."""
    return (
        name in PASSED_THROUGH
        or name.startswith(PASSED_THROUGH_PREFIXES)
        or any(part in name for part in PASSED_THROUGH_PARTS)
    )
