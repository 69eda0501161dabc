"""Decides whether, when and where jobs run, independently of any particular audit.

    import orchestrator

    run = orchestrator.run(orchestrator.UniqueFeature("smoke", canaries=4))
    run.verdict.sentence
    orchestrator.open(run.run).figure("estimates")

Every error that the command line reports as a one-line message is an `orchestrator.EngramError`.
"""

from typing import Any

from orchestrator import own_packages

own_packages.load("tasks")  # even if a `tasks.py` in the user's working directory comes earlier on the import path

from orchestrator import audit_settings  # noqa: E402
from orchestrator.errors import EngramError, SpecError  # noqa: E402
from orchestrator.python_calls import audit, audits, membership, plan, run, search  # noqa: E402
from orchestrator.python_calls import open as open  # noqa: E402

# Omits `open`, so that `import *` does not hide Python's built-in.
__all__ = ["EngramError", "SpecError", "audit", "audits", "membership", "plan", "run", "search"]


def __getattr__(name: str) -> Any:
    """Return `TrainingJob`, or the settings class of an installed audit: `UniqueFeature` for `unique_feature`."""
    if name == "TrainingJob":
        from tasks.programs.function import TrainingJob

        return TrainingJob
    audit_name = audit_settings.settings_classes().get(name)
    if audit_name is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return audit_settings.settings_class(audit_name)


def __dir__() -> list[str]:
    return sorted({*globals(), "TrainingJob", *audit_settings.settings_classes()})
