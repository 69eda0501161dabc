"""Makes `orchestrator`, `tasks` and `dashboards` refer to Engram's packages, even if other modules shadow them."""

from __future__ import annotations

import runpy
from pathlib import Path

# Run by path, because `orchestrator` may still be one of the user's modules.
LOADER = Path(__file__).resolve().parents[1] / "orchestrator" / "own_packages.py"
load = runpy.run_path(str(LOADER))["load"]
for package in ("orchestrator", "dashboards"):  # the first loads `tasks`
    load(package)
