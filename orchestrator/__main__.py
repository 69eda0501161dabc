"""`python -m orchestrator` is `engram`."""

from engram_command import main

main()
