"""The training of one model by a user's program, as a task: it trains on a share of a data set and scores a part of it.

The program's model itself is not kept, only its scores, as for estimators (`tasks.training.estimators`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeGuard

import numpy as np
import pyarrow as pa

from tasks.contract.job import Inputs, Job, Work, task
from tasks.contract.ranges import AtLeast, Ranged
from tasks.contract.schemas import MODEL, make_table
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset, is_numbered
from tasks.datasets.images import PictureSet
from tasks.datasets.mixtures import BalancedHalf, CoinedCanaries, CoinHalf, CombinedShares, Part, Rows, Share
from tasks.programs.config import Program, without_resources
from tasks.programs.data_writer import Records, check_writable, image_writer
from tasks.programs.returned import Requested, Scored
from tasks.programs.training import TrainingRequest, WriteData, train_and_score

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

TrainedShare = Share | BalancedHalf | CoinHalf | CoinedCanaries | CombinedShares


@dataclass(frozen=True)
class RowTraining(Ranged):
    """One training by a program: the rows that it trains on, those that it scores, and its seed."""

    program: Program
    share: TrainedShare
    scored: Part | CombinedShares
    seed: Annotated[int, AtLeast(0)] = 0


def training_job(program: Program, share: TrainedShare, scored: Part | CombinedShares, seed: int) -> Job:
    """Plan one training by a program, with the resources that it states.

    Raises ValueError if the scored records are of another data set, or if the canaries differ from their records, and
    the program cannot receive changed records.
    """
    dataset = share.part.data
    if dataset != scored.data:
        raise ValueError(
            f"a program scores the rows of the data set that it trains on, {dataset.named().name}; those of "
            f"{scored.data.named().name} have other numbers"
        )
    if _is_altered(share):
        _check_altered(program, dataset)
    return Job(train, RowTraining(without_resources(program), share, scored, seed), resources=program.resources)


def _is_altered(share: TrainedShare) -> TypeGuard[CoinedCanaries]:
    return isinstance(share, CoinedCanaries) and share.is_altered


def _check_altered(program: Program, data: Dataset) -> None:
    """Raise ValueError, in one line, if the program cannot receive canaries with other labels or images."""
    if is_numbered(data):
        raise ValueError(
            "Engram writes canaries with other labels or images into {data}, but knows these records only by number; "
            "name the data set, or set mislabelled=false canary_images=own"
        )
    images = load(data)
    check_writable(program, "tables" if images.is_table else "images", images.features)


def work(config: RowTraining) -> Work:
    return name_work(config.program)


def name_work(program: Program) -> Work:
    """Return the work: one training of this program, whose duration only a run or `check-training` can tell."""
    return Work({f"train with {program.name}": 1.0})


@task(version=1, name="programs.train", trains=1, work=work)
def train(config: RowTraining, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - a training reads no tables
    """Train on the rows of the share and score the rows of the part (PROGRAM).

    If the canaries differ from their records, both the training records and the scored ones are written into {data}.
    """
    dataset = config.scored.data
    images = load(dataset)
    asked = config.scored.rows(images)
    rows = config.share.rows(images)
    write_data = None
    if _is_altered(config.share):
        images = config.share.alter_canaries(images)
        write_data = image_writer(config.program, Records.of_rows(images, rows), Records.of_rows(images, asked))
    scored = _train(config.program, dataset, images, rows, asked, config.seed, write_data)
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


def train_on_rows(program: Program, dataset: Dataset, rows: Rows, asked: Rows, seed: int) -> Scored:
    """Train on these rows of the data set's training split, and score the rows that are asked."""
    return _train(program, dataset, load(dataset), rows, asked, seed)


def _train(
    program: Program,
    dataset: Dataset,
    images: PictureSet,
    rows: Rows,
    asked: Rows,
    seed: int,
    write_data: WriteData | None = None,
) -> Scored:
    """Train and score. For a table, the program's row numbers are those of the file, from 0."""
    held = None if is_numbered(dataset) else images
    numbers = images.file_rows(asked)
    requested = Requested(numbers, images.file_row_count, held, np.isin(asked, rows), asked)
    request = TrainingRequest(np.sort(images.file_rows(rows)), numbers, seed, write_data)
    return train_and_score(program, request, requested)


def check_held(dataset: Dataset) -> None:
    """Raise ValueError if Engram knows the records only by number, so that only a program can train on them."""
    if is_numbered(dataset):
        raise ValueError(
            f"{dataset.name} has only row numbers, which a training program of your own needs: give training.command "
            "or training=package.module:train, or name a data set"
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
