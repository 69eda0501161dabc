"""Training models of the density of images: the task that density audits plan their models with.

Published training: Adam at torch's defaults but for the learning rate, 64 images a step, a fixed number of epochs, the
loss summed over a minibatch; log p of every observation at some of the epochs. Van den Burg & Williams 2021, "On
memorization in probabilistic deep generative models", algorithm 1 and supplement B.

Planning a training imports no torch; computing one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tasks.job import Inputs, task
from tasks.models.catalog import autoencoder_growth
from tasks.training.chains import Linked, train_chains
from tasks.training.density_config import DensityTraining, RefinedTraining, Row, examples, trained_on
from tasks.training.density_table import Evaluation, Evaluator, density_table
from tasks.work import Work, format_shape

if TYPE_CHECKING:
    from tasks.datasets.images import Images
    from tasks.training.members import Member
    from tasks.training.trainer import Outcome


def batch_key(config: DensityTraining) -> DensityTraining:
    """What trainings must share to be computed together: all but seed, learning rate, held-out data and evaluations."""
    return replace(config, seed=0, held_out=None, recorded=(), learning_rate=1.0, drawn=0)


def train_many(
    configs: Sequence[DensityTraining],
    inputs: Sequence[Inputs],  # noqa: ARG001 - a training reads no tables
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Each training's FITTED table, or the exception that ended it alone, as it ends. All must have one batch key.

    A link of a chain continues from a given state and leaves its own where that is wanted (`tasks.checkpoints`).
    """
    from tasks.datasets.catalog import load
    from tasks.training.density_objective import generative
    from tasks.training.members import Spec

    first = configs[0]
    if len({batch_key(config) for config in configs}) > 1:
        raise ValueError(
            "trainings that differ in more than seed, learning rate and what is held out and asked cannot share a call"
        )
    images = load(first.data)
    learning = generative(first.model, images, first.outliers, first.width)
    members: dict[int, Member] = {}
    for index, config in enumerate(configs):
        try:
            if config.drawn:
                learning.check_drawn()
            members[index] = member_of(config, images)
        except ValueError as error:
            yield index, error
    order = list(members)
    evaluator = Evaluator(learning, [configs[index] for index in order], images)
    spec = Spec(learning, first.recipe, images, evaluator.watch)
    outcomes: Iterator[Outcome]
    if first.privacy is not None:  # a private training is never broken into links
        from tasks.training import dp_sgd

        steps = {index: private_steps(configs[index], members[index]) for index in order}
        outcomes = dp_sgd.train_by_index(spec, members, first.privacy, steps)
    else:
        outcomes = train_chains(spec, members, {index: chain_state(configs[index]) for index in order})
    places = {index: place for place, index in enumerate(order)}
    for index, outcome in outcomes:
        evaluation = evaluator.evaluations.pop(places[index], Evaluation())
        if isinstance(outcome, Exception):
            yield index, outcome
        elif evaluation.error is not None:
            yield index, evaluation.error
        else:
            yield index, density_table(configs[index], outcome.history, evaluation, outcome.epsilons)


def work(config: DensityTraining) -> Work:
    """What the training and its estimates of log p compute."""
    from tasks.datasets.catalog import load

    images = load(config.data)
    rows = examples(config, images)
    seen = rows if config.held_out is None else len(trained_on(config, rows))
    asked = rows if config.asked == "train" else len(images.test_images)
    model = f"{config.model.name} on {format_shape(images.shape)}"
    way = "train" if config.privacy is None else "privately train"
    each = 1 + config.refine if isinstance(config, RefinedTraining) else 1
    estimated = asked * config.samples * len(config.recorded) * each
    trained, decoded = autoencoder_growth(images.shape, config.width)
    return Work({f"{way} {model}": trained * seen * config.epochs}, {f"draw codes for {model}": decoded * estimated})


@task(version=2, name="generator.fit", gpus=1.0, many=train_many, batch_key=batch_key, trains=1, work=work)
def fit(config: DensityTraining, inputs: Inputs) -> pa.Table:
    """The losses of a training and its model's log p of every observation, with how it was estimated (FITTED)."""
    ((_, outcome),) = train_many([config], [inputs])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def member_of(config: DensityTraining, images: Images) -> Member:
    """The member with the rows it trains on; ValueError where the held-out row is not among the observations."""
    from tasks.training.members import Member

    return Member(config.seed, trained_on(config, examples(config, images)), learning_rate=config.learning_rate)


def private_steps(config: DensityTraining, member: Member) -> int:
    """Steps of a private epoch: the same number with a row as without it, so that both are one mechanism."""
    from tasks.training.minibatches import minibatches

    return minibatches(len(member.rows) + isinstance(config.held_out, Row), config.batch)


def chain_state(config: DensityTraining) -> Linked:
    """The states a training may continue from: those of the same training, for any number of epochs and evaluations."""
    same = replace(config, epochs=1, recorded=(), drawn=0)
    return Linked(f"{same} {same.recipe}", latest(config))


def latest(config: DensityTraining) -> int:
    """The last epoch that a training may continue from: the one before its first evaluation."""
    evaluated = (*config.recorded, *((config.epochs,) if config.drawn else ()))
    return min(evaluated) - 1 if evaluated else config.epochs
