"""log p of the observations under every trained model, read block by block from the training tables (FITTED).

Tables may arrive in any order, and some may be missing. A training of several links has one table per link, each with
log p at its own epochs. To bound memory, a block copies only the numbers of its observations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract.grouping import group_by
from tasks.contract.job import Inputs
from tasks.contract.ranges import AtLeast, Ranged
from tasks.datasets.catalog import load
from tasks.datasets.copies import first_copies
from tasks.datasets.dataset import Dataset
from tasks.training.density import OF_OBSERVATIONS, is_fitted
from tasks.training.density_config import RELEASED_SEED, Split, fold_of, released_fold_of

# Observations per block. Random numbers are drawn per block, so another size changes the draws.
BLOCK = 1024

LogDensity = NDArray[np.float32]  # log p of every observation under one model at one epoch
ByEpoch = dict[int, LogDensity]
Place = tuple[int, int]  # repetition, and model index within its K models


@dataclass(frozen=True)
class Folds(Ranged):
    """Random partitions of the observations into folds, one per seed, with one model trained without each fold.

    The observations are the first `observations` training images. If `asked` is test, they are the test images, and no
    model is trained on any fold.
    """

    data: Dataset
    observations: int
    partitions: tuple[int, ...]  # one seed per repetition
    folds: int
    asked: Split = "train"
    joins_copies: bool = False
    """Exact copies are one observation, held out together."""

    def conflicts(self) -> Iterator[str]:
        if not self.partitions:
            yield "partitions is empty; there must be at least one repetition's seed"
        if len(set(self.partitions)) < len(self.partitions):
            yield "partitions has a seed twice; each repetition must have its own"
        if not 2 <= self.folds <= self.observations:
            yield f"folds is {self.folds}; it must be from 2 to {self.observations}, the observations"

    @property
    def shape(self) -> tuple[int, int]:
        """Number of repetitions L, and models per repetition K."""
        return len(self.partitions), self.folds

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows of the observations with a score. Of exact copies, only the first has one."""
        if self.joins_copies:
            return np.unique(first_copies(load(self.data))[: self.observations])
        return np.arange(self.observations)

    def fold_of(self, partition: int) -> NDArray[np.int32]:
        """Return the fold of every observation in a partition, (observations,). Copies are held out with the first."""
        return fold_of(partition, self.observations, self.folds)


@dataclass(frozen=True)
class ReleasedFolds(Folds):
    """Partitions of the paper's released code, numbered from 0 instead of seeded."""

    generator: int = RELEASED_SEED

    def fold_of(self, partition: int) -> NDArray[np.int32]:
        return released_fold_of(partition, self.observations, self.folds, self.generator)


