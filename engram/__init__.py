"""Tests whether neural networks memorise their training data.

    import engram

    run = engram.audit(model, (member_images, member_labels), (other_images, other_labels))
    run.verdict.sentence
    engram.audits()  # their names, each with its presets
    engram.plan("unique_feature", preset="smoke")["time"]
    run = engram.run(engram.UniqueFeature("smoke", canaries=4))
    run.verdict.sentence, run.effect, run.tables
    run.summary.to_pandas()
    engram.open(run.run).figure("estimates")
    engram.search("unique_feature", preset="quickstart", over={"dropout": [True, False]}).verdict.setting
    engram.runs()  # all runs of the store, with their answers, as an Arrow table

Every error that the command line reports as a one-line message is an `engram.EngramError`. Its subclass
`engram.SpecError` indicates wrong arguments. Your program may have its own modules called `tasks`, `orchestrator` or
`dashboards`: in a process that imports `engram`, these names refer to Engram's packages.
"""

from engram import own_packages as own_packages  # before the next line, which must not import the user's module

import orchestrator  # isort: skip
from orchestrator import EngramError, SpecError, audit, audits, membership, plan, run, search
from orchestrator import open as open
from orchestrator.python_calls import runs  # `orchestrator.runs` is a package

# Omits `open`, so that `import *` does not hide Python's built-in.
__all__ = ["EngramError", "SpecError", "audit", "audits", "membership", "plan", "run", "runs", "search"]

# `TrainingJob` and the settings classes of the audits, such as `UniqueFeature`, are found on first use.
__getattr__ = orchestrator.__getattr__
__dir__ = orchestrator.__dir__
