"""The networks of a config: pairs of a canary and a control model, a network that ranks images, or single models.

A control model is the network that a canary model is compared with: same seed, trained without the canary. A canary
model keeps the epoch with its lowest validation loss. Its control model is trained up to the same epoch, regardless of
its own validation loss. Otherwise, the two would also differ in the number of epochs, and the response to a feature
grows with this number. The task reads the epoch from the canary model, which is an input, because a plan cannot know
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tasks.audits.unique_feature.config import Shape, UniqueFeature
from tasks.audits.unique_feature.given_models import Given
from tasks.audits.unique_feature.pairs.canary_selection import (
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
from tasks.audits.unique_feature.program_training import PairTraining, check_program, clean_trainings, training_job
from tasks.audits.unique_feature.questions import (
    CanaryPairs,
    Pairs,
    Panel,
    ProbePictures,
    SelfInfluenceChoice,
    TrainedHere,
)
from tasks.audits.unique_feature.single_models.models import SingleModelConfig, check_tables, single_model_config
from tasks.contract.job import Function, Inputs, Job, Work, single_table, task
from tasks.datasets.catalog import load
from tasks.datasets.features import check_fits
from tasks.numerics import seeds
from tasks.programs.config import Program
from tasks.training import classifier
from tasks.training.chains import Part, chain, train_chains, up_to
from tasks.training.classifier import NearestImages, Training, train

if TYPE_CHECKING:
    from tasks.datasets.images import PictureSet
    from tasks.training.members import Member


@dataclass(frozen=True, eq=False)
class Pair:
    """A pair of training runs for one canary: its model, and the control model, trained with the same seed but without
    it.

    `clean` is the training without the canary. Both models have the weights of the epoch that the canary model kept.
    `ranking` contains the job, if any, that the canary's rank is read from.
    """

    canary: Canary
    clean: Training | PairTraining
    model: Job
    twin: Job
    ranking: tuple[Job, ...]

    @property
    def inputs(self) -> tuple[Job, ...]:
        """The inputs for a table about the pair."""
        return (self.model, self.twin, *self.ranking)


@dataclass(frozen=True, eq=False)
class Ranking:
    """The choice of canaries by self-influence, the influence of every image, and the canary-free training traced for
    it.
    """

    training: Training
    influence: Job
    selection: Job


@dataclass(frozen=True, eq=False)
class SingleModel:
    """A single model with its config. The input is its training if the audit trains it."""

    config: SingleModelConfig
    inputs: tuple[Job, ...]


@dataclass(frozen=True, eq=False)
class Trainings:
    """The networks of one config: `pairs` by canary and training seed, or `single_models`. Both can be empty.

    `shape` is the shape of the images on which they are evaluated. `plain` contains the networks without regularisers,
    if the two are compared.
    """

    shape: Shape
    pairs: tuple[Pair, ...] = ()
    ranking: Ranking | None = None
    single_models: tuple[SingleModel, ...] = ()
    plain: Trainings | None = None


def trainings(config: UniqueFeature) -> Trainings:
    """Return the models that the question trains or evaluates. Raises ValueError if the data are unsuitable."""
    question = config.question
    match question:
        case Given():
            return given_models(config, question)
        case Panel():
            images = load(question.data)
            _check_data(config, question, images)
            return Trainings(images.shape, single_models=tuple(trained_models(config, question, images.shape)))
        case CanaryPairs():
            images = load(question.data)
            _check_data(config, question, images)
            _check_canaries(question, images)
            if isinstance(question.training, Program):
                check_program(question.training)
            return _paired_trainings(config, question, images)
        case ProbePictures():
            shape = load(question.data).shape
            check_fits(config.asked_feature, *shape[:2])
            return Trainings(shape)


def _check_data(config: UniqueFeature, question: TrainedHere, images: PictureSet) -> None:
    """Raise ValueError if these training images are not suitable for the question."""
    image_count = len(images.train)
    if question.examples > image_count:
        raise ValueError(
            f"examples is {question.examples}; it must be at most {image_count}, the number of training images"
        )
    for feature in (config.asked_feature, config.carried):
        check_fits(feature, *images.shape[:2])


def _check_canaries(question: CanaryPairs, images: PictureSet) -> None:
    """Raise ValueError if there are fewer training images than canaries, or than neighbours to leave out."""
    rows = question.examples or len(images.train)
    if question.canaries > rows:
        raise ValueError(f"canaries is {question.canaries}; it must be at most {rows}, the number of training images")
    if question.neighbours_left_out >= rows:
        raise ValueError(
            f"neighbours_left_out is {question.neighbours_left_out}; it must be at most {rows - 1}, the "
            "number of other training images"
        )


def _paired_trainings(config: UniqueFeature, question: CanaryPairs, images: PictureSet) -> Trainings:
    """Return the pairs for canaries among these images, and those without regularisers if the two are compared."""
    by_influence = isinstance(question.choice, SelfInfluenceChoice)
    ranking = None
    if by_influence:
        ranking = _self_influence_ranking(config, question)
    plain = None
    if isinstance(question, Pairs) and question.beside_plain:
        plain = _paired_trainings(config, question.plain(), images)
    selected = canaries(config, question, images)
    if isinstance(question.training, Program):
        return Trainings(images.shape, tuple(_program_pairs(config, question, question.training, selected)))
    return Trainings(images.shape, tuple(pairs(config, question, selected, ranking)), ranking, plain=plain)


def pairs(
    config: UniqueFeature, question: CanaryPairs, selected: Sequence[Canary], ranking: Ranking | None
) -> Iterator[Pair]:
    """Yield every canary model and its control model, for each training seed."""
    chosen_ones = () if ranking is None else (ranking.selection,)
    link_epochs = question.recipe.link
    for canary in selected:
        for replicate in range(question.seeds):
            clean = clean_training(config, question, canary, replicate)
            if isinstance(canary.image, RankedImage):
                with_canary = RankedTraining(clean, canary.image, canary.carried_feature)
                model = _last_link(link_epochs, train_with_canary, with_canary, chosen_ones, link)
            else:
                model = _last_link(link_epochs, train, canary.burn_into(clean))
            yield Pair(canary, clean, model, _twin_job(link_epochs, clean, model), chosen_ones)


def _program_pairs(
    config: UniqueFeature, question: CanaryPairs, program: Program, selected: Sequence[Canary]
) -> Iterator[Pair]:
    """Yield every canary model and its control model, trained by a program, for each training seed."""
    assert isinstance(question, Pairs)  # no other question trains with programs
    for canary, clean in clean_trainings(config, question, program, selected):
        yield Pair(canary, clean, training_job(canary.burn_into(clean)), training_job(clean), ())


def _twin_job(link_epochs: int, clean: Training, model: Job) -> Job:
    """Return the control model of the canary with this model, which is the last link of its chain.

    Without patience, every network keeps its last epoch, so the control model need not wait to learn that epoch.
    """
    if not clean.patience:
        return _last_link(link_epochs, train, clean)
    return _last_link(link_epochs, train_twin, twin_training(clean), (model,), twin_link)


def _self_influence_ranking(config: UniqueFeature, question: CanaryPairs) -> Ranking:
    """Return the ranking that chooses the canaries with the highest and the lowest self-influence."""
    base = training(config, question, "base")
    every_image = Job(influence, Tracing(base))
    copies = count_canary_copies(question)
    if copies.groups and question.canaries > copies.records:
        raise ValueError(
            f"canaries is {question.canaries}; it must be at most {copies.records}, the training images that differ"
        )
    choice = CanaryChoice(question.canaries, question.data if copies.groups else None)
    return Ranking(base, every_image, Job(choose_canaries, choice, (every_image,)))


def given_models(config: UniqueFeature, question: Given) -> Trainings:
    """Return third-party models. Raises ValueError if a table of their outputs cannot be used."""
    if not (question.models or question.outputs):
        raise ValueError("given has a shape alone; it must have models or outputs for there to be anything to ask")
    check_fits(config.asked_feature, *question.shape[:2])
    count = max(len(question.models), len(question.outputs))
    models = tuple(SingleModel(single_model_config(config, question.shape, number), ()) for number in range(count))
    check_tables(single.config for single in models)
    return Trainings(question.shape, single_models=models)


def trained_models(config: UniqueFeature, question: Panel, shape: Shape) -> Iterator[SingleModel]:
    """Yield models trained on the unchanged data, which are evaluated on images of this shape."""
    for number in range(question.seeds):
        seeded = training(config, question, *config.training_stream(0, number))
        inputs = (_last_link(question.training.link, train, seeded),)
        yield SingleModel(single_model_config(config, shape, number), inputs)


def clean_training(config: UniqueFeature, question: CanaryPairs, canary: Canary, replicate: int) -> Training:
    """Return the training of this replicate without the canary, and without the neighbours of its clean image."""
    clean = training(config, question, *config.training_stream(canary.number, replicate))
    if not question.neighbours_left_out:
        return clean
    assert not isinstance(canary.image, RankedImage)  # no neighbours are left out for these
    return replace(clean, left_out=NearestImages(canary.image, question.neighbours_left_out))


def training(config: UniqueFeature, question: CanaryPairs | Panel, *stream: str | int) -> Training:
    """Return the training of a network without any canary, with the seed of this stream."""
    return replace(question.clean_training, seed=seeds.derive(config.seed, *stream))


def _last_link(
    link_epochs: int, function: Function, training: Any, inputs: tuple[Job, ...] = (), part: Part = up_to
) -> Job:
    """Return the job of the trained network, which is the last link of its chain."""
    return chain(function, training, link_epochs, inputs, part)[-1]


# Control models


@dataclass(frozen=True)
class TwinTraining:
    """`training` up to the epoch that the canary model kept, but no further than its own `epochs`."""

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
    """Return the control model of a canary whose model is trained like `clean`, except for the canary."""
    return TwinTraining(replace(clean, patience=0))


def twin_link(config: TwinTraining, before: int, end: int) -> TwinTraining:
    """Return the training up to epoch `end`."""
    return replace(config, training=up_to(config.training, before, end))


def _twin_batch_key(config: TwinTraining) -> Training:
    """Return the settings shared by training runs computed together."""
    return classifier.batch_key(config.training)


def _twin_work(config: TwinTraining) -> Work:
    """Return the work of the training up to the epoch that the canary model is expected to keep."""
    return classifier.work(config.training, ends_at_best_epoch=True)


def last_epoch(config: TwinTraining, inputs: Inputs) -> int:
    """Return the epoch, from 1, up to which the control model is trained. The input is the MODEL of its canary."""
    (canary,) = inputs
    return min(config.epochs, int(canary["best_epoch"][0].as_py()))


def train_many_twins(
    configs: Sequence[TwinTraining], inputs: Sequence[Inputs]
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Yield each control model's MODEL table, or its exception, as it ends. All must have the same batch key.

    Control models with the same seed are one training run, whose model is stored at several epochs.
    """
    if len({_twin_batch_key(config) for config in configs}) > 1:
        raise ValueError("twins that differ in more than seed and learning rate cannot share a call")
    images = load(configs[0].training.data)
    until = []
    for config, tables in zip(configs, inputs, strict=True):
        until.append(last_epoch(config, tables))
    # Equal training runs are ordered by their last epoch, so that each continues the previous one.
    order = sorted(range(len(configs)), key=lambda index: (repr(configs[index].training), until[index]))
    members: dict[int, Member] = {}
    for position, index in enumerate(order):
        before = None
        if position and configs[order[position - 1]].training == configs[index].training:
            before = position - 1
        member = classifier.member_of(configs[index].training, images)
        members[index] = replace(member, until=until[index], after=before)
    links = {index: replace(classifier.chain_state(configs[index].training), latest=until[index]) for index in members}
    for index, outcome in train_chains(classifier.spec_of(configs[0].training, images), members, links):
        table = configs[index].training
        yield index, outcome if isinstance(outcome, Exception) else classifier.model_table(table, images, outcome)


@task(
    version=1,
    name="unique_feature.train_twin",
    gpus=1.0,
    many=train_many_twins,
    batch_key=_twin_batch_key,
    trains=1,
    work=_twin_work,
    spreads=True,
)
def train_twin(config: TwinTraining, inputs: Inputs) -> pa.Table:
    """Train the network without the canary to the epoch that the canary model kept (MODEL).

    The input is the MODEL of the canary. If the version of `classifier.train` is raised, also raise that of this task.
    """
    return single_table(train_many_twins, config, inputs)
