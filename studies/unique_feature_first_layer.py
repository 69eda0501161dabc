"""How often does one model reveal a glyph of one training image, by its first layer or its outputs?

    python -m studies unique_feature_first_layer [--tiny] [--seed 34101] [--owners 20] [--innocent 20] [--references 4]
                                 [--data mnist] [--examples 10000] [--epochs 5] [--out FILE]

Every owner trains mlp1 as published, with a random glyph in one training image. Innocent owners train without a
feature. The auditor knows the label and evaluates one model on 100 test images with that label. Ranks are among all
4,457,400 glyphs. `slopes` and `references` are the ranks from `exact_ranks`, from the model alone and compared with
four clean models. `first layer` is the rank from `weight_ranks`, and `density score` its earlier version. `ink of all
images` is for an auditor who counts ink in the entire data set, although the owner trained on only part of it. The
verdict is *memorised* if the ranks among the look-alikes are also small. An owner's model is also evaluated with the
glyphs of other owners and with variants of its glyph that differ in one half, and an innocent model with the glyphs of
all owners. A cheat alters the first layer before sharing it. Checkpoints are the model after 1, 2, 4, ... epochs.
Intervals are Clopper-Pearson intervals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from measurement.report import measurement_facts, publish_counts
from studies.interface import study_parser
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.measures.exact_ranks import match_spread, mean_response
from tasks.audits.unique_feature.pairs.canary_selection import Canary, canaries
from tasks.audits.unique_feature.population import Cells, inked_cells, relatives
from tasks.audits.unique_feature.questions import Pairs
from tasks.audits.unique_feature.single_models.first_layer import (
    LEAST_PIXELS,
    Counts,
    FirstLayer,
    ink_counts,
    trained_first_layer,
)
from tasks.audits.unique_feature.slope_ranks import (
    IMAGES,
    FeatureRegion,
    Subsets,
    cell_sums,
    feature_region,
    mean_standardised_slopes,
    slope_features,
)
from tasks.audits.unique_feature.slopes import Array, weighted_slopes
from tasks.audits.unique_feature.trainings import clean_training
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph, burn
from tasks.datasets.features.look_alikes import halves
from tasks.datasets.images import Images, Pixels
from tasks.models.networks import Weights, architecture_of, weights_of_model
from tasks.numerics import seeds
from tasks.numerics.statistics import exact_interval
from tasks.training.classifier import Training, member_of, model_table, spec_of
from tasks.training.members import Trained
from tasks.training.trainer import train_by_index

LEVELS = (0.05, 0.01, 0.001)
TOGETHER = 8  # models trained in one stack
INKED_NOISE = 10.0  # density score: variance added by ink, relative to the initial variance


def cheats(weights: Array, counts: Counts) -> Mapping[str, Array]:
    """Return versions of the first layer that hide its evidence."""
    noise = np.random.default_rng(0).normal(size=weights.shape)
    spread = weights.std()
    step = np.abs(weights).max() / 127
    return {
        "first layer, 0 without ink": np.where(counts > 0, weights, 0.0),
        "first layer, as float16": weights.astype(np.float16).astype(np.float64),
        "first layer, as int8": np.round(weights / step) * step,
        "first layer, noise of 0.05 sd": weights + 0.05 * spread * noise,
        "first layer, noise of 0.2 sd": weights + 0.2 * spread * noise,
    }


@dataclass(frozen=True, eq=False)
class AuditedModel:
    """A model audited for the glyph of `canary`, and its weights after 1, 2, 4, ... epochs.

    An owner's model was trained with the canary, an innocent model without a feature.
    """

    canary: Canary
    model: pa.Table
    checkpoints: Sequence[Weights]


@dataclass(frozen=True)
class Models:
    owners: list[AuditedModel]
    innocent: list[AuditedModel]
    references: list[pa.Table]


def study_config(data: str, examples: int, owners: int, seed: int) -> UniqueFeature:
    pinned = pin(Dataset(data))
    pairs = Pairs(data=pinned, examples=examples, canaries=owners, drawn=True)
    return UniqueFeature(pairs, probe=pinned, seed=seed)


def asked_pairs(config: UniqueFeature) -> Pairs:
    assert config.scored_pairs is not None
    return config.scored_pairs


def with_training(config: UniqueFeature, **fields: int) -> UniqueFeature:
    """Return the configuration with these fields of its training replaced."""
    pairs = asked_pairs(config)
    return replace(config, question=replace(pairs, training=replace(pairs.training, **fields)))  # type: ignore[arg-type]


def train(config: UniqueFeature, innocent: int, references: int) -> Models:
    """Train the owners' models, innocent models and references."""
    pairs = asked_pairs(config)
    chosen_canaries = canaries(config, pairs, load(pairs.data))
    trainings = []
    for canary in chosen_canaries:
        trainings.append(canary.burn_into(clean_training(config, pairs, canary, 0)))
    names = {"innocent": innocent, "clean reference": references}
    model_seeds = [seeds.derive(config.seed, name, number) for name, count in names.items() for number in range(count)]
    trainings += [replace(pairs.clean_training, seed=seed) for seed in model_seeds]
    models: list[tuple[pa.Table, Sequence[Weights]]] = []
    for first in range(0, len(trainings), TOGETHER):
        models += train_with_checkpoints(trainings[first : first + TOGETHER])
        print(f"{len(models)} of {len(trainings)} models", flush=True)
    questions = []
    for canary, model in zip(cycle(chosen_canaries), models, strict=False):
        questions.append(AuditedModel(canary, *model))
    count = len(chosen_canaries) + innocent
    return Models(
        questions[: len(chosen_canaries)],
        questions[len(chosen_canaries) : count],
        [model for model, _ in models[count:]],
    )


