"""Simulated answers of models: log-odds with or without an effect of membership."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.membership.given import SCORES
from tasks.audits.membership.measures.shifted import SHIFTED_ANSWERS
from tasks.audits.membership.trainings import ANSWERS, CANARIES
from tasks.datasets.mixtures import draw_balanced_members
from tasks.external.confidences import round_confidences


def make_answers(models: int, records: int, effect: float, seed: int, exposed: int | None = None) -> list[pa.Table]:
    """A table of answers for each model.

    Records differ in difficulty and in spread. The first `exposed` records, by default all, gain `effect` nats from
    models that were trained on them.
    """
    stream = np.random.default_rng(seed)
    member = draw_balanced_members(records, models, seed)
    spread = np.exp(0.5 * stream.normal(size=records))
    phi = stream.normal(size=(models, records)) * spread + 2 + 3 * stream.normal(size=records)
    phi += effect * (member & (np.arange(records) < (records if exposed is None else exposed)))
    answers = []
    for its, odds in zip(member, phi, strict=True):
        answers.append(pa.table([np.arange(records), its, odds, odds > 0], schema=ANSWERS))
    return answers


def make_shifted(models: int, records: int, copies: int, effect: float, seed: int) -> list[pa.Table]:
    """Return whether each model labels each copy correctly; membership adds `effect` nats."""
    stream = np.random.default_rng(seed)
    member = draw_balanced_members(records, models, seed)
    odds = 2 * stream.normal(size=(1, records, 1)) + stream.logistic(size=(models, records, copies))
    correct = odds + effect * (member[:, :, None] - 0.5) > 0
    result = []
    for its, labels_correct in zip(member, correct, strict=True):
        result.append(
            pa.table(
                [np.arange(records), its, pa.array(list(labels_correct), pa.list_(pa.bool_()))], schema=SHIFTED_ANSWERS
            )
        )
    return result


def make_canaries(
    shift: float, spent: float | None, models: int = 1, canaries: int = 700, seed: int = 0
) -> list[pa.Table]:
    """Return canaries of several models: log-odds that differ in difficulty, higher for members by `shift`."""
    stream = np.random.default_rng(seed)
    difficulty = stream.normal(scale=3.0 if models > 1 else 0.0, size=canaries)
    tables = []
    for number in range(models):
        inside = stream.random(canaries) < 0.5
        odds = difficulty + stream.normal(size=canaries) + shift * inside
        constant_columns = []
        for value, kind in ((number, pa.int64()), (spent, pa.float64())):
            constant_columns.append(pa.array([value] * canaries, kind))
        columns = [
            constant_columns[0],
            np.arange(canaries),
            np.zeros(canaries, np.int64),
            inside,
            odds,
            constant_columns[1],
        ]
        tables.append(pa.table(columns, schema=CANARIES))
    return tables


Floats = NDArray[np.float64]
SHIFT = 0.2  # standard deviation of the common shift of a model's log-odds, in nats


def make_given(
    models: int,
    records: int,
    effect: float,
    seed: int,
    *,
    knows: float = 0.0,
    change: Callable[[Floats, np.random.Generator], Floats] = lambda phi, _: phi,
    kind: str = "log-odds",
    resolution: float = 0.0,
    repeats: int = 0,
    apart: float = 0.0,
) -> list[pa.Table]:
    """A given model's scores, and answers of other models about the records and equally many images after them.

    The given model was trained on a random share `knows` of the records. The variance of its log-odds about the centre
    of the other models is 1 + `apart` times theirs; the other models share their records. `change` is the alteration
    of its log-odds by the owner or by another training; `repeats` images occur twice, each with a new alteration.
    """
    stream = np.random.default_rng(seed)
    member = np.concatenate(
        [draw_balanced_members(records, models, seed), np.zeros((models, records), dtype=bool)], axis=1
    )
    is_known = (np.arange(2 * records) < records) & (stream.random(2 * records) < knows)
    spread = np.exp(0.5 * stream.normal(size=2 * records))
    centre = 2 + 3 * stream.normal(size=2 * records)
    noise = stream.normal(size=(models + 1, 2 * records)) * spread + SHIFT * stream.normal(size=(models + 1, 1))
    phi = noise + centre + effect * np.vstack([is_known, member])
    if apart:
        phi[0] += np.sqrt(apart) * spread * stream.normal(size=2 * records)
    given_scores, repeated_scores = (_printed(change(phi[0], stream), kind, resolution) for _ in range(2))
    repeated_scores[repeats:] = np.nan
    rows = np.arange(2 * records)
    right = phi[0] > 0
    columns = [
        given_scores,
        pa.array(repeated_scores, from_pandas=True),
        [kind] * len(rows),
        np.full(len(rows), resolution),
        right,
    ]
    scores = pa.table([rows, rows < records, *columns], schema=SCORES)
    return [scores, *(
        pa.table([rows[side], its[side], odds[side], odds[side] > 0], schema=ANSWERS)
        for side in (rows < records, rows >= records)
        for its, odds in zip(member, phi[1:], strict=True)
    )]  # fmt: skip


def _printed(phi: Floats, kind: str, resolution: float) -> Floats:
    """Return scores of this kind, rounded like a table."""
    match kind:
        case "label":
            return (phi > 0).astype(np.float64)
        case "confidence":
            return round_confidences(1 / (1 + np.exp(-phi)), resolution)
        case _:
            return phi.copy()
