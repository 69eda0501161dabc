"""Audits whether neural networks memorise their training data.

    import engram

    engram.audits()  # their names, each with its presets
    engram.plan("unique_feature", preset="smoke")["time"]
    run = engram.run("unique_feature", preset="smoke", canaries=4)
    run.verdict.sentence
    run.summary.to_pandas()
    engram.open(run.run).figure("estimates")
    engram.search("unique_feature", preset="quickstart", over={"dropout": [True, False]}).verdict.setting

Every error that the command line would tell in one line is an `engram.EngramError`; what cannot be asked for is an
`engram.SpecError`, which is one. A program of yours may have modules called `tasks`, `orchestrator` or `dashboards`:
where it imports `engram`, these names are Engram's in its process.
"""

from engram import own_packages as own_packages  # before the next line, which may not find a user's own module
from orchestrator import EngramError, SpecError, audits, plan, run, search
from orchestrator import open as open

# Not `open`: `import *` is not to hide Python's.
__all__ = ["EngramError", "SpecError", "audits", "plan", "run", "search"]
