"""At which rate panels of models, each asked as one, are called at 5 %: its columns and its row of the summary.

Panels share no model, so that they are independent and their rate has Wilson's interval, unless their canaries share
training seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tasks.audits.unique_feature.ranks import LEVEL
from tasks.audits.unique_feature.units import share_seeds
from tasks.statistics import Estimate, proportion
from tasks.summaries import Row, row

LEAST = 3  # panels, below which a rate says nothing

RATE = (
    ("detection_rate", pa.float64()),  # share of panels with p <= 0.05
    ("low", pa.float64()),  # 95 % Wilson interval over panels; null where canaries share training seeds
    ("high", pa.float64()),
    ("n", pa.int64()),  # panels
)


def rate_columns(p_values: Sequence[float], trainings: Iterable[tuple[int, int]]) -> Row:
    """The columns of RATE; the trainings, each the row of its canary and a seed, are those that panels are of."""
    called = proportion(sum(p_value <= LEVEL for p_value in p_values), len(p_values))
    reach = (None, None) if share_seeds(trainings) else (called.low, called.high)
    return dict(zip((name for name, _ in RATE), (called.value, *reach, called.n), strict=True))


def rate_row(estimator: str, panel: Row, null: float | None) -> Row:
    """The row of the summary of panels of so many `models`."""
    estimate = Estimate(panel["detection_rate"], panel["low"], panel["high"], panel["n"])
    setting = {"estimator": estimator, "models": panel["models"]}
    return row("detection rate by number of models", setting, estimate, "panel of models", null)
