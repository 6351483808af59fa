"""Parsers of HTCondor event logs: text of all versions, JSON and XML.

Logs may be growing, truncated, rotated or compressed, and may contain noise. An *event* has a type number, a job id
(cluster and proc), a time and a *body*. Its *offset*, where it begins in the log, identifies it.

Start with `log_files.read_events`, which opens a log of any format. `job_event` is one event, `event_types` has the
type numbers, `attributes` extracts values from an event's body under the names that HTCondor's own ClassAds use. All
modules but `log_files` are pure. The meaning of events for attempts is in `packtrain.engines.htcondor.tracking`, and
for reports in `packtrain.report.readers`.
"""

from packtrain.condor.eventlog.job_event import JobEvent, UnreadableEvent

__all__ = ["JobEvent", "UnreadableEvent"]
