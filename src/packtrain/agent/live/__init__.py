"""Report the status of a running attempt: journal events, and live updates to the submit side.

* `progress` emits how far a stage is. `metrics` turns the lines of the program's metrics file into events.
* *Live updates* are job attributes and lines of HTCondor's user log that appear while the job runs. `reporter` derives
  them from journal events and sends them through *Chirp*, HTCondor's protocol between a job and its submit side, which
  `chirp` implements.

The journal is complete without live updates: it is retrieved with the outputs. Start with `reporter.LiveReporter`.
"""
