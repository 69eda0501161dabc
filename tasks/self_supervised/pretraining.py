"""Train an encoder by self-supervision and fine-tune it as a classifier, with snapshots of its weights.

Published setting for training: ResNet-101 with an 8192-8192-8192 projector, trained with LARS for 1000 epochs with
minibatches of 1024 images. Meehan et al. 2023, "Do SSL models have déjà vu?", A.2.2.

In fine-tuning, a linear layer on top of the backbone is trained together with the backbone to classify the pretraining
images. The projector and its batch norm remain unchanged, so an attack on the projector's embeddings uses the
fine-tuned backbone. The same paper, section 6 and figure 10, fine-tunes for 20 epochs and does not state the optimiser,
learning rate, augmentation or position of the layer; here they are common choices for fine-tuning.

Planning does not import torch; computing does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tasks.contract.job import Inputs, Work, single_table, task
from tasks.datasets.boxed.pictures import BoxedPictures
from tasks.self_supervised.described_steps import EncoderStep
from tasks.self_supervised.pretraining_config import Pretraining, Supervised, encoder_of_pretraining
from tasks.self_supervised.snapshots import epochs, weights_of
from tasks.training.members import TrainingError
from tasks.worker import hardware


def batch_key(config: Pretraining) -> Pretraining:
    """Return the settings that trainings in one call must share: everything except the seed."""
    return replace(config, seed=0)


def work(config: Pretraining) -> Work:
    """Return the amount of computation: two views of every image in each epoch."""
    from tasks.datasets.catalog import load_with_boxes

    classes = len(load_with_boxes(config.images.data, config.images.correlation).names)
    pictures = classes * config.images.partition.per_class
    network = f"{config.backbone} at {config.augmentation.resolution}"
    unit = f"train {network} by {type(config.criterion).__name__}"
    return Work(
        {unit: pictures * config.epochs}, operations={unit: _step(config, classes, min(config.batch, pictures))}
    )


def _step(config: Pretraining, classes: int, batch: int, is_tuning: bool = False) -> EncoderStep:
    return EncoderStep(
        config.criterion,
        encoder_of_pretraining(config),
        classes,
        batch,
        config.accumulate,
        config.optimiser,
        config.precision,
        is_tuning,
    )


def pretrain_many(
    configs: Sequence[Pretraining],
    inputs: Sequence[Inputs],  # noqa: ARG001 - a training reads no tables
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Yield each training's SNAPSHOTS table, or the exception that ended it, when it ends."""
    from tasks.datasets.catalog import load_with_boxes

    for index, config in enumerate(configs):
        try:
            pictures = load_with_boxes(config.images.data, config.images.correlation)
            yield index, pretrain_encoder(config, pictures, index)
        except (TrainingError, ValueError) as error:
            yield index, error


@task(
    version=1,
    name="self_supervised.pretrain",
    gpus=1.0,
    many=pretrain_many,
    batch_key=batch_key,
    trains=1,
    work=work,
    spreads=True,
)
def pretrain(config: Pretraining, inputs: Inputs) -> pa.Table:
    """Train an encoder and return its weights after each recorded epoch (SNAPSHOTS).

    The table is empty if no epoch is recorded.
    """
    return single_table(pretrain_many, config, inputs)


def pretrain_encoder(config: Pretraining, pictures: BoxedPictures, index: int = 0) -> pa.Table:
    """Train an encoder on the config's part of these images and return its weights (SNAPSHOTS).

    As the job with this index in a call, it resumes from a checkpoint and writes its own if requested. On a CPU,
    neither affects the result. Raises TrainingError if a loss is not finite, and ValueError if the network is
    unavailable.
    """
    from tasks.models.synchronised_norm import synchronise_norms
    from tasks.self_supervised.learners import learner
    from tasks.self_supervised.networks import initial_network
    from tasks.self_supervised.pretraining_loop import Training
    from tasks.self_supervised.training_set import training_set

    device = hardware.device()
    with hardware.exactly(device):
        classes = 0
        if isinstance(config.criterion, Supervised):
            classes = len(pictures.names)
        network = initial_network(encoder_of_pretraining(config), classes, config.seed).to(device)
        synchronise_norms(network)
        learning = learner(config.criterion, network, config.projector, config.seed)
        return Training(config, learning, training_set(config, pictures, device), device).run(index)


