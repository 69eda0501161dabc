"""Trainings of a run: held-out rows, seed and evaluation epochs of each model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tasks.audits.density.config import Memorization, ModelTraining, NeighbourMeasure, Question, SingleRows
from tasks.audits.density.log_densities import Folds, LeaveOneOut, ReleasedFolds
from tasks.audits.density.program_fits import ProgramFit, fit_job
from tasks.contract.job import Job
from tasks.datasets.catalog import load
from tasks.datasets.copies import CopyCount, count_copies, distinct_rows
from tasks.datasets.images import PictureSet
from tasks.models.custom import is_own
from tasks.numerics import seeds
from tasks.programs.config import Program
from tasks.programs.row_training import check_held
from tasks.training.chains import chain
from tasks.training.density import fit
from tasks.training.density_config import DensityTraining, Fold, RefinedTraining, ReleasedFold, Row

Chain = tuple[Job, ...]  # links of one training in order; usually one


@dataclass(frozen=True, eq=False)
class Trainings:
    """Trainings of a run, which all measures share.

    `models` describes the models and their held-out data. `fits` are their jobs, repetition by repetition, which give
    log p of the observations. `full_model` contains the links of the one model trained on all data, from which samples
    are drawn. It is empty for leave-one-out, where half of the models are trained on all data, and for a user's
    program, which returns no samples. `seed` determines the draws of both score tables, so that the distribution
    describes the scores of the observations.
    """

    config: Memorization
    models: Folds | LeaveOneOut
    fits: tuple[Job, ...]
    full_model: tuple[Job, ...]
    seed: int

    @property
    def all(self) -> tuple[Job, ...]:
        return (*self.fits, *self.full_model)


def trainings(config: Question) -> Trainings | None:
    """Plan the trainings of the estimator. None if the question needs none."""
    if not isinstance(config, Memorization):
        return None
    images = load(config.data)
    count = observations(config, images)
    seed = seeds.derive(config.seed, "scores")
    joins_copies = copies_held_out(config).groups > 0
    shared = fitting(config, joins_copies)
    if isinstance(config.estimator, SingleRows):
        rows = left_out(config, config.estimator, images, count)
        models = LeaveOneOut(config.data, count, rows, config.repetitions)
        return Trainings(config, models, _join_links(_row_chains(config, shared, rows)), (), seed)
    partitions = tuple(partition(config, repetition) for repetition in range(config.repetitions))
    kind = ReleasedFolds if config.has_released_partitions else Folds
    folds = kind(config.data, count, partitions, config.models, config.evaluation_split, joins_copies=joins_copies)
    full_model = () if isinstance(shared, ProgramFit) else whole(config, shared, images)
    return Trainings(config, folds, _join_links(_fold_chains(config, shared)), full_model, seed)


def _join_links(chains: Iterator[Chain]) -> tuple[Job, ...]:
    return tuple(job for links in chains for job in links)


def _fold_chains(config: Memorization, shared: DensityTraining | ProgramFit) -> Iterator[Chain]:
    """Yield the L x K models, repetition by repetition. `shared` is their common configuration."""
    kind = ReleasedFold if config.has_released_partitions else Fold
    for repetition in range(config.repetitions):
        for number in range(config.models):
            fold = kind(partition(config, repetition), config.models, number)
            seed = seeds.derive(config.seed, "training", repetition, number)
            yield _link_training(config, replace(shared, seed=seed, held_out=fold))


def whole(config: Memorization, shared: DensityTraining, images: PictureSet) -> Chain:
    """Plan the model trained on all data, which draws one sample per test image."""
    sample_count = len(images.test) if draws(config) else 0
    seed = seeds.derive(config.seed, "training", "whole")
    return _link_training(config, replace(shared, joins_copies=False, seed=seed, recorded=(), drawn=sample_count))


def draws(config: Memorization) -> bool:
    """Return whether samples are drawn. A user's own model may not support this."""
    is_users_own = isinstance(config.training, Program) or is_own(config.training.model.name)
    return not is_users_own or config.measure(NeighbourMeasure) is not None


