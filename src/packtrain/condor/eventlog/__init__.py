"""HTCondor's user logs, read: text of all versions, JSON, XML; growing, cut, rotated, compressed, with noise in them.

`record` is one event, `text` and `ads` read the two kinds of forms, `facts` says what an event tells by the names that
HTCondor's own ClassAds of events have, `files` finds and opens logs. Pure but for `files`. Not here: what events mean
for jobs (`engines.htcondor.tracker`, `report.from_log`).
"""

from packtrain.condor.eventlog.job_event import JobEvent, UnreadableEvent

__all__ = ["JobEvent", "UnreadableEvent"]
