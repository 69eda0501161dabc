"""The two models that are trained, their snapshots, and what is cropped of which pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tasks.audits.deja_vu.attack import SETS, attack, check
from tasks.audits.deja_vu.config import PARTS, DejaVu
from tasks.datasets.boxed.partition import parted
from tasks.datasets.catalog import load_boxed
from tasks.job import Job
from tasks.self_supervised.classifier_tuning import fine_tune, tuning
from tasks.self_supervised.pretraining import pretrain
from tasks.self_supervised.pretraining_config import Pretraining, up_to
from tasks.training.chains import chain

MODELS = ("A", "B")  # each by the set that it may have been trained on


@dataclass(frozen=True)
class Snapshots:
    """Weights of one model after some epochs (SNAPSHOTS): those of a link of its training, or of its fine-tuning.

    `before` are the epochs of training before those that the snapshots count.
    """

    model: str
    job: Job
    before: int = 0


@dataclass(frozen=True)
class Trainings:
    """All snapshots, model by model, each in the order of its training; and the training of each model."""

    snapshots: tuple[Snapshots, ...]
    configs: dict[str, Pretraining]

    def of(self, model: str) -> tuple[Snapshots, ...]:
        return tuple(each for each in self.snapshots if each.model == model)

    def last(self, model: str) -> Snapshots:
        """The snapshots that the model ends with."""
        return self.of(model)[-1]


def trainings(config: DejaVu) -> Trainings:
    """What is trained; ValueError, before anything is, where the data cannot be parted so."""
    pictures = load_boxed(config.data, config.correlation)
    parts = parted(pictures, config.partition)
    for part in (*SETS, *PARTS[config.trained], "X"):
        parts.rows(part)
    check(attack(config), pictures, parts)
    configs = {model: config.pretraining(part) for model, part in zip(MODELS, PARTS[config.trained], strict=True)}
    found = tuple(each for model in MODELS for each in snapshots(config, model, configs[model]))
    return Trainings(found, configs)


def snapshots(config: DejaVu, model: str, training: Pretraining) -> Iterator[Snapshots]:
    """The links of a training after which there are snapshots, then those of its fine-tuning."""
    links = chain(pretrain, training, config.link, part=up_to)
    for job in links:
        if job.config.asked:
            yield Snapshots(model, job)
    if config.fine_tuning:
        after = tuple(range(1, config.fine_tuning + 1))
        yield Snapshots(model, Job(fine_tune, tuning(training, config.fine_tuning, after), (links[-1],)), config.epochs)
