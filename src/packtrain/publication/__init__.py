"""Publish the outputs of accepted attempts: the only way in which results appear under the user's path.

Attempts store their outputs below prefixes of their own (`plan.output_manifest`). When the supervisor has stored that
it accepts an attempt, `publish` copies what the attempt's manifest lists to the user's path. Every step is repeatable,
so a supervisor that finds the acceptance after a crash starts publication again, and the end is the same.

`destination` is the destination of one job, `publish` publishes to it, `intermediate` shows finished files and
checkpoints of a job before an attempt is accepted, and `publisher` runs both in threads. Start with `publish`.
"""