def train_with_checkpoints(configs: Sequence[Training]) -> list[tuple[pa.Table, Sequence[Weights]]]:
    """Run each training. Returns its MODEL table and the weights after 1, 2, 4, ... epochs before the kept epoch."""
    images = load(configs[0].data)
    checkpoints: list[dict[int, Weights]] = [{} for _ in configs]

    def watch(positions: Sequence[tuple[int, int]], tensors: Mapping[str, torch.Tensor]) -> None:
        for position, (index, epoch) in enumerate(positions):
            if epoch & (epoch - 1) == 0:
                checkpoints[index][epoch] = {
                    name: values[position].cpu().numpy().copy() for name, values in tensors.items()
                }

    spec = replace(spec_of(configs[0], images), watch=watch)
    members = {index: member_of(config, images) for index, config in enumerate(configs)}
    trained_models: dict[int, Trained] = {}
    for index, outcome in train_by_index(spec, members):
        if isinstance(outcome, Exception):
            raise outcome
        trained_models[index] = outcome
    models = []
    for index, config in enumerate(configs):
        trained_model = trained_models[index]
        earlier = [weights for epoch, weights in checkpoints[index].items() if epoch < trained_model.best_epoch]
        models.append((model_table(config, images, trained_model), earlier))
    return models


def pixel_scores(
    config: UniqueFeature, data: Images, one: AuditedModel, references: Sequence[pa.Table]
) -> tuple[FeatureRegion, dict[str, Array]]:
    """Return the values of every score for the pixels in which glyphs differ."""
    assert isinstance(one.canary.image, int)
    label = int(data.train_labels[one.canary.image])
    clean: Pixels = data.test_images[data.test_labels == label][:IMAGES]
    relatives_asked = relatives(config, one.canary.audited_feature, one.canary.number)
    sets = []
    for feature in slope_features(relatives_asked, data.shape[:2]):
        sets.append(burn(clean, feature))
    training = data.train_images[: asked_pairs(config).examples or None]
    region = feature_region(clean, sets, training)
    counts = ink_counts(training)
    response = mean_response(one.model, sets, label)
    reference_responses = [mean_response(model, sets, label) for model in references]
    network = architecture_of(one.model)
    weights = [*one.checkpoints, weights_of_model(one.model)]
    layers = [trained_first_layer(network, item, clean, label) for item in weights]
    scores = {"slopes": weighted_slopes(region.added, response, region.inked)}
    if reference_responses:
        differences = match_spread(response, reference_responses) - np.mean(reference_responses, axis=0)
        scores["references"] = weighted_slopes(region.added, differences, region.inked)
    scores["density score"] = density_scores(layers[-1], region.indices, counts)
    scores["first layer"] = layers[-1].pixel_scores(region.indices, counts)
    scores["first layer, ink of all images"] = layers[-1].pixel_scores(region.indices, ink_counts(data.train_images))
    for name, altered in cheats(layers[-1].weights, counts).items():
        scores[name] = FirstLayer(altered, layers[-1].gradients).pixel_scores(region.indices, counts)
    return region, scores | checkpoint_scores(layers, region.indices, counts)


