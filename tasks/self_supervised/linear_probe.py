"""Linear probes: classifiers on frozen embeddings, to measure the gap between training and validation images.

Published setting: stochastic gradient descent with momentum 0.9, 20 epochs in minibatches of 64, with a learning rate
that falls linearly from 10 to 0.1. Meehan et al. 2023, A.2.3. In the authors' code, probes are trained on random crops.
Here they are trained on embeddings of the evaluation transform, one per image, so that embeddings are computed only
once.

Planning does not import torch; computing does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract.job import Inputs, Work, task
from tasks.contract.operations import BYTES, LAUNCHES, PRODUCT
from tasks.contract.ranges import Ascending, AtLeast, Finite, Ranged, Share
from tasks.datasets.boxed.partition import TrainingImages, expect_sizes, split_pictures
from tasks.datasets.boxed.pictures import BoxedPictures
from tasks.self_supervised.described_steps import EmbeddingStep
from tasks.self_supervised.embedding_memory import group_layers, reserved_memory
from tasks.self_supervised.pretraining_config import EncoderConfig, layer_features
from tasks.self_supervised.snapshots import epochs, weights_of
from tasks.worker import hardware

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.self_supervised.networks import Encoder

# One row per snapshot, layer and split.
PROBES = pa.schema(
    [
        ("epoch", pa.int64()),  # epoch of the snapshot
        ("layer", pa.int64()),  # 0: the backbone
        ("split", pa.string()),  # train: the model's own training images; or validation
        ("correct", pa.int64()),
        ("n", pa.int64()),
    ]
)


@dataclass(frozen=True)
class LinearProbe(Ranged):
    """Probes for every snapshot of an encoder, trained on the encoder's own training images.

    If `layers` is empty, the backbone (0) and the last layer are probed. The learning rate falls linearly from `first`
    to `last`.
    """

    images: TrainingImages
    encoder: EncoderConfig
    layers: Annotated[tuple[int, ...], Ascending(0, "numbers from 0, ascending")] = ()
    epochs: Annotated[int, AtLeast(1)] = 20
    batch: Annotated[int, AtLeast(1)] = 64
    first: Annotated[float, Finite()] = 10.0
    last: Annotated[float, Finite()] = 0.1
    momentum: Annotated[float, Share(one=False)] = 0.9
    seed: Annotated[int, AtLeast(0)] = 0


def _memory(config: LinearProbe) -> int:
    """Return the bytes of host memory that probes reserve."""
    from tasks.datasets.catalog import load_with_boxes

    sizes = expect_sizes(load_with_boxes(config.images.data, config.images.correlation), config.images.partition)
    layers = config.layers or (0, len(config.encoder.projector))
    widths = {layer: layer_features(config.encoder, layer) for layer in layers}
    return reserved_memory(widths, sizes.trained + sizes.validation)


def work(config: LinearProbe) -> Work:
    """Return the work for one snapshot: embeddings of all images, and the training of the probes.

    A table of snapshots has one row in most audits.
    """
    from tasks.datasets.catalog import load_with_boxes

    sizes = expect_sizes(load_with_boxes(config.images.data, config.images.correlation), config.images.partition)
    embedding = f"embed with {config.encoder.backbone} at {config.encoder.resolution}"
    probe = f"probe {config.encoder.backbone}"
    # Each layer has its own probe. A step of SGD computes two products of its images with the weights, and updates
    # them with their momentum.
    layers = config.layers or (0, len(config.encoder.projector))
    features = sum(layer_features(config.encoder, layer) for layer in layers)
    weights = features * sizes.classes
    step = {PRODUCT: 4.0 * weights, BYTES: 20.0 * weights / config.batch, LAUNCHES: 20.0 / config.batch}
    return Work(
        besides={embedding: sizes.trained + sizes.validation, probe: float(config.epochs * sizes.trained)},
        operations={embedding: EmbeddingStep(config.encoder), probe: step},
    )


@task(version=1, name="self_supervised.linear_probe", gpus=1.0, work=work, memory=_memory)
def linear_probe(config: LinearProbe, inputs: Inputs) -> pa.Table:
    """Measure the accuracy of probes on each snapshot (PROBES).

    The inputs are SNAPSHOTS tables of one or more links.
    """
    from tasks.datasets.catalog import load_with_boxes

    return probe_snapshots(config, load_with_boxes(config.images.data, config.images.correlation), inputs)


def probe_snapshots(config: LinearProbe, pictures: BoxedPictures, inputs: Inputs) -> pa.Table:
    """Return the accuracy of probes on each snapshot in these tables (PROBES)."""
    import torch

    from tasks.self_supervised.networks import encoder

    device = hardware.device()
    parts = split_pictures(pictures, config.images.partition)
    splits = {"train": parts.rows(config.images.part), "validation": parts.rows("validation")}
    rows = []
    for snapshots in inputs:
        for row, epoch in enumerate(epochs(snapshots)):
            encoding = encoder(config.encoder, weights_of(snapshots, row), device)
            layers = config.layers or (0, encoding.depth)
            for layer, embeddings in _embed_splits(encoding, layers, splits, pictures, config.encoder.resolution):
                train = torch.from_numpy(embeddings["train"]).to(device)
                weights = train_probe(config, train, pictures.labels[splits["train"]], len(pictures.names))
                for split, split_rows in splits.items():
                    split_embeddings = torch.from_numpy(embeddings[split]).to(device)
                    right = correct(weights, split_embeddings, pictures.labels[split_rows])
                    rows.append(
                        {"epoch": epoch, "layer": layer, "split": split, "correct": right, "n": len(split_rows)}
                    )
    return pa.Table.from_pylist(rows, schema=PROBES)


def _embed_splits(
    encoding: Encoder,
    layers: Sequence[int],
    splits: Mapping[str, NDArray[np.int64]],
    pictures: BoxedPictures,
    resolution: int,
) -> Iterator[tuple[int, dict[str, NDArray[np.float32]]]]:
    """Yield each layer with its embeddings of each split. Only a few layers are in memory at a time."""
    from tasks.datasets.boxed.crops import portions
    from tasks.self_supervised.networks import collect_embeddings, measure_widths

    widths = measure_widths(encoding.embed, layers, next(portions(pictures, splits["train"], resolution)))
    for group in group_layers(widths, sum(map(len, splits.values()))):
        embeddings = {}
        for split, rows in splits.items():
            images = portions(pictures, rows, resolution)
            embeddings[split] = collect_embeddings(encoding.embed, group, images, len(rows))
        for layer in group:
            yield layer, {split: by_layer.pop(layer) for split, by_layer in embeddings.items()}


def train_probe(
    config: LinearProbe, embeddings: Tensor, labels: NDArray[np.int64], classes: int
) -> tuple[Tensor, Tensor]:
    """Train a probe on embeddings (n, d) with these labels. Returns its weights (classes, d) and constants (classes,).

    Both start at 0, so only the order of images is random.
    """
    import torch

    from tasks.training.fit import shuffled_minibatches

    device = embeddings.device
    targets = torch.nn.functional.one_hot(torch.from_numpy(np.array(labels)).to(device), classes).float()
    inputs = torch.cat([embeddings, embeddings.new_ones(len(embeddings), 1)], 1)  # the last weight is the constant
    weights = inputs.new_zeros(classes, inputs.shape[1])
    velocity = torch.zeros_like(weights)
    steps = -(-len(inputs) // config.batch)
    rates = np.linspace(config.first, config.last, config.epochs * steps)
    with hardware.exactly(device), torch.inference_mode():
        order = shuffled_minibatches(len(inputs), config.batch, config.epochs, config.seed, "probe order")
        for rate, rows in zip(rates, order, strict=True):
            batch = inputs[rows.to(device)]
            # The gradient of the mean cross-entropy.
            errors = torch.softmax(batch @ weights.T, 1) - targets[rows.to(device)]
            velocity.mul_(config.momentum).addmm_(errors.T, batch, alpha=1 / len(rows))
            weights.sub_(velocity, alpha=float(rate))
    return weights[:, :-1].clone(), weights[:, -1].clone()


def correct(weights: tuple[Tensor, Tensor], embeddings: Tensor, labels: NDArray[np.int64]) -> int:
    """Return the number of correctly classified embeddings. Ties go to the lowest class."""
    import torch

    factors, constants = weights
    predicted = torch.addmm(constants, embeddings, factors.T).argmax(1)
    return int((predicted.cpu().numpy() == labels).sum())
