"""``python -m discretion``."""

from discretion.cli import main

main()