@dataclass(frozen=True)
class ClassifierTuning:
    """Fine-tuning from one snapshot. `training` has the images and the network of the pretraining.

    `start` is the epoch of the snapshot (None: the latest). Weights are kept after the recorded epochs of `training`,
    counted from the start of fine-tuning; 0 is the snapshot itself.
    """

    training: Pretraining
    start: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.training.criterion, Supervised):
            raise ValueError(f"criterion is {self.training.criterion.tag}; it must be supervised to fine-tune")


def tuning(
    config: Pretraining, epochs: int = 20, recorded: tuple[int, ...] = (), start: int | None = None
) -> ClassifierTuning:
    """Return the fine-tuning of a pretrained encoder.

    It uses minibatches of at most 256 and SGD with a learning rate of 0.03 for 256 images, which falls by half a cosine
    without warm-up. Views are cropped and flipped, but their colours are unchanged.
    """
    views = replace(config.augmentation, jitter=0.0, grey=0.0, blur=0.0, solarise=0.0)
    training = replace(
        config,
        criterion=Supervised(),
        augmentation=views,
        epochs=epochs,
        schedule=epochs,
        warmup=0,
        batch=min(config.batch, 256),
        accumulate=1,
        optimiser="sgd",
        base_learning_rate=0.03,
        recorded=recorded,
    )
    return ClassifierTuning(training, start)


def _tuning_work(config: ClassifierTuning) -> Work:
    """Return the amount of computation: one view of every image in each epoch."""
    from tasks.datasets.catalog import load_with_boxes

    training = config.training
    classes = len(load_with_boxes(training.images.data, training.images.correlation).names)
    pictures = classes * training.images.partition.per_class
    unit = f"fine-tune {training.backbone} at {training.augmentation.resolution}"
    step = _step(training, classes, min(training.batch, pictures), is_tuning=True)
    return Work({unit: pictures * training.epochs}, operations={unit: step})


@task(version=1, name="self_supervised.fine_tune", gpus=1.0, trains=1, work=_tuning_work, spreads=True)
def fine_tune(config: ClassifierTuning, inputs: Inputs) -> pa.Table:
    """Fine-tune an encoder and return its weights after each recorded epoch of fine-tuning (SNAPSHOTS).

    The inputs are the SNAPSHOTS tables of a pretraining, from one or more links.
    """
    from tasks.datasets.catalog import load_with_boxes

    images = config.training.images
    return fine_tune_encoder(config, load_with_boxes(images.data, images.correlation), inputs)


def fine_tune_encoder(config: ClassifierTuning, pictures: BoxedPictures, inputs: Inputs) -> pa.Table:
    """Fine-tune a snapshot's encoder on the config's part of these images and return its weights (SNAPSHOTS).

    Raises TrainingError if a loss is not finite, and ValueError if the snapshot does not exist.
    """
    from tasks.self_supervised import learners
    from tasks.self_supervised.networks import load, unset
    from tasks.self_supervised.pretraining_loop import Training
    from tasks.self_supervised.training_set import training_set

    device = hardware.device()
    training = config.training
    snapshots, row = _choose_snapshot(config, inputs)
    with hardware.exactly(device):
        network = unset(encoder_of_pretraining(training), 0)
        load(network, weights_of(snapshots, row), training.backbone)
        learning = learners.tuning(network.to(device), len(pictures.names), training.seed)
        return Training(training, learning, training_set(training, pictures, device), device).run()


def _choose_snapshot(config: ClassifierTuning, inputs: Inputs) -> tuple[pa.Table, int]:
    """Return the table and the row of the snapshot from which fine-tuning starts."""
    snapshots = {}
    for table in inputs:
        for row, epoch in enumerate(epochs(table)):
            snapshots[epoch] = (table, row)
    if config.start is None:
        start = max(snapshots, default=0)
    else:
        start = config.start
    if start not in snapshots:
        names = ", ".join(map(str, sorted(snapshots))) or "none"
        raise ValueError(f"start is {start}; the snapshots are of epochs {names}")
    return snapshots[start]
