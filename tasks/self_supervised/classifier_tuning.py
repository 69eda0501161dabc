"""Fine-tuning of a pretrained encoder to classify the pictures that it was pretrained on.

A linear layer on the backbone is trained together with the backbone. The projector is not on the way: it stays as
pretraining left it, and so does its batch norm, so that the attack by the projector's embeddings is made on what a user
of the backbone has made of it. Meehan et al. 2023, section 6 and figure 10, fine-tune for 20 epochs and leave open
optimiser, rate and augmentation, and where the layer is; here they are the usual ones of fine-tuning.

Planning a fine-tuning imports no torch; computing one does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from tasks.contract.job import Inputs, task
from tasks.datasets.boxed.pictures import BoxedPictures
from tasks.self_supervised.criterion import Supervised
from tasks.self_supervised.pretraining_config import Pretraining, encoder_of_pretraining
from tasks.self_supervised.snapshots import epochs, weights_of
from tasks.worker import hardware


@dataclass(frozen=True)
class ClassifierTuning:
    """A fine-tuning by the fields of `training`, which has the pretraining's pictures and network, from one snapshot.

    `start` is the epoch of the snapshot; None: the latest one. Weights are kept after the epochs that `training`
    records, counted from the beginning of fine-tuning; 0 is the snapshot itself.
    """

    training: Pretraining
    start: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.training.criterion, Supervised):
            raise ValueError(f"criterion is {self.training.criterion.name}; it must be supervised to fine-tune")


def tuning(
    config: Pretraining, epochs: int = 20, recorded: tuple[int, ...] = (), start: int | None = None
) -> ClassifierTuning:
    """The fine-tuning of what a pretraining trained.

    Minibatches of at most 256 by SGD at 0.03 for 256, falling by half a cosine without warm-up; views are cropped and
    flipped and keep their colours.
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


@task(version=1, name="self_supervised.fine_tune", gpus=1.0, trains=1)
def fine_tune(config: ClassifierTuning, inputs: Inputs) -> pa.Table:
    """The encoder's weights after each recorded epoch of fine-tuning (SNAPSHOTS).

    The inputs are the SNAPSHOTS of a pretraining, of one or more links.
    """
    from tasks.datasets.catalog import load_with_boxes

    images = config.training.images
    return fine_tune_encoder(config, load_with_boxes(images.data, images.correlation), inputs)


def fine_tune_encoder(config: ClassifierTuning, pictures: BoxedPictures, inputs: Inputs) -> pa.Table:
    """The weights (SNAPSHOTS) of a snapshot's encoder fine-tuned on the config's part of these pictures.

    TrainingError where a loss is not finite; ValueError, in one line, where there is no such snapshot.
    """
    from tasks.self_supervised import learners
    from tasks.self_supervised.encoder import load
    from tasks.self_supervised.networks import unset
    from tasks.self_supervised.pretraining_loop import Training
    from tasks.self_supervised.training_set import training_set

    place, training = hardware.device(), config.training
    snapshots, row = choose_snapshot(config, inputs)
    with hardware.exactly(place):
        network = unset(encoder_of_pretraining(training), 0)
        load(network, weights_of(snapshots, row), training.backbone)
        learning = learners.tuning(network.to(place), len(pictures.names), training.seed)
        return Training(training, learning, training_set(training, pictures, place), place).run()


def choose_snapshot(config: ClassifierTuning, inputs: Inputs) -> tuple[pa.Table, int]:
    """The table and the row of the snapshot to start from."""
    there = {epoch: (table, row) for table in inputs for row, epoch in enumerate(epochs(table))}
    start = max(there, default=0) if config.start is None else config.start
    if start not in there:
        known = ", ".join(map(str, sorted(there))) or "none"
        raise ValueError(f"start is {start}; the snapshots are of epochs {known}")
    return there[start]
