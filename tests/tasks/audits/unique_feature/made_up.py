"""Synthetic models, divergences, histories and tables of influence, a letter, and a training that takes seconds.

Also verdicts and certificates for evidence without a summary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.evaluation import Evaluation
from tasks.audits.unique_feature.measures.divergences import DIVERGENCES
from tasks.audits.unique_feature.measures.learning_curve import HISTORY
from tasks.audits.unique_feature.pairs.canary_selection import CHOSEN, INFLUENCE, RankedImage
from tasks.audits.unique_feature.population import FAMILY, UNCARRIED, Population
from tasks.audits.unique_feature.presets import PublishedCell
from tasks.audits.unique_feature.single_models.evidence import PanelEvidence, Push, Rank
from tasks.audits.unique_feature.summary import summary
from tasks.contract.answering import Answering
from tasks.contract.certificate import Certificate
from tasks.contract.power import SMALLEST
from tasks.contract.schemas import MODEL, SUMMARY
from tasks.contract.verdict import Verdict
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph, glyph_pixels
from tasks.models.networks import Architecture, network_row, weight_rows, weights_of_model
from tasks.training.classifier import Training
from tests.support.settings import with_settings

Columns = Mapping[str, ArrayLike]

LABEL = 4
INK = np.flatnonzero(glyph_pixels(Glyph()).ravel())  # the cells of the letter A with ink, out of 25


def letter_model(strength: float) -> pa.Table:
    """An mlp1 whose logit of LABEL is `strength` times the mean brightness at the letter's ink; all other logits are
    0.
    """
    widths = (28 * 28, 512, 256, 128, 10)
    weights: dict[str, NDArray[np.float32]] = {}
    for number, (inputs, outputs) in enumerate(pairwise(widths), start=1):
        matrix = np.zeros((outputs, inputs), np.float32)
        if number == 1:
            rows, columns = np.divmod(INK, 5)
            matrix[0, (rows + 1) * 28 + columns + 1] = 1 / len(INK)
        else:
            matrix[LABEL if number == 4 else 0, 0] = strength if number == 4 else 1.0
        weights |= {f"dense{number}.weight": matrix, f"dense{number}.bias": np.zeros(outputs, np.float32)}
    row = {"seed": 17, "network": network_row(Architecture("mlp1", (28, 28, 1), 10)), "epochs": 1, "best_epoch": 1}
    row |= {"history": [], "weights": weight_rows(weights)}
    return pa.Table.from_pylist([row], MODEL)


def divergences(
    canary: int, sets: Mapping[tuple[str, str], Columns], label: int = 3, seed: int | None = None, evaluation: int = 0
) -> pa.Table:
    """`sets` holds d_u, d_r, log_p_u and log_p_r per (model, images)."""
    tables = []
    for (model, images), columns in sets.items():
        n = len(np.asarray(columns["d_u"]))
        constant_columns = {
            "canary": [canary] * n,
            "label": [label] * n,
            "seed": [1000 + canary if seed is None else seed] * n,
            "evaluation": [evaluation] * n,
            "model": [model] * n,
            "images": [images] * n,
            "image": range(n),
        }
        arrays = []
        for field in DIVERGENCES:
            arrays.append(pa.array((constant_columns | dict(columns))[field.name], field.type))
        tables.append(pa.Table.from_arrays(arrays, schema=DIVERGENCES))
    return pa.concat_tables(tables)


def history(canary: int, accuracies: Mapping[str, list[float]]) -> pa.Table:
    """One epoch per accuracy and model; the best one is kept."""
    rows = []
    for model, values in accuracies.items():
        for epoch, accuracy in enumerate(values, start=1):
            rows.append(
                {
                    "canary": canary,
                    "seed": 1000 + canary,
                    "model": model,
                    "epoch": epoch,
                    "train_loss": 1.0 / epoch,
                    "validation_loss": 1.0 - accuracy,
                    "validation_accuracy": accuracy,
                    "kept": accuracy == max(values),
                }
            )
    return pa.Table.from_pylist(rows, HISTORY)


def pair(
    canary: int, m: float, control_m: float, n: int = 40, seed: int | None = None, evaluation: int = 0
) -> pa.Table:
    """A pair of models with these values of M on both sets of images, M_w equal to -M, and noise over images."""
    rng = np.random.default_rng(canary)

    def columns(score: float) -> Columns:
        noise = rng.normal(0, 0.01, n)
        noise -= noise.mean()
        d_r = np.full(n, 0.5)
        log_p_u = np.full(n, -1.0)
        return {"d_u": d_r + score + noise, "d_r": d_r, "log_p_u": log_p_u, "log_p_r": log_p_u + score + noise}

    scores = {"canary": m, "twin": control_m}
    sets = {(model, images): columns(score) for model, score in scores.items() for images in ("probe", "train")}
    return divergences(canary, sets, seed=seed, evaluation=evaluation)


def family(
    canary: int | None,
    models: Mapping[str, NDArray[np.float64]],
    label: int | None = 1,
    seed: int | None = None,
    uncarried: bool = False,
) -> pa.Table:
    """`models` holds log_p (members, classes) per model; log_odds are equal to log_p, and d is minus a member's
    mean.

    With `uncarried`, the last member is the feature that the canary did not carry.
    """
    rows = []
    for model, log_p in models.items():
        for member, values in enumerate(log_p):
            rows.append(
                {"canary": canary, "label": label, "seed": seed, "model": model}
                | {"member": UNCARRIED if uncarried and member == len(log_p) - 1 else member}
                | {"d": -float(values.mean()), "log_p": values.tolist(), "log_odds": values.tolist()}
            )
    return pa.Table.from_pylist(rows, FAMILY)


def summary_rows(tables: list[pa.Table], published: str = "") -> dict[tuple[str, str], dict[str, Any]]:
    """The summary's rows by metric and setting."""
    summary_table = summary(PublishedCell(published), tables).to_pylist()
    return {(row["metric"], row["setting"]): row for row in summary_table}


