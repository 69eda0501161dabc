"""The networks of a config: pairs of a canary's model and its twin, one to rank images on, or single models.

A twin is the network that a canary's model is compared with, of the same seed and without the canary. A canary's model
keeps the epoch of its lowest validation loss. Its twin is trained up to that same epoch, whatever its own validation
loss does: a twin that kept an epoch of its own would differ from the model by the canary and by epochs of training, and
the response to a feature grows with those. Which epoch that is is read from the canary's model, an input, so that a
plan needs to know nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tasks.audits.unique_feature.canary_selection import (
    Canary,
    CanaryChoice,
    RankedImage,
    RankedTraining,
    Tracing,
    canaries,
    choose_canaries,
    count_canary_copies,
    influence,
    link,
    train_with_canary,
)
from tasks.audits.unique_feature.config import Shape, UniqueFeature
from tasks.audits.unique_feature.single_models import SingleModelConfig, check_tables, single_model_config
from tasks.contract.job import Function, Inputs, Job, Work, single_table, task
from tasks.datasets.catalog import load
from tasks.datasets.features import check_fits
from tasks.numerics import seeds
from tasks.training import classifier
from tasks.training.chains import Part, chain, train_chains, up_to
from tasks.training.classifier import NearestImages, Training, train

if TYPE_CHECKING:
    from tasks.datasets.images import Images
    from tasks.training.members import Member


@dataclass(frozen=True, eq=False)
class Pair:
    """A pair of trainings of one canary: its model, and the twin with the same seed that is `clean` of the feature.

    Both have the weights of one epoch, that which the canary's model kept. `ranking` is the job, if any, that
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

    `shape` is that of the images they are asked about. `plain` are those of the same network without its regularisers,
    where the two are compared.
    """

    shape: Shape
    pairs: tuple[Pair, ...] = ()
    ranking: Ranking | None = None
    single_models: tuple[SingleModel, ...] = ()
    plain: Trainings | None = None


def trainings(config: UniqueFeature) -> Trainings:
    """What the config trains; ValueError where the data cannot serve it."""
    given = config.given
    if given.there:
        if not (given.models or given.outputs):
            raise ValueError("given has a shape alone; it must have models or outputs for there to be anything to ask")
        check_fits(config.feature, *config.shape[:2])
        asked = tuple(single_models(config, config.shape))
        check_tables(single.config for single in asked)
        return Trainings(config.shape, single_models=asked)
    images = load(config.trained_on)
    check_data(config, images)
    if config.asks_models:
        return Trainings(images.shape, single_models=tuple(single_models(config, images.shape)))
    return paired_trainings(config, images)


def check_data(config: UniqueFeature, images: Images) -> None:
    """ValueError where these training images cannot serve the config."""
    most = len(images.train_images)
    rows = config.examples or most
    for name, limit in (("examples", most), ("canaries", rows)):
        if getattr(config, name) > limit:
            raise ValueError(
                f"{name} is {getattr(config, name)}; it must be at most {limit}, the training images there are"
            )
    if config.neighbours_left_out >= rows:
        raise ValueError(
            f"neighbours_left_out is {config.neighbours_left_out}; it must be at most {rows - 1}, the training images "
            "beside the canary's"
        )
    for feature in (config.feature, config.carried):
        check_fits(feature, *images.shape[:2])


def paired_trainings(config: UniqueFeature, images: Images) -> Trainings:
    """The pairs of canaries among these images, and where they are compared those without regularisers."""
    ranking = self_influence_ranking(config) if config.choice == "self-influence" else None
    plain = paired_trainings(config.plain(), images) if config.beside_plain else None
    return Trainings(images.shape, tuple(pairs(config, canaries(config, images), ranking)), ranking, plain=plain)


def pairs(config: UniqueFeature, chosen: Sequence[Canary], ranking: Ranking | None) -> Iterator[Pair]:
    """Every canary's model and its twin, for each of its training seeds."""
    chosen_ones = () if ranking is None else (ranking.chosen,)
    for canary in chosen:
        for replicate in range(config.seeds):
            clean = clean_training(config, canary, replicate)
            if isinstance(canary.image, RankedImage):
                with_canary = RankedTraining(clean, canary.image, canary.carried)
                model = last_link(config, train_with_canary, with_canary, chosen_ones, link)
            else:
                model = last_link(config, train, canary.burn_into(clean))
            yield Pair(canary, clean, model, twin_job(config, clean, model), chosen_ones)


def twin_job(config: UniqueFeature, clean: Training, model: Job) -> Job:
    """The twin of the canary with this model, the last link of its chain.

    Without patience every network keeps its last epoch, so the twin need not wait to be told which.
    """
    if not clean.patience:
        return last_link(config, train, clean)
    return last_link(config, train_twin, twin_training(clean), (model,), twin_link)


