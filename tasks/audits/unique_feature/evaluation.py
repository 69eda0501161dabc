"""What a canary's model and its canary-free twin say of the same images: one row per model and image.

Both models see the same clean images, the same feature and the same random patches; they differ by the canary alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

from tasks.audits.unique_feature.choice import Ranked, row_of
from tasks.audits.unique_feature.scores import Array, divergence, log_probabilities
from tasks.audits.unique_feature.triples import (
    Burning,
    Pixels,
    ProbeSplit,
    RandomKind,
    Triples,
    of_probe,
    of_training,
    probe_images,
)
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Feature
from tasks.job import Inputs, task

ModelName = Literal["canary", "twin"]
MODELS: tuple[ModelName, ...] = get_args(ModelName)

# What a model says of a named set of images (n, h, w, c): log-probabilities (n, classes).
Says = Callable[[str, Pixels], Array]

DIVERGENCES = pa.schema(
    [
        ("canary", pa.int64()),  # row of the training images that carries the feature
        ("label", pa.int32()),  # its label y
        ("seed", pa.int64()),  # of the training, the same for both models of a pair
        ("evaluation", pa.int32()),  # which drawing of the random patches, from 0
        ("model", pa.string()),  # canary, or its canary-free twin
        ("images", pa.string()),  # probe, or train: the training images with label y, without the canary
        ("image", pa.int64()),  # row of the probe set or of the training images
        ("d_u", pa.float32()),  # KL(f(x_c) || f(x_u)), nats
        ("d_r", pa.float32()),  # KL(f(x_c) || f(x_r)), nats
        ("log_p_u", pa.float32()),  # log P(y | x_u)
        ("log_p_r", pa.float32()),  # log P(y | x_r)
    ]
)


@dataclass(frozen=True)
class Evaluation:
    """Which images a pair of models is asked about, with which feature.

    `seed` draws the random patches, each from the stream of its set of images and at its image's row: an image meets
    the same patch in every model and for every canary, so that scores differ by the models alone (the paper's M "uses
    the same random seed for each evaluation", section B.2). `redraw` numbers the drawings, each with a seed of its own.
    A patch is noise, or another member of the feature's family (`random`). `canary` is a row of the first `examples`
    (0: all) training images, or its rank among them by self-influence.
    """

    data: Dataset
    probe: Dataset
    probe_split: ProbeSplit
    feature: Feature
    canary: int | Ranked
    examples: int
    seed: int
    redraw: int = 0
    random: RandomKind = "noise"

    @property
    def burning(self) -> Burning:
        return Burning(self.feature, self.random, self.seed)


def batch_key(config: Evaluation) -> tuple[Dataset, Dataset, ProbeSplit, int]:
    """What scores must share to take about as long as one another."""
    return config.data, config.probe, config.probe_split, config.examples


@task(version=2, name="unique_feature.score", batch_key=batch_key)
def score(config: Evaluation, inputs: Inputs) -> pa.Table:
    """Divergences and log-probabilities per image, of the canary's model and of its twin (the first two inputs).

    A third input, the table of chosen canaries, says which row has a rank.
    """
    canary = row_of(config.canary, inputs)
    data = load(config.data)
    sets = (probe_triples(config), of_training(config.data, config.examples, canary, config.burning))
    label = int(data.train_labels[canary])
    about = {"canary": canary, "label": label, "evaluation": config.redraw}
    tables = [
        divergences(trained(table), triples, about | {"seed": table["seed"][0].as_py(), "model": model})
        for model, table in zip(MODELS, inputs, strict=False)
        for triples in sets
    ]
    return pa.concat_tables(tables).combine_chunks()


def probe_triples(config: Evaluation) -> Triples:
    """The out-of-distribution probe set, in the shape of the training images."""
    return of_probe(probe_images(config.probe, config.probe_split, load(config.data).shape), config.burning)


def trained(model: pa.Table) -> Says:
    """A network trained here, from its MODEL table."""
    from tasks.models.inference import logits
    from tasks.models.weights import architecture_of, weights_of

    network, weights = architecture_of(model), weights_of(model)
    return lambda _, images: log_probabilities(logits(network, [weights], images)[0])


def divergences(says: Says, triples: Triples, about: Mapping[str, Any]) -> pa.Table:
    """One model's rows (DIVERGENCES) for one set of images, `about` it: canary, label, seed, evaluation and model.

    Without a label there are no log-probabilities of it.
    """
    clean = says("clean", triples.clean)
    unique, random = says("feature", triples.unique), says("random", triples.random)
    n, label = len(triples.rows), about["label"]
    check_label(label, clean.shape[1])
    columns = {name: [value] * n for name, value in about.items()} | {
        "images": [triples.images] * n,
        "image": triples.rows,
        "d_u": divergence(clean, unique),
        "d_r": divergence(clean, random),
        "log_p_u": [None] * n if label is None else unique[:, label],
        "log_p_r": [None] * n if label is None else random[:, label],
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in DIVERGENCES]
    return pa.Table.from_arrays(arrays, schema=DIVERGENCES)


def check_label(label: int | None, classes: int) -> None:
    """ValueError where the model has no class of the label's number."""
    if label is not None and label >= classes:
        raise ValueError(f"label is {label}; the model's classes are 0 to {classes - 1}")