def density_scores(layer: FirstLayer, where: NDArray[np.int64], counts: Counts) -> Array:
    """Compute the score of version 1, which is locally most powerful for a shift along the gradient, reduced for inked
    pixels.

        S_p = a_p sum over units u of g_u s(w_up),  s = -h' / h,  a_p = 1 / (1 + 10 [the images ink p])

    h is the density of the weights of other pixels without ink. Cox & Hinkley 1974, "Theoretical Statistics", section
    4.8.
    """
    elsewhere = np.setdiff1d(np.arange(len(counts)), where)
    blank = elsewhere[counts[elsewhere] == 0]
    score = shift_score(layer.weights[:, blank if len(blank) >= LEAST_PIXELS else elsewhere].ravel())
    return np.asarray(layer.gradients @ score(layer.weights[:, where]) / (1 + INKED_NOISE * (counts[where] > 0)))


def shift_score(sample: Array) -> Callable[[Array], Array]:
    """Return -h' / h as a function of values, where h is the kernel density of the sample."""
    bandwidth = 0.05 * float(sample.std())
    reach = float(np.abs(sample).max()) + 4 * bandwidth
    edges = np.linspace(-reach, reach, 802)
    counts = np.histogram(sample, edges)[0].astype(np.float64)
    step = float(edges[1] - edges[0])
    density = gaussian_filter1d(counts, bandwidth / step, order=0, mode="constant")
    slope = gaussian_filter1d(counts, bandwidth / step, order=1, mode="constant")
    common = np.flatnonzero(density > 1e-3 * density.max())
    middles = (edges[:-1] + edges[1:]) / 2
    scores = -slope[common] / (step * density[common])
    return lambda values: np.interp(values, middles[common], scores)


def checkpoint_scores(layers: Sequence[FirstLayer], where: NDArray[np.int64], counts: Counts) -> dict[str, Array]:
    """Compute scores that combine the first layers of one training at its checkpoints and at its end.

    A panel averages them, as with several models of one owner. The mean gradient has the direction of the entire
    training. The change since a checkpoint does not contain the initial weights: for a pixel that only the canary inks,
    only the canary has changed them.
    """
    last = layers[-1]
    gradients = np.mean([layer.gradients for layer in layers], axis=0)
    results = {
        "checkpoints as a panel": mean_standardised_slopes([layer.pixel_scores(where, counts) for layer in layers]),
        "first layer along the checkpoints' gradients": FirstLayer(last.weights, gradients).pixel_scores(where, counts),
    }
    for name, before in {"first": layers[0], "last": layers[-2] if len(layers) > 1 else last}.items():
        change = gradients @ (last.weights - before.weights)[:, where]
        results[f"change since the {name} checkpoint"] = change / (1 + INKED_NOISE * (counts[where] > 0))
    return results


# Counts


@dataclass(frozen=True)
class Ranks:
    """A glyph's p-value among all glyphs with equal ink and, per part, among glyphs that differ only in that part."""

    p_value: float
    parts: tuple[float, ...]

    @property
    def memorised(self) -> bool:
        """Whether the verdict that includes look-alikes is *memorised*."""
        return bool(self.parts) and max(self.p_value, *self.parts) <= LEVELS[0]


@dataclass
class Answers:
    """Ranks by one score.

    They cover carried glyphs, other owners' glyphs in the same models, all glyphs in innocent models, and variants of
    the carried glyph that differ in one part.
    """

    carried: list[Ranks] = field(default_factory=list)
    other_owners: list[Ranks] = field(default_factory=list)
    innocent: list[Ranks] = field(default_factory=list)
    alike: list[Ranks] = field(default_factory=list)


def rank_glyphs(values: Array, glyphs: Sequence[Cells]) -> list[Ranks]:
    """Rank glyphs by the values (25,) of their cells."""
    all_values = Subsets(values)
    of_halves = dict[int, Subsets]()

    def rank_part(inked: Cells, half: NDArray[np.int64]) -> float:
        first = int(half[0])
        of_halves[first] = of_halves.get(first) or Subsets(values[half])
        return of_halves[first].p_value(inked[half])

    ranks = []
    for inked in glyphs:
        parts = tuple(rank_part(inked, half) for half in halves(inked[:, None]))
        ranks.append(Ranks(all_values.p_value(inked), parts))
    return ranks


def count_answers(config: UniqueFeature, models: Models) -> dict[str, Answers]:
    """Rank all glyphs by every score."""
    data = load(asked_pairs(config).data)
    glyphs = [glyph_of(one) for one in models.owners]
    results: defaultdict[str, Answers] = defaultdict(Answers)
    for number, one in enumerate([*models.owners, *models.innocent]):
        region, scores = pixel_scores(config, data, one, models.references)
        for name, pixels in scores.items():
            values = cell_sums(region.pixel_map(pixels), glyph_of(one))
            ranks = rank_glyphs(values, [inked_cells(glyph) for glyph in glyphs])
            if number >= len(glyphs):
                results[name].innocent += ranks
                continue
            results[name].carried.append(ranks.pop(number))
            results[name].other_owners += ranks
            results[name].alike += rank_glyphs(values, [*look_alikes(config, glyphs[number], number)])
    return dict(results)