def self_influence_ranking(config: UniqueFeature) -> Ranking:
    """The canaries of the highest and the lowest self-influence."""
    base = training(config, "base")
    every_image = Job(influence, Tracing(base))
    copies = count_canary_copies(config)
    if copies.groups and config.canaries > copies.records:
        raise ValueError(
            f"canaries is {config.canaries}; it must be at most {copies.records}, the training images that differ"
        )
    choice = CanaryChoice(config.canaries, config.trained_on if copies.groups else None)
    return Ranking(base, every_image, Job(choose_canaries, choice, (every_image,)))


def single_models(config: UniqueFeature, shape: Shape) -> Iterator[SingleModel]:
    """External models, or models trained on the unchanged data, which are asked about images of this shape."""
    given = config.given
    inputs: tuple[Job, ...] = ()
    for number in range(max(len(given.models), len(given.outputs)) if given.there else config.seeds):
        if not given.there:
            inputs = (last_link(config, train, training(config, *config.training_stream(0, number))),)
        yield SingleModel(single_model_config(config, shape, number), inputs)


def clean_training(config: UniqueFeature, canary: Canary, replicate: int) -> Training:
    """The training of this replicate without the canary, and without the neighbours of its clean image."""
    clean = training(config, *config.training_stream(canary.number, replicate))
    if not config.neighbours_left_out:
        return clean
    assert not isinstance(canary.image, RankedImage)  # of which no neighbours are left out
    return replace(clean, left_out=NearestImages(canary.image, config.neighbours_left_out))


def training(config: UniqueFeature, *stream: str | int) -> Training:
    """The training of a network without any canary, with the seed of this stream."""
    return replace(config.training, seed=seeds.derive(config.seed, *stream))


def last_link(
    config: UniqueFeature, function: Function, training: Any, inputs: tuple[Job, ...] = (), part: Part = up_to
) -> Job:
    """The job of the trained network, the last link of its chain."""
    return chain(function, training, config.link, inputs, part)[-1]


# Twins


@dataclass(frozen=True)
class TwinTraining:
    """`training` up to the epoch that the canary's model kept, and no further than its own `epochs`."""

    training: Training

    def __post_init__(self) -> None:
        if self.training.burnt:
            rows = ", ".join(str(burnt.row) for burnt in self.training.burnt)
            raise ValueError(f"training burns a feature into row {rows}; a twin's must burn none")
        if self.training.patience:
            raise ValueError(
                f"patience is {self.training.patience}; it must be 0, since the canary's model says where a twin ends"
            )

    @property
    def epochs(self) -> int:
        return self.training.epochs


def twin_training(clean: Training) -> TwinTraining:
    """The twin of a canary whose model is trained as `clean` is, but for the canary."""
    return TwinTraining(replace(clean, patience=0))


def twin_link(config: TwinTraining, before: int, end: int) -> TwinTraining:
    """The training up to epoch `end`."""
    return replace(config, training=up_to(config.training, before, end))


def twin_batch_key(config: TwinTraining) -> Training:
    """What trainings must share to be computed together."""
    return classifier.batch_key(config.training)


def twin_work(config: TwinTraining) -> Work:
    """What the training computes, up to the epoch that the canary's model is expected to keep."""
    return classifier.work(config.training, kept=True)


def last_epoch(config: TwinTraining, inputs: Inputs) -> int:
    """The epoch, from 1, up to which the twin is trained; the input is the MODEL of its canary."""
    (canary,) = inputs
    return min(config.epochs, int(canary["best_epoch"][0].as_py()))


def train_many_twins(
    configs: Sequence[TwinTraining], inputs: Sequence[Inputs]
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Each twin's MODEL table, or the exception that ended it alone, as it ends. All must have one batch key.

    Twins of one seed are one training that is left at several epochs.
    """
    if len({twin_batch_key(config) for config in configs}) > 1:
        raise ValueError("twins that differ in more than seed and learning rate cannot share a call")
    images = load(configs[0].training.data)
    until = [last_epoch(config, tables) for config, tables in zip(configs, inputs, strict=True)]
    # Equal trainings one after another, the first to end first, so that each goes on from where the last one ended.
    order = sorted(range(len(configs)), key=lambda index: (repr(configs[index].training), until[index]))
    members: dict[int, Member] = {}
    for place, index in enumerate(order):
        before = place - 1 if place and configs[order[place - 1]].training == configs[index].training else None
        member = classifier.member_of(configs[index].training, images)
        members[index] = replace(member, until=until[index], after=before)
    links = {index: replace(classifier.chain_state(configs[index].training), latest=until[index]) for index in members}
    for index, outcome in train_chains(classifier.spec_of(configs[0].training, images), members, links):
        trained = configs[index].training
        yield index, outcome if isinstance(outcome, Exception) else classifier.model_table(trained, images, outcome)


@task(
    version=1,
    name="unique_feature.train_twin",
    gpus=1.0,
    many=train_many_twins,
    batch_key=twin_batch_key,
    trains=1,
    work=twin_work,
)
def train_twin(config: TwinTraining, inputs: Inputs) -> pa.Table:
    """The network trained without the canary to the epoch that the canary's model kept (MODEL).

    The input is the MODEL of the canary. A new version of `classifier.train` is a new one of this.
    """
    return single_table(train_many_twins, config, inputs)
