"""Twins: the networks that a canary's model is compared with, of the same seed and without the canary.

A canary's model keeps the epoch of its lowest validation loss. Its twin is trained up to that same epoch, whatever its
own validation loss does: a twin that kept an epoch of its own would differ from the model by the canary and by epochs
of training, and the response to a feature grows with those. Which epoch that is is read from the canary's model, an
input, so that a plan needs to know nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tasks.datasets.catalog import load
from tasks.job import Inputs, task
from tasks.training import classifier
from tasks.training.chains import train_chains, up_to
from tasks.training.classifier import Training
from tasks.work import Work

if TYPE_CHECKING:
    from tasks.training.members import Member


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


def link(config: TwinTraining, before: int, end: int) -> TwinTraining:
    """The training up to epoch `end`."""
    return replace(config, training=up_to(config.training, before, end))


def batch_key(config: TwinTraining) -> Training:
    """What trainings must share to be computed together."""
    return classifier.batch_key(config.training)


def work(config: TwinTraining) -> Work:
    """What the training computes, up to the epoch that the canary's model is expected to keep."""
    return classifier.work(config.training, kept=True)


def last_epoch(config: TwinTraining, inputs: Inputs) -> int:
    """The epoch, from 1, up to which the twin is trained; the input is the MODEL of its canary."""
    (canary,) = inputs
    return min(config.epochs, int(canary["best_epoch"][0].as_py()))


def train_many(configs: Sequence[TwinTraining], inputs: Sequence[Inputs]) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Each twin's MODEL table, or the exception that ended it alone, as it ends. All must have one batch key.

    Twins of one seed are one training that is left at several epochs.
    """
    if len({batch_key(config) for config in configs}) > 1:
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


@task(version=1, name="unique_feature.train_twin", gpus=1.0, many=train_many, batch_key=batch_key, trains=1, work=work)
def train_twin(config: TwinTraining, inputs: Inputs) -> pa.Table:
    """The network trained without the canary to the epoch that the canary's model kept (MODEL).

    The input is the MODEL of the canary. A new version of `classifier.train` is a new one of this.
    """
    ((_, outcome),) = train_many([config], [inputs])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
