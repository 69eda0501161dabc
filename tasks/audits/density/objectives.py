"""What a search over training choices moves: the mean of matched-count M, and the loss of held-out images."""

from __future__ import annotations

import json

from tasks.objectives import Objective, Objectives, named

OBJECTIVES = Objectives(
    memorization=Objective(
        "mean matched-count M", "nats", "lower", named("matched-count M", json.dumps({"statistic": "mean"}))
    ),
    utility=Objective("test loss", "nats", "lower", named("loss", json.dumps({"models": "folds", "split": "test"}))),
    allowance=1.0,
)
