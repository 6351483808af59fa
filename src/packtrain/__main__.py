"""`python -m packtrain` is the `packtrain` command."""

from packtrain.cli.main import main

main()