def trained_family(canary: int, push: float, label: int = 1) -> pa.Table:
    """A pair whose canary model favours member 0 of 41 by `push` standard deviations towards its label, one of
    three.
    """
    rng = np.random.default_rng(canary)
    control = rng.normal(0, 1, (42, 3))
    model = control + rng.normal(0, 0.2, (42, 3))
    model[0, label] += push
    return family(canary, {"canary": model, "twin": control}, label, 1000 + canary, uncarried=True)


DIGITS = pin(Dataset("digits"))
PHOTOS = pin(Dataset("photos"))
LETTER = Glyph()
TRAINING = Training(DIGITS, examples=48, epochs=2, patience=0, batch=16, learning_rate=1e-3, seed=5)


def evaluation(canary: int | RankedImage) -> Evaluation:
    return Evaluation(DIGITS, PHOTOS, "test", LETTER, canary, examples=TRAINING.examples, seed=3)  # type: ignore[arg-type]


def influence(values: Sequence[float], first: int = 0) -> pa.Table:
    """Every image's self-influence, with rows numbered from `first`; labels are the last digits, slopes ten times
    larger.
    """
    rows = []
    for row, value in enumerate(values, first):
        rows.append(
            {
                "row": row,
                "label": row % 10,
                "self_influence": value,
                "squared_slopes": 10 * value,
                "checkpoints": [1, 2],
            }
        )
    return pa.Table.from_pylist(rows, INFLUENCE)


def chosen_rows(*rows: int, end: str = "highest") -> pa.Table:
    """These rows as the chosen ones of one end, by rank."""
    table_rows = []
    for rank, row in enumerate(rows, 1):
        table_rows.append(
            {"end": end, "rank": rank, "row": row, "label": 0, "self_influence": 1.0, "squared_slopes": 1.0}
        )
    return pa.Table.from_pylist(table_rows, CHOSEN)


def threshold_model(brightness: float) -> pa.Table:
    """An mlp1 whose first hidden units are active if the letter's ink is brighter than `brightness`."""
    model = letter_model(1.0)
    weights = weights_of_model(model)
    bias = weights["dense1.bias"].copy()
    bias[0] = -brightness
    row = model.to_pylist()[0] | {"weights": weight_rows(weights | {"dense1.bias": bias})}
    return pa.Table.from_pylist([row], MODEL)


def configure(settings: Mapping[str, Any] | None = None, /, **short_settings: Any) -> UniqueFeature:
    """The published setting with these settings, by full or short names."""
    return with_settings(UniqueFeature(), {**(settings or {}), **short_settings})


CLEAR = PanelEvidence(
    names=(),
    rank=Rank(100, 0.5, Population(201), 1),
    overriding_rank=None,
    parts=(),
    push=Push(-0.3, None, (-0.5, 0.4), SMALLEST - 1e-9, SMALLEST, 0.8),
    tied=None,
    checks=(),
    unchecked=0,
    key="",
    lacks_overriding_rank=False,
)


def judge(answering: Answering[Any], config: UniqueFeature, evidence: object) -> tuple[Verdict, Certificate]:
    """Verdict and certificate for this evidence."""
    answering = replace(answering, read=lambda _config, _summary: evidence)
    empty_summary = SUMMARY.empty_table()
    verdict = answering.verdict(config, empty_summary)
    return verdict, answering.certificate(config, empty_summary, verdict)
