"""Decides whether, when and where jobs run, independently of any particular audit.

import orchestrator run = orchestrator.run("unique_feature", preset="smoke", canaries=4) run.verdict.sentence
run.summary.to_pandas() orchestrator.open(run.run).figure("estimates") best = orchestrator.search("unique_feature",
preset="quickstart", over={"dropout": [True, False]}).verdict.setting

Every error that the command line reports as a one-line message is an `orchestrator.EngramError`.
"""

from orchestrator import own_packages

own_packages.load("tasks")  # even if a `tasks.py` in the user's working directory comes earlier on the import path

from orchestrator.errors import EngramError, SpecError  # noqa: E402
from orchestrator.python_calls import audit, audits, plan, run, search  # noqa: E402
from orchestrator.python_calls import open as open  # noqa: E402

# Omits `open`, so that `import *` does not hide Python's built-in.
__all__ = ["EngramError", "SpecError", "audit", "audits", "plan", "run", "search"]
