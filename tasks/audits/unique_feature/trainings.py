"""The networks of a config: pairs of a canary's model and its twin, one to rank images on, or single models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tasks import seeds
from tasks.audits.unique_feature import twins
from tasks.audits.unique_feature.canary_selection import (
    Canary,
    CanaryChoice,
    RankedImage,
    RankedTraining,
    canaries,
    choose_canaries,
    link,
    stream_path,
    train_with_canary,
)
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.self_influence import Tracing, influence
from tasks.audits.unique_feature.single_models import SingleModelConfig, single_model_config
from tasks.audits.unique_feature.twins import train_twin, twin_training
from tasks.datasets.catalog import load
from tasks.datasets.features import check_fits
from tasks.job import Job
from tasks.training.chains import chain
from tasks.training.classifier import Burnt, NearestImages, Training, train


@dataclass(frozen=True, eq=False)
class Pair:
    """A pair of trainings of one canary: its model, and the twin with the same seed that is `clean` of the feature.

    Both have the weights of one epoch, that which the canary's model kept (`twins`). `ranking` is the job, if any, that
    the canary's rank is read from.
    """

    canary: Canary
    clean: Training
    model: Job
    twin: Job
    ranking: tuple[Job, ...]

    @property
    def inputs(self) -> tuple[Job, ...]:
        """What a table of the pair is made from."""
        return (self.model, self.twin, *self.ranking)


@dataclass(frozen=True, eq=False)
class Ranking:
    """The canary-free training on which self-influence is traced, that of every image, and the canaries so chosen."""

    training: Training
    influence: Job
    chosen: Job


@dataclass(frozen=True, eq=False)
class SingleModel:
    """A model that is evaluated alone, with its config; the input is its training where it is trained here."""

    config: SingleModelConfig
    inputs: tuple[Job, ...]


@dataclass(frozen=True, eq=False)
class Trainings:
    """The networks of one config: `pairs` by canary and training seed, or `single_models`.

    `plain` are those of the same network without its regularisers, where the two are compared.
    """

    pairs: tuple[Pair, ...] = ()
    ranking: Ranking | None = None
    single_models: tuple[SingleModel, ...] = ()
    plain: Trainings | None = None


def trainings(config: UniqueFeature) -> Trainings:
    """What the config trains; ValueError where the data cannot serve it."""
    if not config.given.there:
        check_data(config)
    if config.asks_models:
        return Trainings(single_models=tuple(single_models(config)))
    ranking = self_influence_ranking(config) if config.choice == "self-influence" else None
    plain = trainings(config.plain()) if config.beside_plain else None
    return Trainings(tuple(pairs(config, ranking)), ranking, plain=plain)


def check_data(config: UniqueFeature) -> None:
    """ValueError where the data cannot serve the config."""
    images = load(config.trained_on).train_images
    rows = config.examples or len(images)
    for name, most in (("examples", len(images)), ("canaries", rows)):
        if getattr(config, name) > most:
            raise ValueError(
                f"{name} is {getattr(config, name)}; it must be at most {most}, the training images there are"
            )
    if config.neighbours_left_out >= rows:
        raise ValueError(
            f"neighbours_left_out is {config.neighbours_left_out}; it must be at most {rows - 1}, the training images "
            "beside the canary's"
        )
    for feature in (config.feature, config.carried):
        check_fits(feature, *images.shape[1:3])


def pairs(config: UniqueFeature, ranking: Ranking | None) -> Iterator[Pair]:
    """Every canary's model and its twin, for each of its training seeds."""
    chosen_ones = () if ranking is None else (ranking.chosen,)
    for canary in canaries(config):
        for replicate in range(config.seeds):
            clean = clean_training(config, training_seed(config, canary.number, replicate), canary)
            if isinstance(canary.image, RankedImage):
                with_canary = RankedTraining(clean, canary.image, canary.carried)
                model = chain(train_with_canary, with_canary, config.link, chosen_ones, link)[-1]
            else:
                model = training_job(config, replace(clean, burnt=(Burnt(canary.image, canary.carried),)))
            yield Pair(canary, clean, model, twin_job(config, clean, model), chosen_ones)


def twin_job(config: UniqueFeature, clean: Training, model: Job) -> Job:
    """The twin of the canary with this model, the last link of its chain.

    Without patience every network keeps its last epoch, so the twin need not wait to be told which.
    """
    if not clean.patience:
        return training_job(config, clean)
    return chain(train_twin, twin_training(clean), config.link, (model,), twins.link)[-1]


def training_job(config: UniqueFeature, training: Training) -> Job:
    """The job of the trained network, the last link of its chain."""
    return chain(train, training, config.link)[-1]


def self_influence_ranking(config: UniqueFeature) -> Ranking:
    """The canaries of the highest and the lowest self-influence."""
    base = training(config, seeds.derive(config.seed, "base"))
    every_image = Job(influence, Tracing(base))
    return Ranking(base, every_image, Job(choose_canaries, CanaryChoice(config.canaries), (every_image,)))


def single_models(config: UniqueFeature) -> Iterator[SingleModel]:
    """External models, or models trained on the unchanged data."""
    given = config.given
    if given.there and not (given.models or given.outputs):
        raise ValueError("given has a shape alone; it must have models or outputs for there to be anything to ask")
    check_fits(config.feature, *config.shape[:2])
    if given.there:
        for number in range(max(len(given.models), len(given.outputs))):
            yield SingleModel(single_model_config(config, number), ())
    else:
        first = single_model_config(config, 0)
        for replicate in range(config.seeds):
            model = training_job(config, training(config, training_seed(config, 0, replicate)))
            yield SingleModel(replace(first, number=replicate), (model,))


def training_seed(config: UniqueFeature, number: int, replicate: int) -> int:
    """The seed of the canary's training with its replicate, counted from 0."""
    path = (0 if config.one_seed else number, *((replicate,) if replicate else ()))
    return seeds.derive(config.seed, *stream_path(config, "training", *path))


def clean_training(config: UniqueFeature, seed: int, canary: Canary) -> Training:
    """The training of a network of this seed without the canary, and without the neighbours of its clean image."""
    clean, count = training(config, seed), config.neighbours_left_out
    if not count:
        return clean
    assert not isinstance(canary.image, RankedImage)  # of which no neighbours are left out
    return replace(clean, left_out=NearestImages(canary.image, count))


def training(config: UniqueFeature, seed: int) -> Training:
    """The training of a network of this seed without any canary."""
    return Training(
        data=config.trained_on,
        network=config.network,
        dropout=config.dropout,
        batch_norm=config.batch_norm,
        augmentation=config.augmentation,
        seed=seed,
        examples=config.examples,
        epochs=config.epochs,
        patience=config.patience,
        optimiser=config.optimiser,
        learning_rate=config.learning_rate,
        schedule=config.schedule,
        batch=config.batch,
        privacy=config.privacy,
        width=config.width,
    )
