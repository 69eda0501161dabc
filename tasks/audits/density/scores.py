"""How strongly each observation is memorised, after the last epoch: its scores, p-value, and what they are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks import seeds, statistics
from tasks.audits.density.folds import Alone, Answers, Block, Folds, labels
from tasks.audits.density.memorization import matched, terms
from tasks.audits.density.reassignment import p_values
from tasks.job import Inputs, task

SCORES = pa.schema(
    [
        ("row", pa.int64()),  # of the split that was asked about
        ("label", pa.int32()),  # null where the data have none
        ("log_p_trained", pa.float64()),  # U, in nats
        ("log_p_held_out", pa.float64()),  # V
        ("m", pa.float64()),  # the published score, U - V; null where it is undefined
        ("m_matched", pa.float64()),  # with as many models on either side
        ("p_value", pa.float64()),  # of m, had others held the observation out
        ("p_adjusted", pa.float64()),  # Benjamini and Hochberg's, over the observations
        ("trained_models", pa.int32()),
        ("held_out_models", pa.int32()),
        # By repetition, null where there are no models: log mean exp over those that trained on the observation, and
        # log p by the one that did not.
        ("trained", pa.list_(pa.float32())),
        ("held_out", pa.list_(pa.float32())),
    ]
)


@dataclass(frozen=True)
class Scores:
    """Which models there are and when they are asked; `permutations` for a p-value, `draws` for a matched-count score.

    The draws come from `seed`.
    """

    models: Folds | Alone
    epoch: int
    permutations: int = 9999
    draws: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in {"epoch": 1, "permutations": 1, "draws": 1, "seed": 0}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}")


@task(version=1, name="density.scores", gathers=True)
def scores(config: Scores, inputs: Inputs) -> pa.Table:
    """The scores of every observation (SCORES), by row, from the trainings' tables, in any order.

    ValueError where no model was asked at the epoch. In leave-one-out the p-values of several rows share the models of
    all data, so that they rise and fall together.
    """
    answers = Answers(config.models, inputs)
    if not answers.any_at(config.epoch):
        raise ValueError(f"no training was asked about the observations at epoch {config.epoch}")
    rows = config.models.rows
    known = labels(config.models)
    blocks = [of_block(config, block) for block in answers.blocks(config.epoch)]
    columns = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    adjusted = statistics.false_discovery_adjusted(columns["p_value"])
    arrays = {
        "row": pa.array(rows),
        "label": pa.nulls(len(rows), pa.int32()) if known is None else pa.array(known),
        **{name: column_of(values) for name, values in (columns | {"p_adjusted": adjusted}).items()},
    }
    return pa.Table.from_arrays([arrays[name].cast(SCORES.field(name).type) for name in SCORES.names], schema=SCORES)


def of_block(config: Scores, block: Block) -> dict[str, NDArray[Any]]:
    """The columns of a block that need no other block."""

    def chance(name: str) -> np.random.Generator:
        return seeds.generator(config.seed, name, config.epoch, block.number)

    said = terms(block.log_p, block.held_out)
    trained, held_out = (values.astype(np.float32) for values in said.by_repetition)
    return {
        "log_p_trained": said.u,
        "log_p_held_out": said.v,
        "m": said.score,
        "m_matched": matched(block.log_p, block.held_out, config.draws, chance("matched"), each=False)[0],
        "p_value": p_values(block.log_p, block.held_out, config.permutations, chance("permutations")),
        "trained_models": said.trained_models.sum(axis=1, dtype=np.int32),
        "held_out_models": said.held_out_models.sum(axis=1, dtype=np.int32),
        "trained": trained,
        "held_out": held_out,
    }


def column_of(values: NDArray[Any]) -> pa.Array:
    """A column of numbers (n,), or of lists (n, L), null where there is none; infinities are numbers."""
    flat = pa.array(values.reshape(-1), mask=np.isnan(values.reshape(-1)))
    if values.ndim == 1:
        return flat
    return pa.ListArray.from_arrays(np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1]), flat)
