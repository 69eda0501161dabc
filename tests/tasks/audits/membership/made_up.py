"""Answers of models that were never trained: log-odds with an effect of membership, or without."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tasks.audits.membership.canaries import CANARIES
from tasks.audits.membership.trainings import ANSWERS
from tasks.datasets.mixtures import draw_balanced_members


def make_answers(models: int, records: int, effect: float, seed: int, exposed: int | None = None) -> list[pa.Table]:
    """A table of answers for each model.

    Records differ in difficulty and in spread. The first `exposed` records, all by default, gain `effect` nats by the
    models that were trained on them.
    """
    stream = np.random.default_rng(seed)
    member = draw_balanced_members(records, models, seed)
    spread = np.exp(0.5 * stream.normal(size=records))
    phi = stream.normal(size=(models, records)) * spread + 2 + 3 * stream.normal(size=records)
    phi += effect * (member & (np.arange(records) < (records if exposed is None else exposed)))
    return [
        pa.table([np.arange(records), its, odds, odds > 0], schema=ANSWERS)
        for its, odds in zip(member, phi, strict=True)
    ]


def make_canaries(
    shift: float, spent: float | None, models: int = 1, canaries: int = 700, seed: int = 0
) -> list[pa.Table]:
    """The canaries of so many models: log-odds that differ in difficulty, and are higher inside by `shift` noises."""
    stream = np.random.default_rng(seed)
    difficulty = stream.normal(scale=3.0 if models > 1 else 0.0, size=canaries)
    tables = []
    for number in range(models):
        inside = stream.random(canaries) < 0.5
        odds = difficulty + stream.normal(size=canaries) + shift * inside
        same = [pa.array([value] * canaries, kind) for value, kind in ((number, pa.int64()), (spent, pa.float64()))]
        columns = [same[0], np.arange(canaries), np.zeros(canaries, np.int64), inside, odds, same[1]]
        tables.append(pa.table(columns, schema=CANARIES))
    return tables
