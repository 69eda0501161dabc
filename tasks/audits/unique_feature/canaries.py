"""One row per canary: its scores, its twin's, and the difference that the canary made.

The t-tests here are the published ones: they ask whether probe images tell the feature from random patches, for one
model. They take images for the sample, so a small p says nothing about the canary: models that never saw the feature
have small p-values too (the columns `twin_...`). What the canary did is in the columns `..._effect`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.evaluation import DIVERGENCES
from tasks.audits.unique_feature.history import HISTORY
from tasks.audits.unique_feature.scores import Array, average, black_box_score, spread, white_box_score
from tasks.job import Inputs, task
from tasks.statistics import false_discovery_adjusted, paired_greater, welch_greater

Row = dict[str, Any]
# The canary's columns carry a score's name alone, its twin's begin with "twin_".
PREFIXES = {"canary": "", "twin": "twin_"}
SCORES = ("m", "m_w_probe", "m_w_train")
TESTS = {"welch": welch_greater, "paired": paired_greater}


def schema() -> pa.Schema:
    """The columns: identity, then per model scores with their p-values, and the effects (canary minus twin)."""
    fields = [("canary", pa.int64()), ("label", pa.int32()), ("seed", pa.int64()), ("evaluation", pa.int32())]
    fields += [(name, pa.float64()) for score in SCORES for name in (score, f"twin_{score}", f"{score}_effect")]
    for prefix in PREFIXES.values():
        for score in SCORES:
            for test in TESTS:
                fields += [
                    (f"{prefix}{score}_{test}_t", pa.float64()),
                    (f"{prefix}{score}_{test}_p", pa.float64()),
                    (f"{prefix}{score}_{test}_adjusted_p", pa.float64()),
                ]
        fields += [(f"{prefix}average_{d}", pa.float64()) for d in ("d_u", "d_r")]
        fields += [(f"{prefix}m_sd", pa.float64())]  # of d_u - d_r over the probe images
        fields += [(f"{prefix}p_{x}_{images}", pa.float64()) for images in ("probe", "train") for x in ("u", "r")]
        fields += [(f"{prefix}images_{images}", pa.int64()) for images in ("probe", "train")]
        fields += [(f"{prefix}validation_accuracy", pa.float64())]
        fields += [(f"{prefix}epochs", pa.int32()), (f"{prefix}best_epoch", pa.int32())]
    return pa.schema(fields)


CANARY_SCORES = schema()


@dataclass(frozen=True)
class CanaryScores:
    """Nothing but its inputs bears on the table."""


@task(version=3, name="unique_feature.canary_scores", gathers=True)
def canary_scores(config: CanaryScores, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Every pair's row for every evaluation, the largest M first.

    The inputs are divergences and histories, in any order and number. A pair has a row where its divergences are there.
    p-values are adjusted over all rows, each score, test and kind of model apart.
    """
    histories = {pair(table): table for table in inputs if table.schema == HISTORY}
    divergences = [table for table in inputs if table.schema == DIVERGENCES]
    rows = [scored(table) | trained(histories.get(pair(table))) for table in divergences]
    rows.sort(key=lambda row: (-row["m"], row["canary"], row["seed"], row["evaluation"]))
    adjust(rows)
    return pa.Table.from_pylist(rows, CANARY_SCORES)


def pair(table: pa.Table) -> tuple[int, int]:
    """The canary and the training seed that a table of one pair of models tells of."""
    return table["canary"][0].as_py(), table["seed"][0].as_py()


def scored(divergences: pa.Table) -> Row:
    """The scores of one pair of models."""
    row: Row = {name: divergences[name][0].as_py() for name in ("canary", "label", "seed", "evaluation")}
    for model, prefix in PREFIXES.items():
        row |= {prefix + name: value for name, value in model_scores(divergences, model).items()}
    for score in SCORES:
        row[f"{score}_effect"] = None if row[score] is None else row[score] - row[f"twin_{score}"]
    return row


def model_scores(divergences: pa.Table, model: str) -> Row:
    """One model's scores, with the p-values over images of the tests that the paper gives."""
    probe, train = (select(divergences, model, images) for images in ("probe", "train"))
    row: Row = {
        "m": black_box_score(probe["d_u"], probe["d_r"]),
        "m_w_probe": white_box_score(probe["log_p_u"], probe["log_p_r"]),
        "m_w_train": white_box_score(train["log_p_u"], train["log_p_r"]),
        "average_d_u": average(probe["d_u"]),
        "average_d_r": average(probe["d_r"]),
        "m_sd": spread(probe["d_u"] - probe["d_r"]),
    }
    for images, columns in (("probe", probe), ("train", train)):
        row[f"images_{images}"] = len(columns["d_u"])
        for x in ("u", "r"):
            row[f"p_{x}_{images}"] = average(np.exp(columns[f"log_p_{x}"]))
    compared = {"m": (probe, "d"), "m_w_probe": (probe, "log_p"), "m_w_train": (train, "log_p")}
    for score, (columns, kind) in compared.items():
        for name, test in TESTS.items():
            found = test(columns[f"{kind}_u"], columns[f"{kind}_r"])
            row |= {f"{score}_{name}_t": finite(found.statistic), f"{score}_{name}_p": found.p_value}
    return row


def finite(value: float | None) -> float | None:
    """The value, unless it is infinite: a test of images that do not vary."""
    return value if value is not None and math.isfinite(value) else None


def trained(history: pa.Table | None) -> Row:
    """How long both models trained and how well they classify; nothing where their history is not there."""
    row: Row = {}
    for epoch in [] if history is None else history.to_pylist():
        prefix = PREFIXES[epoch["model"]]
        row[f"{prefix}epochs"] = max(epoch["epoch"], row.get(f"{prefix}epochs", 0))
        if epoch["kept"]:
            row[f"{prefix}best_epoch"] = epoch["epoch"]
            row[f"{prefix}validation_accuracy"] = epoch["validation_accuracy"]
    return row


def adjust(rows: Sequence[Row]) -> None:
    """Add to the rows the p-values adjusted over them, Benjamini & Hochberg 1995."""
    for name in [f"{prefix}{score}_{test}" for prefix in PREFIXES.values() for score in SCORES for test in TESTS]:
        values = [math.nan if row[f"{name}_p"] is None else row[f"{name}_p"] for row in rows]
        for row, adjusted in zip(rows, false_discovery_adjusted(values).tolist(), strict=True):
            row[f"{name}_adjusted_p"] = None if math.isnan(adjusted) else adjusted


def select(divergences: pa.Table, model: str, images: str) -> dict[str, Array]:
    """The number columns, in float64, of one model on one set of images."""
    import pyarrow.compute as pc  # a tenth of what `engram list` takes

    chosen = divergences.filter((pc.field("model") == model) & (pc.field("images") == images))
    return {name: chosen[name].to_numpy().astype(np.float64) for name in ("d_u", "d_r", "log_p_u", "log_p_r")}