@dataclass(frozen=True)
class LeaveOneOut(Ranged):
    """Models trained on the first `observations` training images, and as many without each row of `left_out`.

    A repetition pairs, for each row, one model of each kind. The pairing follows the order of their seeds, which is
    arbitrary.
    """

    data: Dataset
    observations: int
    left_out: tuple[int, ...]
    repetitions: Annotated[int, AtLeast(1)]

    def conflicts(self) -> Iterator[str]:
        if not self.left_out:
            yield "left_out is empty; at least one row must be left out"
        if list(self.left_out) != sorted(set(self.left_out)):
            yield "left_out must be rows in ascending order, each once"
        for row in (self.left_out[0], self.left_out[-1]):
            if not 0 <= row < self.observations:
                yield f"row {row} is left out; the rows are 0 to {self.observations - 1}"

    @property
    def shape(self) -> tuple[int, int]:
        """Number of repetitions L, and two models per repetition: with all rows, and without the held-out row."""
        return self.repetitions, 2

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows of the observations with a score."""
        return np.array(self.left_out)


@dataclass(frozen=True, eq=False)
class Block:
    """log p of some observations under every model at one epoch, as input to tasks.audits.density.memorization."""

    number: int  # counted from 0
    places: slice  # positions among the rows with a score
    log_p: NDArray[np.float64]  # (n, L, K) in nats; NaN if the model is missing
    held_out: NDArray[np.int64]  # (n, L)


@dataclass(frozen=True, eq=False)
class Trained:
    """A training: its held-out data, and by recorded epoch log p of every observation.

    If log p is estimated from samples, the effective number of samples is also recorded.
    """

    partition: int | None
    fold: int | None
    row: int | None
    seed: int
    log_p: Mapping[int, LogDensity]
    effective_samples: Mapping[int, LogDensity]
    encoder_effective_samples: Mapping[int, LogDensity]


def labels(models: Folds | LeaveOneOut) -> NDArray[np.int32] | None:
    """Return the label of every observation with a score. None if the data have fewer than two classes."""
    images = load(models.data)
    if images.classes < 2:
        return None
    test = isinstance(models, Folds) and models.asked == "test"
    all_labels = images.test.labels if test else images.train.labels
    if models.observations > len(all_labels):
        split = "test" if test else "training"
        raise ValueError(
            f"observations is {models.observations}; {models.data.name} has {len(all_labels)} {split} images"
        )
    return all_labels[models.rows].astype(np.int32)


def _read_trainings(inputs: Inputs, observations: int) -> list[Trained]:
    """Read the trainings from these tables, joining the links of each.

    Raises ValueError if a table does not come from a training, or if a model scored a different number of observations.
    """
    by_training: dict[tuple[int | None, int | None, int | None, int], tuple[ByEpoch, ByEpoch, ByEpoch]] = {}
    for number, table in enumerate(inputs):
        if not is_fitted(table):
            raise ValueError(f"input {number} is not the table of a training")
        first = table.select(["partition", "fold", "row", "seed"]).slice(0, 1).to_pylist()[0]
        key = first["partition"], first["fold"], first["row"], first["seed"]
        columns = by_training.setdefault(key, ({}, {}, {}))
        for by_epoch, name in zip(columns, OF_OBSERVATIONS, strict=True):
            for epoch, values in _recorded_epochs(table, name) if name in table.column_names else ():
                if len(values) != observations:
                    raise ValueError(
                        f"the training of seed {first['seed']} scored {len(values)} observations at epoch {epoch}; "
                        f"expected {observations}"
                    )
                by_epoch[epoch] = values
    return [Trained(*training, *columns) for training, columns in by_training.items()]


def _recorded_epochs(table: pa.Table, name: str) -> Iterator[tuple[int, LogDensity]]:
    """Yield each recorded epoch and the column's values for every observation, without copying."""
    epochs = table["epoch"].to_pylist()
    column = table[name]
    for epoch, valid, values in zip(epochs, column.is_valid().to_pylist(), column, strict=True):
        if valid:
            yield epoch, values.values.to_numpy(zero_copy_only=False)


