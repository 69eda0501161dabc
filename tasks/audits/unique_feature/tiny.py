"""The configurations of `scale=tiny`: the same questions on embedded data, which take seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.given_models import Given
from tasks.audits.unique_feature.questions import (
    CanaryPairs,
    EpochScores,
    Pairs,
    Panel,
    ProbePictures,
    Question,
    RandomChoice,
    UnitResponses,
)
from tasks.audits.unique_feature.training_config import CanaryTraining, WholeTraining
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Family
from tasks.models.catalog import Network
from tasks.programs.config import Program
from tasks.training.privacy_config import LinkedTraining

P = TypeVar("P", bound=CanaryPairs)
T = TypeVar("T", bound=CanaryTraining)
F = TypeVar("F", bound=Family)

# networks that take seconds where mlp1 takes almost no time
SLOW = ("cnn1", "cnn2", "densenet100", "resnet18", "airbench")
DEEP = ("densenet100", "resnet18")
PROGRAM_EXAMPLES = 300


def tiny(config: UniqueFeature) -> UniqueFeature:
    """Return the same question on embedded data, which takes seconds. For slow networks, it is reduced further."""
    return replace(config, question=_tiny_question(config.question), probe=Dataset("photos"))


def _tiny_question(question: Question) -> Question:
    match question:
        case Pairs():
            reduced = _reduce_pairs(question)
            training = question.training
            return replace(
                reduced,
                training=training if isinstance(training, Program) else _reduce_training(training),
                evaluations=min(question.evaluations, 2),
                family=_reduce_family(question.family),
                probes=min(question.probes, 20) or 20,
            )
        case EpochScores():
            return replace(_reduce_pairs(question), training=_reduce_training(question.training))
        case UnitResponses():
            return replace(_reduce_pairs(question), training=_reduce_training(question.training))
        case Panel():
            return replace(
                question,
                data=tiny_data(question.training.network),
                examples=_tiny_examples(question.training.network),
                seeds=min(question.seeds, 2),
                training=_reduce_training(question.training),
                family=_reduce_family(question.family),
                probes=min(question.probes, 20) or 20,
            )
        case Given():
            return replace(question, family=_reduce_family(question.family), probes=min(question.probes, 20) or 20)
        case ProbePictures():
            return replace(question, data=Dataset("digits#16x16" if question.data.name == "cifar10" else "digits"))


def _reduce_pairs(pairs: P) -> P:
    """Return a few of the same pairs, on embedded data. A program keeps its data set."""
    choice = pairs.choice
    if isinstance(choice, RandomChoice):
        choice = replace(choice, neighbours_left_out=min(choice.neighbours_left_out, 10))
    if isinstance(pairs.training, Program):
        return replace(
            pairs,
            examples=min(pairs.examples or PROGRAM_EXAMPLES, PROGRAM_EXAMPLES),
            canaries=min(pairs.canaries, 3),
            choice=choice,
            seeds=min(pairs.seeds, 2),
        )
    network = pairs.training.network
    if network.name in DEEP:
        canary_count = 1
    elif network.name in SLOW:
        canary_count = 2
    else:
        canary_count = 3
    return replace(
        pairs,
        data=tiny_data(network),
        examples=_tiny_examples(network),
        canaries=min(pairs.canaries, canary_count),
        choice=choice,
        seeds=min(pairs.seeds, 2),
    )


def tiny_data(network: Network) -> Dataset:
    if network.name in DEEP:
        return Dataset("digits#8x8")
    return Dataset("digits#16x16" if network.name in SLOW else "digits")


def _tiny_examples(network: Network) -> int:
    return 60 if network.name in SLOW else 300


def _reduce_training(training: T) -> T:
    """Return the same training with one or two epochs, and one epoch per link if it has links."""
    reduced = replace(training, epochs=min(training.epochs, 1 if training.network.name in DEEP else 2))
    if isinstance(reduced, WholeTraining) and reduced.link:
        return replace(reduced, privacy=LinkedTraining(1))
    return reduced


def _reduce_family(family: F) -> F:
    return replace(family, count=min(family.count, 20))
