"""Self-supervised training of an encoder, and its weights after some epochs: the task that audits plan it with.

Published setting: ResNet-101 with a projector of 8192-8192-8192, 1000 epochs of minibatches of 1024 pictures by LARS.
Meehan et al. 2023, "Do SSL models have déjà vu?", A.2.2.

Planning a training imports no torch; computing one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from tasks.contract.job import Inputs, task
from tasks.datasets.boxed.pictures import BoxedPictures
from tasks.self_supervised.criterion import Supervised
from tasks.self_supervised.pretraining_config import Pretraining, encoder_of_pretraining
from tasks.training.members import TrainingError
from tasks.worker import hardware
from tasks.worker.work import Work


def batch_key(config: Pretraining) -> Pretraining:
    """What trainings that share a call have in common: all but the seed."""
    return replace(config, seed=0)


def work(config: Pretraining) -> Work:
    """What the training computes: two views of every picture an epoch."""
    from tasks.datasets.catalog import load_with_boxes

    classes = len(load_with_boxes(config.images.data, config.images.correlation).names)
    pictures = classes * config.images.partition.per_class
    network = f"{config.backbone} at {config.augmentation.resolution}"
    return Work({f"train {network} by {type(config.criterion).__name__}": pictures * config.epochs})


def pretrain_many(
    configs: Sequence[Pretraining],
    inputs: Sequence[Inputs],  # noqa: ARG001 - a training reads no tables
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Each training's SNAPSHOTS, or the exception that ended it alone, as it ends.

    A link of a chain continues from a given state and leaves its own where that is wanted (`tasks.worker.checkpoints`).
    """
    from tasks.datasets.catalog import load_with_boxes

    for index, config in enumerate(configs):
        try:
            pictures = load_with_boxes(config.images.data, config.images.correlation)
            yield index, pretrain_encoder(config, pictures, index)
        except (TrainingError, ValueError) as error:
            yield index, error


@task(
    version=1, name="self_supervised.pretrain", gpus=1.0, many=pretrain_many, batch_key=batch_key, trains=1, work=work
)
def pretrain(config: Pretraining, inputs: Inputs) -> pa.Table:
    """The encoder's weights after each recorded epoch (SNAPSHOTS); no rows where none is."""
    ((_, outcome),) = pretrain_many([config], [inputs])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def pretrain_encoder(config: Pretraining, pictures: BoxedPictures, index: int = 0) -> pa.Table:
    """The weights (SNAPSHOTS) of an encoder trained on the config's part of these pictures.

    As the job at this index of a call it continues from a given state, and leaves its own where that is wanted; on a
    CPU neither makes a difference to the result. TrainingError where a loss is not finite; ValueError, in one line,
    for a network that cannot be had.
    """
    from tasks.self_supervised.learners import learner
    from tasks.self_supervised.networks import initial_network
    from tasks.self_supervised.pretraining_loop import Training
    from tasks.self_supervised.training_set import training_set

    place = hardware.device()
    with hardware.exactly(place):
        classes = len(pictures.names) if isinstance(config.criterion, Supervised) else 0
        network = initial_network(encoder_of_pretraining(config), classes, config.seed).to(place)
        learning = learner(config.criterion, network, config.projector, config.seed)
        return Training(config, learning, training_set(config, pictures, place), place).run(index)
