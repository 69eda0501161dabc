"""`python -m orchestrator` is `engram`."""

from orchestrator.cli import main

main()
