"""Which networks a config trains: the canaries, the pairs of trainings, and the one that canaries are ranked on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tasks import seeds
from tasks.audits.unique_feature.choice import Choice, Ranked, RankedTraining, chosen, train_ranked
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.influence import Tracing, influence
from tasks.audits.unique_feature.triples import Shape
from tasks.datasets.catalog import load
from tasks.datasets.features import Feature, drawn
from tasks.job import Job
from tasks.training.classifier import Burnt, Training, train


@dataclass(frozen=True)
class Canary:
    """One canary: which training image, what it carries, and what its models are asked about."""

    number: int
    image: int | Ranked
    carried: Feature
    asked: Feature


@dataclass(frozen=True, eq=False)
class Trainings:
    """A pair of trainings of one canary, and what a rank is read from."""

    canary: Canary
    seed: int
    model: Job
    twin: Job
    chosen: tuple[Job, ...]

    @property
    def inputs(self) -> tuple[Job, ...]:
        return (self.model, self.twin, *self.chosen)


def canaries(config: UniqueFeature) -> list[Canary]:
    """The canaries, in an order in which fewer are the first of more where they are drawn at random."""
    images: list[int | Ranked]
    if config.choice == "self-influence":
        highest = (config.canaries + 1) // 2
        images = [Ranked("highest", rank) for rank in range(1, highest + 1)]
        images += [Ranked("lowest", rank) for rank in range(1, config.canaries - highest + 1)]
    else:
        rows = config.examples or len(load(config.trained_on).train_images)
        order = seeds.generator(config.seed, "canaries").permutation(rows)
        images = [int(row) for row in order[: config.canaries]]
    found = []
    for number, image in enumerate(images):
        own = own_feature(config, number) if config.drawn else None
        found.append(Canary(number, image, own or config.carried, own or config.feature))
    return found


def own_feature(config: UniqueFeature, number: int) -> Feature:
    """A member of the feature's family, drawn for this canary, as its family's other members will be."""
    return drawn(config.feature, seeds.derive(config.seed, "feature", number), config.family, shape(config)[:2])


def training_seed(config: UniqueFeature, number: int, replicate: int) -> int:
    """The seed of the canary's training with its replicate, counted from 0."""
    path = (0 if config.one_seed else number, *((replicate,) if replicate else ()))
    return seeds.derive(config.seed, "training", *path)


def training(config: UniqueFeature, seed: int, burnt: tuple[Burnt, ...] = ()) -> Training:
    return Training(
        data=config.trained_on,
        network=config.network,
        dropout=config.dropout,
        batch_norm=config.batch_norm,
        augmentation=config.augmentation,
        seed=seed,
        burnt=burnt,
        examples=config.examples,
        epochs=config.epochs,
        patience=config.patience,
        optimiser=config.optimiser,
        learning_rate=config.learning_rate,
        schedule=config.schedule,
        batch=config.batch,
    )


def pairs(config: UniqueFeature) -> Iterator[Trainings]:
    """Every canary's model and its twin, for each of its training seeds."""
    ranking = (chosen_job(config),) if config.choice == "self-influence" else ()
    for canary in canaries(config):
        for replicate in range(config.seeds):
            seed = training_seed(config, canary.number, replicate)
            clean = training(config, seed)
            if isinstance(canary.image, Ranked):
                model = Job(train_ranked, RankedTraining(clean, canary.image, canary.carried), ranking)
            else:
                model = Job(train, replace(clean, burnt=(Burnt(canary.image, canary.carried),)))
            yield Trainings(canary, seed, model, Job(train, clean), ranking)


def base(config: UniqueFeature) -> Training:
    """The canary-free training on which self-influence is traced."""
    return training(config, seeds.derive(config.seed, "base"))


def influence_job(config: UniqueFeature) -> Job:
    return Job(influence, Tracing(base(config)))


def chosen_job(config: UniqueFeature) -> Job:
    return Job(chosen, Choice(config.canaries), (influence_job(config),))


def shape(config: UniqueFeature) -> Shape:
    """Of the images that models are asked about."""
    return config.given.shape or load(config.trained_on).shape
