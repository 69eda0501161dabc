"""The models that are trained, their snapshots, and what is cropped of which pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tasks.audits.deja_vu.attack import SETS, attack, check, check_tables, crops_of, handed_out
from tasks.audits.deja_vu.config import PARTS, DejaVu
from tasks.contract.job import Job
from tasks.datasets.boxed.partition import PartName, split_pictures
from tasks.datasets.catalog import load_with_boxes
from tasks.numerics import seeds
from tasks.self_supervised.pretraining import fine_tune, pretrain, tuning
from tasks.self_supervised.pretraining_config import Pretraining
from tasks.training.chains import chain, recording_up_to

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

    def snapshots_of_model(self, model: str) -> tuple[Snapshots, ...]:
        return tuple(each for each in self.snapshots if each.model == model)

    def last(self, model: str) -> Snapshots:
        """The snapshots that the model ends with."""
        return self.snapshots_of_model(model)[-1]


def trainings(config: DejaVu) -> Trainings:
    """What is trained; ValueError, before anything is, where the data cannot be parted so."""
    pictures = load_with_boxes(config.data, config.correlation)
    parts = split_pictures(pictures, config.partition)
    configs = references(config) if config.given.there else pair(config)
    probed: tuple[PartName, ...] = ("validation",) if "probe" in config.measures and not config.given.there else ()
    for part in (*SETS, *(training.images.part for training in configs.values()), "X", *probed):
        parts.rows(part)
    check(attack(config), pictures, parts)
    if config.given.embeddings or config.given.reference_embeddings:
        crops = crops_of(attack(config), pictures)
        check_tables(config.given, handed_out(crops, pictures, config.given.repeated))
    found = {model: tuple(snapshots(config, model, training)) for model, training in configs.items()}
    if config.given.there:  # which is of one epoch, as its references are
        found = {model: held[-1:] for model, held in found.items()}
    return Trainings(tuple(each for held in found.values() for each in held), configs)


def pair(config: DejaVu) -> dict[str, Pretraining]:
    """The trainings of the two models, each of which may have been trained on a set that is asked about."""
    return {model: config.pretraining(part) for model, part in zip(MODELS, PARTS[config.trained], strict=True)}


def references(config: DejaVu) -> dict[str, Pretraining]:
    """The trainings that a given encoder is compared with: on the other sets in turn, each from a seed of its own.

    The first stands in the place of model B. None where the reference is given.
    """
    if config.given.has_reference:
        return {}
    sets = PARTS["other"]
    configs = {}
    for number in range(config.given.references):
        training = replace(config.pretraining(sets[number % len(sets)]), recorded=())
        again = number // len(sets)
        seed = seeds.derive(training.seed, "again", again) if again else training.seed
        configs[reference(number)] = replace(training, seed=seed)
    return configs


def reference(number: int) -> str:
    """The name of a reference of a given encoder: B, B 2, B 3, ..."""
    return MODELS[1] if number == 0 else f"{MODELS[1]} {number + 1}"


def snapshots(config: DejaVu, model: str, training: Pretraining) -> Iterator[Snapshots]:
    """The links of a training after which there are snapshots, then those of its fine-tuning."""
    links = chain(pretrain, training, config.link, part=recording_up_to)
    for job in links:
        if job.config.asked:
            yield Snapshots(model, job)
    if config.fine_tuning:
        after = () if config.given.there else tuple(range(1, config.fine_tuning + 1))
        yield Snapshots(model, Job(fine_tune, tuning(training, config.fine_tuning, after), (links[-1],)), config.epochs)
