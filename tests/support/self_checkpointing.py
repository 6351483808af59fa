"""A program and a submit file with the behaviour of the self-checkpointing example in HTCondor's manual.

The program counts to ten, saves each number, and exits with code 85 after each third one.
"""

PROGRAM = """#!/usr/bin/env python3
import pathlib
import sys
import time

saved = pathlib.Path("example.checkpoint")
value = int(saved.read_text()) if saved.exists() else 0
print(f"Starting from {value}", flush=True)
while value < 10:
    print(f"Computing timestep {value}", flush=True)
    time.sleep(PACE)
    value += 1
    saved.write_text(str(value))
    if value % 3 == 0:
        sys.exit(85)
print("Computation complete", flush=True)
"""

SUBMIT = """checkpoint_exit_code        = 85
transfer_checkpoint_files   = example.checkpoint
should_transfer_files       = yes
+is_resumable               = true

executable                  = example.py
arguments                   =

output                      = example.out
error                       = example.err
log                         = example.log

queue 1
"""

STARTS = [f"Starting from {value}" for value in (0, 3, 6, 9)]
