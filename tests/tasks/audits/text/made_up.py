"""What a pair of models might say of secrets and of their references, without any model."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tasks.audits.text.secret_space import SCORES

REPETITIONS = (1, 4, 16)


def make_scores(known: float, seed: int, secrets: int = 24, references: int = 499, pair: int = 0) -> list[pa.Table]:
    """The scores of both models of a pair; the one that was told a secret says it likelier by so many nats.

    Some candidates are likelier than others to either model, by 2 nats; the models differ by 1 besides.
    """
    chance = np.random.default_rng(seed)
    rows: list[list[dict[str, object]]] = [[], []]
    for number, side in enumerate(chance.integers(0, 2, secrets).tolist(), start=1):
        liked = chance.normal(-30, 2, references + 1)
        for model in range(2):
            log_p = liked + chance.normal(0, 1, references + 1)
            log_p[0] += known * (model == side)
            about = {"pair": pair, "secret": number, "repetitions": REPETITIONS[number % 3]}
            rows[model].append(about | {"inserted": model == side, "log_p": log_p.tolist()})
    return [pa.Table.from_pylist(each, SCORES) for each in rows]