def _row_chains(config: Memorization, shared: DensityTraining | ProgramFit, rows: tuple[int, ...]) -> Iterator[Chain]:
    """Yield `repetitions` models trained on all data, then `repetitions` models without each held-out row."""
    for trial in range(config.repetitions):
        seed = seeds.derive(config.seed, "training", "with", trial)
        yield _link_training(config, replace(shared, joins_copies=False, seed=seed))
    for row in rows:
        for trial in range(config.repetitions):
            seed = seeds.derive(config.seed, "training", "without", row, trial)
            yield _link_training(config, replace(shared, seed=seed, held_out=Row(row)))


def left_out(config: Memorization, estimator: SingleRows, images: PictureSet, count: int) -> tuple[int, ...]:
    """Choose the rows among the first `count` that are held out one by one, in ascending order."""
    records = distinct_rows(images, np.arange(count))
    if not estimator.held_out_rows:
        return tuple(records.tolist())
    count_left_out = min(estimator.held_out_rows, len(records))
    selection = seeds.generator(config.seed, "left out").choice(records, count_left_out, replace=False)
    return tuple(map(int, np.sort(selection)))


def observations(config: Memorization, images: PictureSet) -> int:
    """Count the observations with a score. Raises ValueError if the data are too few or do not fit the model."""
    if isinstance(config.training, ModelTraining):
        check_held(config.data)
        config.training.model.check_size(*images.shape[:2])
    available = len(images.train)
    count = config.examples or available
    if config.evaluation_split == "test":
        observation_count = len(images.test)
    else:
        observation_count = count
    if count > available:
        raise ValueError(f"examples is {count}; it must be at most {available}, the number of training images")
    if config.leaves_out_rows:
        name = "held_out_rows"
        limit = count
    else:
        name = "folds"
        limit = min(count, observation_count)
    number = getattr(config.estimator, name)
    if number > limit:
        raise ValueError(f"{name} is {number}; it must be at most {limit}, the number of observations")
    return observation_count


def copies_held_out(config: Memorization) -> CopyCount:
    """Count the exact copies that are held out together. None in the paper's partitions, which separate copies."""
    if config.has_released_partitions or config.evaluation_split == "test":
        return CopyCount()
    images = load(config.data)
    return count_copies(images, np.arange(config.examples or len(images.train)))


def partition(config: Memorization, repetition: int) -> int:
    """Return the seed of the repetition's partition, or the number of a released partition."""
    if config.has_released_partitions:
        return repetition
    return seeds.derive(config.seed, "partition", repetition)


def fitting(config: Memorization, joins_copies: bool) -> DensityTraining | ProgramFit:
    """Return the settings that all trainings share."""
    if isinstance(config.training, Program):
        return ProgramFit(config.training, config.data, examples=config.examples, joins_copies=joins_copies)
    kind = partial(RefinedTraining, refine=config.refinement_steps) if config.refinement_steps else DensityTraining
    return kind(
        data=config.data,
        model=config.training.model,
        asked=config.evaluation_split,
        examples=config.examples,
        epochs=config.training.epochs,
        recorded=config.training.recorded,
        batch=config.training.batch,
        learning_rate=config.training.learning_rate,
        samples=config.samples,
        view=seeds.derive(config.seed, "view"),
        afresh=config.resample_pixels,
        outliers=config.training.outlier_share,
        privacy=config.training.guarantee,
        width=config.training.width,
        joins_copies=joins_copies,
        precision=config.training.precision,
        log_p_precision=config.log_p_precision,
    )


def _link_training(config: Memorization, training: DensityTraining | ProgramFit) -> Chain:
    """Split the training into links of `link` epochs, each evaluated at its own epochs. A program is one job."""
    if isinstance(training, ProgramFit):
        return (fit_job(training),)
    assert isinstance(config.training, ModelTraining)
    return chain(fit, training, config.training.link, part=link)


def link(training: DensityTraining, before: int, end: int) -> DensityTraining:
    """Return the training up to epoch `end`, evaluated only after epoch `before`. Only the last link draws samples."""
    recorded = tuple(epoch for epoch in training.recorded if before < epoch <= end)
    return replace(training, epochs=end, recorded=recorded, drawn=training.drawn if end == training.epochs else 0)
