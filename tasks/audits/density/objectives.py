"""What a search over training choices moves: the mean of matched-count M, and the loss of held-out images."""

from __future__ import annotations

import json

from tasks.objectives import Objective, Objectives, row_reader

OBJECTIVES = Objectives(
    memorization=Objective(
        "mean matched-count M", "nats", "lower", row_reader("matched-count M", json.dumps({"statistic": "mean"}))
    ),
    utility=Objective(
        "test loss", "nats", "lower", row_reader("loss", json.dumps({"models": "folds", "split": "test"}))
    ),
    allowance=1.0,
)
