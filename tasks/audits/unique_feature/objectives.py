"""What a search over training choices moves: the effect of the canaries on M_w, and validation accuracy."""

from __future__ import annotations

import json

from tasks.objectives import Objective, Objectives, named

OBJECTIVES = Objectives(
    memorization=Objective("M_w effect", "nats", "lower", named("M_w effect", json.dumps({"images": "probe"}))),
    utility=Objective(
        "validation accuracy", "share", "higher", named("validation accuracy", json.dumps({"model": "canary"}))
    ),
    allowance=0.01,
)
