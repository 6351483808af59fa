"""The pictures of a report. `gallery` chooses them; each kind has a file; `drawing` is what they are made of, which
`svg` and `png` write. `colours` has the one table of colours. Not here: the page around them (`report.page`)."""
