"""Programs that the agent runs: how they are started, ended and captured, and what their exit means.

Each program runs in a *process group* of its own. A *process tree* is a set of programs that are ended together, such
as the steps of one `launch`. The *process table* holds every group that is alive. The *guard* is a small process that
kills all groups if the agent dies. An *output capture* receives what a program prints, redacted.

Start reading with `process_table`. `exit_status` describes how a program ended; `error_patterns` classifies the failure
by the last line it printed.
"""
