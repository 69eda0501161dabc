"""Answers of models that were never trained: log-odds with an effect of membership, or without."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

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
