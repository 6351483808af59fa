"""Converts HTCondor submit files to workflows, on the submit side only.

A *command* is a line `key = value` of a submit file. A *macro* is `$(NAME)`. The `queue` statement says how many jobs
there are and which variables differ between them. A *template* is a text in which everything that differs from job to
job is a *placeholder*.

Start with `convert.load_submit_file`. The package `syntax` parses the language. `job_table` has what differs from job
to job, and `commands` lists what happens to each command. `translate` builds the workflow document with `program`,
`resources`, `file_transfer` and `other_commands`; `wrapper_check` checks the user's script.
"""

from packtrain.condor.submitfile.convert import is_submit_file, load_submit_file

__all__ = ["is_submit_file", "load_submit_file"]
