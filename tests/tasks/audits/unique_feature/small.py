"""A training of seconds, a letter, and models and tables of influence that nobody computed."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tasks.audits.unique_feature.canary_selection import CHOSEN, RankedImage
from tasks.audits.unique_feature.evaluation import Evaluation
from tasks.audits.unique_feature.self_influence import INFLUENCE
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph
from tasks.models.networks import weight_rows, weights_of_model
from tasks.schemas import MODEL
from tasks.training.classifier import Training
from tests.tasks.audits.unique_feature.made_up import reads_the_letter

DIGITS, PHOTOS = pin(Dataset("digits")), pin(Dataset("photos"))
LETTER = Glyph()
TRAINING = Training(DIGITS, examples=48, epochs=2, patience=0, batch=16, learning_rate=1e-3, seed=5)


def evaluation(canary: int | RankedImage) -> Evaluation:
    return Evaluation(DIGITS, PHOTOS, "test", LETTER, canary, examples=TRAINING.examples, seed=3)  # type: ignore[arg-type]


def influence(values: Sequence[float], first: int = 0) -> pa.Table:
    """Every image's self-influence, rows from `first` on; labels are the rows' last digits, slopes ten times more."""
    rows = [
        {"row": row, "label": row % 10, "self_influence": value, "squared_slopes": 10 * value, "checkpoints": [1, 2]}
        for row, value in enumerate(values, first)
    ]
    return pa.Table.from_pylist(rows, INFLUENCE)


def chosen(*rows: int, end: str = "highest") -> pa.Table:
    """These rows as the chosen ones of one end, by rank."""
    found = [
        {"end": end, "rank": rank, "row": row, "label": 0, "self_influence": 1.0, "squared_slopes": 1.0}
        for rank, row in enumerate(rows, 1)
    ]
    return pa.Table.from_pylist(found, CHOSEN)


def wakes_above(brightness: float) -> pa.Table:
    """An mlp1 whose first hidden units are active where it is brighter than this at the letter's ink."""
    model = reads_the_letter(1.0)
    weights = weights_of_model(model)
    bias = weights["dense1.bias"].copy()
    bias[0] = -brightness
    row = model.to_pylist()[0] | {"weights": weight_rows(weights | {"dense1.bias": bias})}
    return pa.Table.from_pylist([row], MODEL)
