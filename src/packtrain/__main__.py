"""Entry point of `python -m packtrain`."""

from packtrain.cli.main import main

main()