def glyph_of(one: AuditedModel) -> Glyph:
    assert isinstance(one.canary.carried_feature, Glyph)
    return one.canary.carried_feature


def look_alikes(config: UniqueFeature, glyph: Glyph, number: int) -> Iterator[Cells]:
    """Yield, for each half of the glyph, the cells of a glyph in which that half is random."""
    generator = seeds.generator(config.seed, "look-alike", number)
    cells = inked_cells(glyph)
    for half in halves(cells[:, None]):
        changed_cells = cells.copy()
        while (changed_cells == cells).all():
            changed_cells[half] = cells[generator.permutation(half)]
        yield changed_cells


def table(results: Mapping[str, Answers]) -> str:
    """Render the counts of calls by score and level, and of verdicts, with exact intervals."""
    lines = [
        "| score | found at 5 % | 1 % | 0.1 % | memorised, given look-alikes | glyphs of other owners | "
        "innocent models | look-alikes |",
        f"|{8 * '---|'}",
    ]
    for name, answers in results.items():
        p_values = np.array([ranks.p_value for ranks in answers.carried])
        counts = [describe_count(p_values <= level) for level in LEVELS]
        memorised = describe_count(np.array([ranks.memorised for ranks in answers.carried]))
        other_counts, innocent, alike = map(count_wrong, (answers.other_owners, answers.innocent, answers.alike))
        lines.append(f"| {' | '.join([name, *counts, memorised, other_counts, innocent, alike])} |")
    return "\n".join(lines) + "\n"


def count_wrong(ranks: Sequence[Ranks]) -> str:
    """Count false calls at 5 % and false *memorised* verdicts for glyphs that were not trained on."""
    wrong_count = sum(item.p_value <= LEVELS[0] for item in ranks)
    if ranks:
        return f"{wrong_count} of {len(ranks)}; {sum(item.memorised for item in ranks)}"
    return ""


def describe_count(is_called: NDArray[np.bool_]) -> str:
    hits = int(is_called.sum())
    low, high = exact_interval(hits, len(is_called))
    return f"{hits} of {len(is_called)} [{100 * low:.0f}, {100 * high:.0f}] %"


def facts(config: UniqueFeature, models: Models) -> Iterator[tuple[str, str]]:
    data = load(asked_pairs(config).data)
    counts = ink_counts(data.train_images[: asked_pairs(config).examples or None]).reshape(data.shape)[1:6, 1:6]
    pairs = asked_pairs(config)
    yield "data", f"{pairs.data.name}, {pairs.examples or len(data.train_images)} training images"
    yield "epochs", f"{pairs.training.epochs} at most, patience {pairs.training.patience}"
    yield "seed", str(config.seed)
    yield (
        "models",
        f"{len(models.owners)} with a glyph, {len(models.innocent)} innocent, {len(models.references)} references",
    )
    yield "cells that some training image inks", f"{int((counts > 0).any(axis=2).sum())} of {counts[..., 0].size}"


def main(arguments: Sequence[str]) -> None:
    parser = study_parser(__name__, __doc__)
    parser.add_argument("--seed", type=int, default=34101, help="of all random draws")
    parser.add_argument("--owners", type=int, default=20, help="number of owners; default: 20")
    parser.add_argument("--innocent", type=int, default=20, help="models without a feature; default: 20")
    parser.add_argument("--references", type=int, default=4, help="clean models for comparison; default: 4")
    parser.add_argument("--data", default="mnist", help="data set; default: mnist")
    parser.add_argument("--examples", type=int, default=10000, help="number of training images; 0: all")
    parser.add_argument("--epochs", type=int, help="maximum number of epochs; default: as published")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.tiny:
        config = with_training(study_config("digits", 50, 2, options.seed), epochs=2, patience=0)
    else:
        config = study_config(options.data, options.examples, options.owners, options.seed)
        if options.epochs:
            config = with_training(config, epochs=options.epochs)
    models = train(config, options.innocent, options.references)
    counted = table(count_answers(config, models))
    setting = measurement_facts("", torch.device("cpu")) | dict(facts(config, models))
    publish_counts("One model: first layer and references", setting, counted, options.out)
