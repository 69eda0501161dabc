"""Makes `orchestrator`, `tasks` and `dashboards` refer to Engram's packages, even if others come first on the path."""

from __future__ import annotations

import runpy
from pathlib import Path

# Run by its path: at this point `orchestrator` may be a module of the user's.
LOADER = Path(__file__).resolve().parents[1] / "orchestrator" / "own_packages.py"
load = runpy.run_path(str(LOADER))["load"]
for package in ("orchestrator", "dashboards"):  # the first loads `tasks`
    load(package)
