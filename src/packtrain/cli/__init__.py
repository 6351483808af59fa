"""The command line: `main` finds the commands, one file each; `output` gives every result its text
and its JSON form. Commands only talk to `app` and to views."""
