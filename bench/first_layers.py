"""How often one model shows a glyph of one training image: by its first layer, beside references, and by its outputs.

    python bench/first_layers.py [--tiny] [--seed 34101] [--owners 20] [--data mnist] [--examples 10000] [--out FILE]

Every owner trains mlp1 as published, with a drawn glyph in one training image. One model is asked, with its label
known, on 100 test images of the label. The ranks are among all 4,457,400 glyphs: `slopes` and `references` are those of
`exact_ranks`, of the model alone and beside four clean ones; `first layer` is that of `weight_ranks`. The innocent are
glyphs of the other owners, which the model never saw. A cheat alters the first layer before it is handed over.
Intervals are those of Clopper and Pearson.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest

from bench.measuring import here, parser, publish_counts
from tasks.audits.unique_feature.canary_selection import Canary, canaries
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.first_layer import FirstLayer, inked_at_all, trained_first_layer
from tasks.audits.unique_feature.measures.exact_ranks import match_spread, mean_response
from tasks.audits.unique_feature.population import inked_cells, relatives
from tasks.audits.unique_feature.slope_ranks import (
    IMAGES,
    FeatureRegion,
    Subsets,
    cell_sums,
    feature_region,
    slope_features,
)
from tasks.audits.unique_feature.slopes import Array, weighted_slopes
from tasks.audits.unique_feature.trainings import clean_training
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph, burn
from tasks.datasets.images import Images, Pixels
from tasks.numerics import seeds
from tasks.training.classifier import train_many

REFERENCES = 4
LEVELS = (0.05, 0.01, 0.001)
TOGETHER = 8  # models that train in one stack


def cheats(weights: Array) -> Mapping[str, Array]:
    """The first layer as an owner who hides what it shows may hand it over."""
    noise, spread = np.random.default_rng(0).normal(size=weights.shape), weights.std()
    step = np.abs(weights).max() / 127
    return {
        "first layer, as float16": weights.astype(np.float16).astype(np.float64),
        "first layer, as int8": np.round(weights / step) * step,
        "first layer, noise of 0.05 sd": weights + 0.05 * spread * noise,
        "first layer, noise of 0.2 sd": weights + 0.2 * spread * noise,
    }


@dataclass(frozen=True, eq=False)
class Owner:
    """A trained model, and the canary that it was trained with."""

    canary: Canary
    model: pa.Table


def bench_config(data: str, examples: int, owners: int, seed: int) -> UniqueFeature:
    pinned = pin(Dataset(data))
    return UniqueFeature(data=pinned, probe=pinned, drawn=True, canaries=owners, seed=seed, examples=examples)


def train(config: UniqueFeature) -> tuple[list[Owner], list[pa.Table]]:
    """The owners' models, and the references."""
    chosen = canaries(config, load(config.trained_on))
    trainings = [canary.burn_into(clean_training(config, canary, 0)) for canary in chosen]
    own = [seeds.derive(config.seed, "clean reference", number) for number in range(REFERENCES)]
    trainings += [replace(config.training, seed=seed) for seed in own]
    models: list[pa.Table] = []
    for first in range(0, len(trainings), TOGETHER):
        part = trainings[first : first + TOGETHER]
        found = dict(train_many(part, [()] * len(part)))
        for at in range(len(part)):
            model = found[at]
            if isinstance(model, Exception):
                raise model
            models.append(model)
        print(f"{len(models)} of {len(trainings)} models", flush=True)
    return [Owner(*each) for each in zip(chosen, models, strict=False)], models[len(chosen) :]


def pixel_scores(
    config: UniqueFeature, data: Images, owner: Owner, references: Sequence[pa.Table]
) -> tuple[FeatureRegion, dict[str, Array]]:
    """Every score's values of the pixels in which glyphs differ."""
    assert isinstance(owner.canary.image, int)
    label = int(data.train_labels[owner.canary.image])
    clean: Pixels = data.test_images[data.test_labels == label][:IMAGES]
    asked = relatives(config, owner.canary.asked, owner.canary.number)
    sets = [burn(clean, feature) for feature in slope_features(asked, data.shape[:2])]
    training = data.train_images[: config.examples or None]
    region, inked = feature_region(clean, sets, training), inked_at_all(training)
    own = mean_response(owner.model, sets, label)
    others = [mean_response(model, sets, label) for model in references]
    layer = trained_first_layer(owner.model, clean, label)
    scores = {
        "slopes": weighted_slopes(region.added, own, region.inked),
        "references": weighted_slopes(region.added, match_spread(own, others) - np.mean(others, axis=0), region.inked),
        "first layer": layer.pixel_scores(region.where, inked),
    }
    for name, weights in cheats(layer.weights).items():
        scores[name] = FirstLayer(weights, layer.gradients).pixel_scores(region.where, inked)
    return region, scores


