"""Makes `python -m orchestrator` an alias of `engram`."""

from engram_command import main

main()