class LogDensities:
    """log p under every model, addressed by repetition and by index among the K models."""

    def __init__(self, models: Folds | LeaveOneOut, inputs: Inputs) -> None:
        self.models = models
        self.trainings = _read_trainings(inputs, models.observations)
        if isinstance(models, Folds):
            self.shared = _fold_models(models, self.trainings)
            self.by_row: Mapping[int, Mapping[int, Trained]] = {}
        else:
            self.shared, self.by_row = _row_models(models, self.trainings)

    def recorded_at(self, epoch: int) -> bool:
        """Return whether any model recorded log p at the epoch."""
        return any(epoch in training.log_p for training in self.trainings)

    def blocks(self, epoch: int) -> Iterator[Block]:
        """Yield all observations with a score in blocks. Raises ValueError if a model gives NaN or inf."""
        rows = self.models.rows
        folds = self.folds_of_all()
        for number, start in enumerate(range(0, len(rows), BLOCK)):
            positions = slice(start, min(start + BLOCK, len(rows)))
            log_p = np.full((positions.stop - start, *self.models.shape), np.nan)
            for (repetition, model), training in self.shared.items():
                fill(log_p[:, repetition, model], training, epoch, rows[positions])
            for position, row in enumerate(rows[positions].tolist()):
                row_slice = slice(start + position, start + position + 1)
                for repetition, training in self.by_row.get(row, {}).items():
                    fill(log_p[position : position + 1, repetition, 1], training, epoch, rows[row_slice])
            yield Block(number, positions, log_p, folds[positions])

    def effective_samples(self, epoch: int, of_encoder: bool = False) -> NDArray[np.float64]:
        """Return the effective number of samples behind each observation's log p, (n,), the median over its models.

        NaN if it is unknown at the epoch, as for models that are not evaluated by importance sampling. If codes are
        fitted to each observation, `of_encoder` selects the number for the encoder's unfitted codes.
        """

        def samples(training: Trained) -> Mapping[int, LogDensity]:
            if of_encoder:
                return training.encoder_effective_samples
            return training.effective_samples

        shared = [samples(training) for training in self.shared.values()]
        medians = np.full(len(self.models.rows), np.nan)
        for start in range(0, len(medians), BLOCK):
            rows = self.models.rows[start : start + BLOCK]
            shared_samples = [by_epoch[epoch][rows] for by_epoch in shared if epoch in by_epoch]
            row_samples = np.full((self.models.shape[0], len(rows)), np.nan, np.float32)
            for position, row in enumerate(rows.tolist()):
                for repetition, training in self.by_row.get(row, {}).items():
                    if epoch in samples(training):
                        row_samples[repetition, position] = samples(training)[epoch][row]
            by_model = np.concatenate([np.reshape(shared_samples, (len(shared_samples), len(rows))), row_samples])
            is_evaluated = ~np.isnan(by_model).all(axis=0)
            medians[start : start + BLOCK][is_evaluated] = np.nanmedian(by_model[:, is_evaluated], axis=0)
        return medians

    def folds_of_all(self) -> NDArray[np.int64]:
        """Return the index of the model that held each observation out, per repetition, (n, L)."""
        models = self.models
        if isinstance(models, LeaveOneOut):
            return np.ones((len(models.left_out), models.repetitions), np.int64)
        folds = [models.fold_of(partition)[models.rows] for partition in models.partitions]
        return np.stack(folds, axis=1).astype(np.int64)


def fill(into: NDArray[np.float64], training: Trained, epoch: int, rows: NDArray[np.int64]) -> None:
    """Write a model's log p of these rows if it was recorded at the epoch."""
    if epoch not in training.log_p:
        return
    into[:] = training.log_p[epoch][rows]
    is_invalid = np.isnan(into) | (into == np.inf)
    if is_invalid.any():
        position = int(is_invalid.argmax())
        raise ValueError(
            f"log p of observation {rows[position]} is {into[position]} at epoch {epoch} by the training of seed "
            f"{training.seed}; it must be a number or -inf"
        )


def _fold_models(models: Folds, trainings: list[Trained]) -> dict[Place, Trained]:
    """Map each fold to its model. Raises ValueError for an unknown fold, or if a fold has two models."""
    repetitions = {seed: repetition for repetition, seed in enumerate(models.partitions)}
    by_place: dict[Place, Trained] = {}
    for training in trainings:
        fold = training.fold
        if training.partition not in repetitions or fold is None or not 0 <= fold < models.folds:
            raise ValueError(f"the training of seed {training.seed} held out no fold of these partitions")
        key = repetitions[training.partition], fold
        if key in by_place:
            seeds = f"{by_place[key].seed} and {training.seed}"
            raise ValueError(f"fold {fold} of repetition {key[0]} has two trainings, of seeds {seeds}")
        by_place[key] = training
    return by_place


def _row_models(
    models: LeaveOneOut, trainings: list[Trained]
) -> tuple[dict[Place, Trained], dict[int, dict[int, Trained]]]:
    """Return the models trained on all data, and those without each row.

    Raises ValueError for a model that held out anything else, or for too many models.
    """
    held_out_rows = {None, *models.left_out}
    for training in trainings:
        if training.row not in held_out_rows or training.fold is not None:
            raise ValueError(f"the training of seed {training.seed} held out none of these rows")
    groups = group_by(trainings, lambda training: training.row)
    for row, group in groups.items():
        group.sort(key=lambda training: training.seed)
        if len(group) > models.repetitions:
            data = "all data" if row is None else f"all but row {row}"
            raise ValueError(f"there are {len(group)} trainings on {data}; repetitions is {models.repetitions}")
    full_models = {(repetition, 0): training for repetition, training in enumerate(groups.pop(None, []))}
    return full_models, {row: dict(enumerate(group)) for row, group in groups.items() if row is not None}
