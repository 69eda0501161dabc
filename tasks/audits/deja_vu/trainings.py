"""Planned trainings, the snapshots they keep, and the attacked crops."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tasks.audits.deja_vu.attack import SETS, Attack, attack, check, check_tables, crops_of, handed_out
from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.encoder_config import PARTS, EncoderTable, Given, Trained, TrainedReferences
from tasks.contract.job import Job
from tasks.datasets.boxed.partition import PartName, split_pictures
from tasks.datasets.catalog import load_with_boxes
from tasks.numerics import seeds
from tasks.self_supervised.pretraining import fine_tune, pretrain, tuning
from tasks.self_supervised.pretraining_config import Pretraining
from tasks.training.chains import chain, recording_up_to

MODELS = ("A", "B")  # each named after the set that it may have been trained on


@dataclass(frozen=True)
class Snapshots:
    """Weights of one model after some epochs (SNAPSHOTS), from one link of its training or fine-tuning.

    `before` is the number of epochs trained before this link starts to count.
    """

    model: str
    job: Job
    before: int = 0


@dataclass(frozen=True)
class Trainings:
    """All snapshots grouped by model in training order, the training of each model, and the attack."""

    snapshots: tuple[Snapshots, ...]
    configs: dict[str, Pretraining]
    attack: Attack

    def snapshots_of_model(self, model: str) -> tuple[Snapshots, ...]:
        return tuple(snapshots for snapshots in self.snapshots if snapshots.model == model)

    def last(self, model: str) -> Snapshots:
        """Return the last snapshots of the model."""
        return self.snapshots_of_model(model)[-1]


def trainings(config: DejaVu) -> Trainings:
    """Plan the trainings. Raises ValueError if the data cannot be divided or a table is unusable."""
    pictures = load_with_boxes(config.data, config.correlation)
    parts = split_pictures(pictures, config.partition)
    configs = training_configs(config)
    has_probe = isinstance(config.encoders, Trained) and config.encoders.probe
    probed: tuple[PartName, ...] = ("validation",) if has_probe else ()
    for part in (*SETS, *(training.images.part for training in configs.values()), "X", *probed):
        parts.rows(part)
    cropping = attack(config)
    check(cropping, pictures, parts)
    if isinstance(config.encoders, Given) and any(config.encoders.tables):
        crops = crops_of(cropping, pictures)
        check_tables(config.encoders, handed_out(crops, pictures, config.encoders.repeated_images))
    by_model = {}
    for model, training in configs.items():
        by_model[model] = tuple(snapshots(config, model, training))
    return Trainings(tuple(link for of_model in by_model.values() for link in of_model), configs, cropping)


def training_configs(config: DejaVu) -> dict[str, Pretraining]:
    """Return the trainings, keyed by model name."""
    match config.encoders:
        case Trained(training_sets=trained_on):
            sets = PARTS[trained_on]
            configs = {}
            for model, part in zip(MODELS, sets, strict=True):
                configs[model] = config.pretraining(part, config.recorded)
            return configs
        case Given(encoder=EncoderTable(embeddings=None)):
            raise ValueError(
                "embeddings is empty; export the images with engram probes, then pass given.embeddings=FILE"
            )
        case Given(comparison=TrainedReferences(references=count)):
            return {reference(number): _reference_training(config, number) for number in range(count)}
    return {}


def _reference_training(config: DejaVu, number: int) -> Pretraining:
    """Return the training of one reference. References alternate between the two other sets and differ in seed."""
    sets = PARTS["other"]
    training = config.pretraining(sets[number % len(sets)], ())
    repetition = number // len(sets)
    if repetition:
        seed = seeds.derive(training.seed, "again", repetition)
    else:
        seed = training.seed
    return replace(training, seed=seed)


def reference(number: int) -> str:
    """Return the name of a reference for a given encoder: B, B 2, B 3, ..."""
    return MODELS[1] if number == 0 else f"{MODELS[1]} {number + 1}"


def snapshots(config: DejaVu, model: str, training: Pretraining) -> tuple[Snapshots, ...]:
    """Return the training links that keep snapshots, followed by the fine-tuning link.

    References of a given encoder keep only one snapshot, because the encoder has only one.
    """
    links = chain(pretrain, training, config.training.link, part=recording_up_to)
    kept_snapshots = [Snapshots(model, job) for job in links if job.config.asked]
    epochs = config.training.fine_tuning
    is_reference = isinstance(config.encoders, Given)
    if epochs:
        recorded_epochs = () if is_reference else tuple(range(1, epochs + 1))
        job = Job(fine_tune, tuning(training, epochs, recorded_epochs), (links[-1],))
        kept_snapshots.append(Snapshots(model, job, training.epochs))
    return tuple(kept_snapshots[-1:] if is_reference else kept_snapshots)
