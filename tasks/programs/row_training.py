"""The training of one model by a user's program, as a task: it trains on a share of a data set and scores a part of it.

The program's model itself is not kept, only its scores, as for estimators (`tasks.training.estimators`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa

from tasks.contract.job import Inputs, Job, Work, task
from tasks.contract.ranges import AtLeast, Ranged
from tasks.contract.schemas import MODEL, make_table
from tasks.datasets.catalog import load
from tasks.datasets.dataset import is_numbered
from tasks.datasets.mixtures import BalancedHalf, CoinedCanaries, CoinHalf, Part, Rows, Share
from tasks.programs.config import Program, without_resources
from tasks.programs.returned import Requested, Scored
from tasks.programs.training import TrainingRequest, train_and_score

# One row. `seed`, `best_epoch` and `history` mean the same as in MODEL; a program has no history.
PROGRAM = pa.schema(
    [
        MODEL.field("seed"),
        MODEL.field("best_epoch"),
        MODEL.field("history"),
        ("rows", pa.list_(pa.int64())),  # of the training split
        ("score", pa.list_(pa.float64())),  # of each of these rows: log-odds in nats, or what the program returns
        ("correct", pa.list_(pa.bool_())),  # null if it is unknown
        ("epsilons", pa.list_(pa.float64())),  # that the program states; empty without privacy
    ]
)


@dataclass(frozen=True)
class RowTraining(Ranged):
    """One training by a program: the rows that it trains on, those that it scores, and its seed."""

    program: Program
    share: Share | BalancedHalf | CoinHalf | CoinedCanaries
    scored: Part
    seed: Annotated[int, AtLeast(0)] = 0


def training_job(
    program: Program, share: Share | BalancedHalf | CoinHalf | CoinedCanaries, scored: Part, seed: int
) -> Job:
    """Plan one training by a program, with the resources that it states.

    Raises ValueError if the audit changes records, which a program does not see.
    """
    if isinstance(share, CoinedCanaries) and share.is_altered:
        raise ValueError(
            "canaries with other labels or images need the records in {data}, and a program of membership gets only "
            "row numbers; set mislabelled=false canary_images=own"
        )
    return Job(train, RowTraining(without_resources(program), share, scored, seed), resources=program.resources)


def work(config: RowTraining) -> Work:
    """Return the work: one training of this program, whose duration only a run or `check-training` can tell."""
    return Work({f"train with {config.program.name}": 1.0})


@task(version=1, name="programs.train", trains=1, work=work)
def train(config: RowTraining, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - a training reads no tables
    """Train on the rows of the share and score the rows of the part (PROGRAM)."""
    dataset = config.share.part.data
    images = load(dataset)
    rows = config.share.rows(images)
    asked = config.scored.rows(load(config.scored.data))
    held = None if is_numbered(dataset) else images
    requested = Requested(asked, len(images.train_images), held, np.isin(asked, rows))
    scored = train_and_score(config.program, TrainingRequest(rows, asked, config.seed), requested)
    privacy = config.program.privacy
    return make_table(
        PROGRAM,
        seed=[config.seed],
        best_epoch=[1],
        history=[[]],
        rows=[asked],
        score=[scored.score],
        correct=[scored.correct],
        epsilons=[[] if privacy is None else [privacy.epsilon]],
    )


def is_programmed(model: pa.Table) -> bool:
    """Return whether a model's table holds the scores of a program (PROGRAM) rather than weights or outputs."""
    return bool(model.schema.equals(PROGRAM))


def scores_of(model: pa.Table, rows: Rows) -> Scored:
    """Return the scores of a program's model for these rows, which must be among those that it scored."""
    known = np.asarray(model["rows"][0].values)
    order = np.argsort(known)
    places = order[np.searchsorted(known[order], rows)]
    score = np.asarray(model["score"][0].values)[places]
    correct = model["correct"][0]
    return Scored(score, np.asarray(correct.values)[places] if correct.is_valid else None)
