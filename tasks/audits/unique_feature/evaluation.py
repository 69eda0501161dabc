"""What a canary's model and its canary-free twin say of the same images: one row per model and image.

Both models see the same clean images, the same feature and the same random patches; they differ by the canary alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.unique_feature.scores import divergence, log_probabilities
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Feature, burn, burn_random
from tasks.datasets.images import as_shape
from tasks.job import Inputs, task

Pixels = NDArray[np.uint8]  # (n, height, width, channels)
Rows = NDArray[np.int64]
ProbeSplit = Literal["test", "both"]

MODELS = ("canary", "twin")

DIVERGENCES = pa.schema(
    [
        ("canary", pa.int64()),  # row of the training images that carries the feature
        ("label", pa.int32()),  # its label y
        ("seed", pa.int64()),  # of the training, the same for both models of a pair
        ("model", pa.string()),  # canary, or its canary-free twin
        ("images", pa.string()),  # probe, or train: the training images with label y, without the canary
        ("image", pa.int64()),  # row of the probe set or of the training images
        ("d_u", pa.float32()),  # KL(f(x_c) || f(x_u)), nats
        ("d_r", pa.float32()),  # KL(f(x_c) || f(x_r)), nats
        ("log_p_u", pa.float32()),  # log P(y | x_u)
        ("log_p_r", pa.float32()),  # log P(y | x_r)
    ]
)

HISTORY = pa.schema(
    [
        ("canary", pa.int64()),
        ("seed", pa.int64()),
        ("model", pa.string()),
        ("epoch", pa.int32()),  # counted from 1
        ("train_loss", pa.float64()),  # mean over the epoch's batches, in nats
        ("validation_loss", pa.float64()),
        ("validation_accuracy", pa.float64()),
        ("kept", pa.bool_()),  # whether the model's weights are this epoch's
    ]
)


@dataclass(frozen=True)
class Evaluation:
    """Which images a pair of models is asked about, with which feature.

    `seed` draws the random patches, each from the stream of its set of images and at its image's row: an image meets
    the same patch in every model and for every canary, so that scores differ by the models alone (the paper's M "uses
    the same random seed for each evaluation", section B.2). `canary` is a row of the first `examples` (0: all)
    training images.
    """

    data: Dataset
    probe: Dataset
    probe_split: ProbeSplit
    feature: Feature
    canary: int
    examples: int
    seed: int


@dataclass(frozen=True)
class Triples:
    """Images three times over: clean (x_c), with the feature (x_u) and with a random patch each (x_r)."""

    images: str  # probe or train
    rows: Rows
    clean: Pixels
    unique: Pixels
    random: Pixels


def alike(config: Evaluation) -> tuple[Dataset, Dataset, ProbeSplit, int]:
    """What scores must share to take about as long as one another."""
    return config.data, config.probe, config.probe_split, config.examples


@task(version=1, name="unique_feature.score", alike=alike)
def score(config: Evaluation, inputs: Inputs) -> pa.Table:
    """Divergences and log-probabilities per image, of the canary's model and of its twin (the two inputs)."""
    data = load(config.data)
    label = int(data.train_labels[config.canary])
    sets = (probe_triples(config), train_triples(config, label))
    tables = [
        measured(config, label, model, trained, triples)
        for model, trained in zip(MODELS, inputs, strict=True)
        for triples in sets
    ]
    return pa.concat_tables(tables).combine_chunks()


@dataclass(frozen=True)
class Pair:
    """The canary whose model and twin a history tells of."""

    canary: int


@task(version=1, name="unique_feature.history")
def history(config: Pair, inputs: Inputs) -> pa.Table:
    """The epochs of the canary's model and of its twin (the two inputs)."""
    rows = [
        {
            "canary": config.canary,
            "seed": trained["seed"],
            "model": model,
            "kept": epoch["epoch"] == trained["best_epoch"],
        }
        | epoch
        for model, table in zip(MODELS, inputs, strict=True)
        for trained in table.select(["seed", "best_epoch", "history"]).to_pylist()
        for epoch in trained["history"]
    ]
    return pa.Table.from_pylist(rows, HISTORY)


def probe_triples(config: Evaluation) -> Triples:
    """The out-of-distribution probe set, in the shape of the training images."""
    probe = load(config.probe)
    images = probe.test_images
    if config.probe_split == "both":
        images = np.concatenate([images, probe.train_images])
    clean = as_shape(images, load(config.data).train_images.shape[1:])
    return triples("probe", clean, np.arange(len(clean)), config)


def train_triples(config: Evaluation, label: int) -> Triples:
    """The training images of the canary's label, without the canary."""
    data = load(config.data)
    labels = data.train_labels[: config.examples or None]
    rows = np.flatnonzero(labels == label)
    rows = rows[rows != config.canary]
    return triples("train", data.train_images[rows], rows, config)


def triples(images: str, clean: Pixels, rows: Rows, config: Evaluation) -> Triples:
    """`clean` holds the images at `rows` of a set; an image's patch depends on its row, not on the choice."""
    unique = burn(clean, config.feature)
    return Triples(images, rows, clean, unique, burn_random(clean, config.feature, config.seed, images, rows=rows))


def measured(config: Evaluation, label: int, model: str, trained: pa.Table, triples: Triples) -> pa.Table:
    """One model's rows for one set of images."""
    from tasks.models.inference import logits
    from tasks.models.weights import architecture_of, weights_of

    network, weights = architecture_of(trained), weights_of(trained)
    clean, unique, random = (
        log_probabilities(logits(network, [weights], images)[0])
        for images in (triples.clean, triples.unique, triples.random)
    )
    n = len(triples.rows)
    columns = {
        "canary": np.full(n, config.canary),
        "label": np.full(n, label),
        "seed": np.full(n, trained["seed"][0].as_py()),
        "model": [model] * n,
        "images": [triples.images] * n,
        "image": triples.rows,
        "d_u": divergence(clean, unique),
        "d_r": divergence(clean, random),
        "log_p_u": unique[:, label],
        "log_p_r": random[:, label],
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in DIVERGENCES]
    return pa.Table.from_arrays(arrays, schema=DIVERGENCES)