def glyph_ranks(config: UniqueFeature, owners: Sequence[Owner], references: Sequence[pa.Table]) -> dict[str, Ranks]:
    """Every score's p-values of each owner's glyph, and of the other owners' glyphs."""
    data = load(config.trained_on)
    found: dict[str, Ranks] = {}
    for number, owner in enumerate(owners):
        region, scores = pixel_scores(config, data, owner, references)
        for name, values in scores.items():
            subsets = p_value_of(region, values, owner.canary.carried)
            ranks = found.setdefault(name, Ranks([], []))
            ranks.own.append(subsets(owner.canary.carried))
            ranks.others.append([subsets(each.canary.carried) for at, each in enumerate(owners) if at != number])
    return found


@dataclass(frozen=True)
class Ranks:
    own: list[float]
    others: list[list[float]]


def p_value_of(region: FeatureRegion, values: Array, glyph: object) -> Callable[[object], float]:
    assert isinstance(glyph, Glyph)
    subsets = Subsets(cell_sums(region.pixel_map(values), glyph))

    def p_value(other: object) -> float:
        assert isinstance(other, Glyph)
        return subsets.p_value(inked_cells(other))

    return p_value


def table(found: Mapping[str, Ranks]) -> str:
    """How often each score calls a glyph at each level, with exact intervals, and glyphs of others at 5 %."""
    lines = ["| score | found at 5 % | 1 % | 0.1 % | glyphs of other owners at 5 % |", "|---|---|---|---|---|"]
    for name, ranks in found.items():
        own, others = np.array(ranks.own), np.array(ranks.others)
        called = [describe_count(own <= level) for level in LEVELS]
        innocent = f"{np.count_nonzero(others <= LEVELS[0])} of {others.size}" if others.size else ""
        lines.append(f"| {name} | {' | '.join(called)} | {innocent} |")
    return "\n".join(lines) + "\n"


def describe_count(called: NDArray[np.bool_]) -> str:
    hits = int(called.sum())
    ends = binomtest(hits, len(called)).proportion_ci(method="exact")
    return f"{hits} of {len(called)} [{100 * ends.low:.0f}, {100 * ends.high:.0f}] %"


def facts(config: UniqueFeature) -> Iterator[tuple[str, str]]:
    data = load(config.trained_on)
    inked = inked_at_all(data.train_images[: config.examples or None]).reshape(data.shape)[1:6, 1:6]
    yield "data", f"{config.trained_on.name}, {config.examples or len(data.train_images)} training images"
    yield "seed", str(config.seed)
    yield "cells that some training image inks", f"{int(inked.any(axis=2).sum())} of {inked[..., 0].size}"


if __name__ == "__main__":
    given = parser(__doc__)
    given.add_argument("--seed", type=int, default=34101, help="from which all chance follows")
    given.add_argument("--owners", type=int, default=20, help="how many; 20 unless given")
    given.add_argument("--data", default="mnist", help="the data set; mnist unless given")
    given.add_argument("--examples", type=int, default=10000, help="the first so many training images; 0: all")
    asked_for = given.parse_args()
    torch.set_num_threads(1)
    if asked_for.tiny:
        config = replace(bench_config("digits", 50, 2, asked_for.seed), epochs=2, patience=0)
    else:
        config = bench_config(asked_for.data, asked_for.examples, asked_for.owners, asked_for.seed)
    counted = table(glyph_ranks(config, *train(config)))
    setting = here("", torch.device("cpu")) | dict(facts(config))
    publish_counts("One model: its first layer beside references", setting, counted, asked_for.out)
