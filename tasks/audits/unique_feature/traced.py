"""A training image's self-influence without the feature and with it: section 3.3's question."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.unique_feature.choice import CHOSEN, Ranked, row_of
from tasks.audits.unique_feature.influence import INFLUENCE
from tasks.job import Inputs, task

TRACED = pa.schema(
    [
        ("end", pa.string()),  # highest or lowest, among all training images without the feature
        ("with_feature", pa.bool_()),
        *INFLUENCE,
        ("share_below", pa.float64()),  # share of the training images of the same model that have less
    ]
)


@dataclass(frozen=True)
class Traced:
    """The image, by its rank."""

    canary: Ranked


@task(version=1, name="unique_feature.traced")
def traced(config: Traced, inputs: Inputs) -> pa.Table:
    """The image's self-influence in the model without the feature and in the one with it (TRACED).

    The inputs are the chosen canaries, and the influences in the two models, which had the same seed.
    """
    chosen, before, after = inputs
    assert chosen.schema == CHOSEN
    row = row_of(config.canary, (chosen,))
    rows = []
    for with_feature, table in ((False, before), (True, after)):
        values = table["self_influence"].to_numpy()
        (found,) = (each for each in table.slice(index_of(table, row), 1).to_pylist())
        below = float((values < found["self_influence"]).mean())
        rows.append({"end": config.canary.end, "with_feature": with_feature, "share_below": below} | found)
    return pa.Table.from_pylist(rows, TRACED)


def index_of(table: pa.Table, row: int) -> int:
    import pyarrow.compute as pc

    return int(pc.index(table["row"], row).as_py())
