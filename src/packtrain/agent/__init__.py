"""The program on the worker: probe → fetch → unpack → steps → check → sync → clean.

Start with `main` (the order of the stages). `sandbox` owns every path, `stop` says when to leave,
`steps` interprets the workflow's steps, `process` starts and ends programs, `environments` wraps
them. Standard library only, Python 3.9: it runs in any image. The submit side never imports it.
"""
