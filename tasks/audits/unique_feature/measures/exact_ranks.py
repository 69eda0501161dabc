"""The rank of the feature among all of its kind, by the shift in a model's response to its pixels.

The response is the centred logit of the canary's label on test images of that label. The scores use its slopes with
respect to the pixels, weighted by the lack of ink in the training images (`slopes`):

    pair             the canary model minus its control model
    references       the canary model minus the mean of the control models of other seeds, which were trained without a
                     canary. The response is rescaled to the spread of theirs, and no model of the same seed is needed.
                     Without references: the model alone
    weight change    the pair, from its weights

A glyph is ranked among all glyphs with the same amount of ink, a word or picture among the members of its family
(`slope_ranks`). The p-value is exact if the feature was drawn at random, because the fit does not depend on it. If a
person chose the feature, the p-value is a comparison with others of its kind. As a check, every pair is also evaluated
on glyphs that its canary did not carry: the 26 letters if the feature was drawn, otherwise 26 drawn glyphs, whose false
alarm rate is exact.

External models are scored by `references`, compared with clean reference models. The images are then the test images
with the label in the probe set, which must come from the models' domain; the ink is measured on its training images. If
one owner has several models, their slopes are averaged in units of their standard deviation over the pixels, which
gives one p-value. It is exact for any references; its power depends on how similar they are to the models in network,
training and data.

The pixels with the largest weighted slopes, as many as the feature inks, can be read out of the models; the table also
contains the number of hits expected by chance.

Source. The scores are ours. Exposure follows Carlini et al. 2019, "The Secret Sharer: Evaluating and Testing Unintended
Memorization in Neural Networks", section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.answered_images import is_answered
from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.evaluation import check_label, network_predictor
from tasks.audits.unique_feature.given_models import Given
from tasks.audits.unique_feature.pairs.canary_selection import RankedImage, canary_row
from tasks.audits.unique_feature.pairs.units import first_trainings, share_seeds
from tasks.audits.unique_feature.population import (
    Population,
    Relatives,
    is_counted,
)
from tasks.audits.unique_feature.program_training import PairTraining
from tasks.audits.unique_feature.single_models.look_alikes import look_alike_row
from tasks.audits.unique_feature.single_models.models import SingleModelConfig, predictor
from tasks.audits.unique_feature.slope_ranks import (
    LOOK_ALIKE,
    FeatureRegion,
    feature_region,
    is_among_all,
    label_images,
    mean_standardised_slopes,
    probe_label_images,
    probe_label_rows,
    rank_alone,
    rank_rows,
    slope_features,
    slope_sets,
)
from tasks.audits.unique_feature.slopes import Array, centred_logits, weight_change_responses, weighted_slopes
from tasks.audits.unique_feature.trainings import Pair, Trainings
from tasks.contract.grouping import group_by, group_rows
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Row, alone, row
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import burn, family
from tasks.datasets.images import Pixels
from tasks.datasets.picture_rows import Sliceable, reshape_images, whole_split
from tasks.numerics.statistics import clustered_proportion, mean, proportion

REFERENCE_RANK = "rank beside references"
REFERENCE_PART_RANK = "rank among look-alikes beside references"
REFERENCES = 4  # number of clean models with other seeds
LEVELS = (0.05, 0.01, 0.001)

EXACT_RANKS = pa.schema(
    [
        ("canary", pa.int64()),
        ("label", pa.int32()),
        ("seed", pa.int64()),
        ("score", pa.string()),  # pair, references or weight change
        ("references", pa.int32()),  # number of models whose mean slopes are subtracted; null: the control model's
        ("feature", pa.string()),  # canary: the audited feature; other: a feature that the canary did not carry
        ("drawn", pa.bool_()),  # whether it was drawn at random from its population, so that the p-value is exact
        ("p_value", pa.float64()),
        ("among", pa.int64()),  # size of the population, including this feature
        ("exposure", pa.float64()),  # bits
        ("inked", pa.int32()),  # number of pixels of the block, or cells of a glyph, that the feature inks
        ("hits", pa.int32()),  # how many of the `inked` largest slopes are in inked pixels; null for others
        ("hits_by_chance", pa.float64()),
        ("height", pa.int32()),  # of the block, in pixels or in cells of a glyph
        ("width", pa.int32()),
        ("ink", pa.list_(pa.bool_())),  # mask of the inked pixels or cells, row by row
        ("slopes", pa.list_(pa.float64())),  # weighted slopes of the pixels or cells
    ]
)


@dataclass(frozen=True)
class ExactRanks:
    """The canary and its feature.

    The canary is named by its row or rank in the first `examples` training images of `data` (0: all). `drawn` states
    whether the feature was drawn from its population. `references` is the number of references among the inputs.
    """

    data: Dataset
    canary: int | RankedImage
    examples: int
    relatives: Relatives
    drawn: bool
    references: int


def batch_key(config: ExactRanks) -> tuple[Dataset, int]:
    """Return the settings shared by tables with similar run times."""
    return config.data, config.references


@task(version=1, name="unique_feature.exact_ranks", batch_key=batch_key)
def exact_ranks(config: ExactRanks, inputs: Inputs) -> pa.Table:
    """Rank the audited feature, and other features, by every score (EXACT_RANKS).

    The inputs are the canary model, its control model, the references and, for a canary named by its rank, the table of
    selected canaries.
    """
    canary = inputs[0]
    twin = inputs[1]
    references = inputs[2 : 2 + config.references]
    data = load(config.data)
    number = canary_row(config.canary, inputs)
    label = int(data.train.labels[number])
    clean = label_images(config.relatives, data, config.examples, number)
    sets = []
    for feature in slope_features(config.relatives, data.shape[:2]):
        sets.append(burn(clean, feature))
    region = feature_region(clean, sets, whole_split(data.train, config.examples))
    rows: list[Row] = []
    for score, values in _responses_by_score(canary, twin, references, sets, label).items():
        about = {"canary": number, "label": label, "seed": canary["seed"][0].as_py(), "score": score}
        if score == "references":
            about["references"] = len(references)
        else:
            about["references"] = None
        slopes = weighted_slopes(region.added, values, region.inked)
        rows += [about | rank for rank in rank_rows(config.relatives, config.drawn, slopes, region)]
    return pa.Table.from_pylist(rows, EXACT_RANKS)


def _responses_by_score(
    canary: pa.Table, twin: pa.Table, references: Sequence[pa.Table], sets: Sequence[Pixels], label: int
) -> Mapping[str, Array]:
    """Return r(f) by each score, for sets of images with one feature each, shape (features,)."""
    canary_response = mean_response(canary, sets, label)
    without = mean_response(twin, sets, label)
    reference_responses = [mean_response(model, sets, label) for model in references]
    responses = {
        "pair": canary_response - without,
        "references": match_spread(canary_response, reference_responses) - np.mean(reference_responses, axis=0)
        if reference_responses
        else canary_response,
    }
    if not is_answered(canary):  # the weights of a program's models are unknown
        responses["weight change"] = weight_change_responses(canary, twin, sets, label)
    return responses


def match_spread(responses: Array, reference_responses: Sequence[Array]) -> Array:
    """Scale the responses to the standard deviation of the reference responses over features.

    The result does not depend on a temperature of the logits. Responses are unchanged if either side is constant.
    """
    spread = float(responses.std())
    reference_spread = float(np.mean([reference.std() for reference in reference_responses]))
    if spread and reference_spread:
        return responses * (reference_spread / spread)
    return responses


def mean_response(model: pa.Table, sets: Sequence[Pixels], label: int) -> Array:
    """Return the mean centred logit of the label on each set of images."""
    predict = network_predictor(model)
    return np.array([centred_logits(predict("", images), label).mean() for images in sets])


def rank_jobs(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    """Return the jobs that rank the feature of every pair."""
    return tuple(pair_rank_job(design, trainings, pair) for pair in trainings.pairs)


def pair_rank_job(design: Design, trainings: Trainings, pair: Pair) -> Job:
    references = reference_jobs(trainings, pair)
    relatives = design.relatives_of(pair.canary)
    is_drawn = design.draws_features and pair.canary.audited_feature == pair.canary.carried_feature
    about = ExactRanks(pair.clean.data, pair.canary.image, pair.clean.examples, relatives, is_drawn, len(references))
    return Job(exact_ranks, about, (pair.model, pair.twin, *references, *pair.ranking))


def reference_jobs(trainings: Trainings, pair: Pair) -> tuple[Job, ...]:
    """Return the control models of the next pairs, one per seed. There may be fewer than REFERENCES.

    There are none for a program's models, which are evaluated only on the images of their own canary.
    """
    if isinstance(pair.clean, PairTraining):
        return ()
    position = trainings.pairs.index(pair)
    by_seed: dict[int, Job] = {}
    for other_pair in (*trainings.pairs[position + 1 :], *trainings.pairs[:position]):
        if other_pair.clean.seed != pair.clean.seed:
            by_seed.setdefault(other_pair.clean.seed, other_pair.twin)
    return tuple(by_seed.values())[:REFERENCES]


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if not design.asks_for("ranks"):
        return ()
    about = design.ranked
    if about is not None and not is_counted(about):
        family(about.feature, about.family, about.seed, trainings.shape[:2])  # fails now, not after all training runs
    return rank_jobs(design, trainings)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """Yield each score's detection rate and false alarms, its exposure, and the number of cells that it reconstructs.

    False alarms are counted on glyphs that the canary did not carry; their interval is over training runs. If canaries
    share training seeds, they are not an independent sample, and no estimate has an interval.
    """
    ranks = tables.rows(EXACT_RANKS)
    shared = share_seeds((rank["canary"], rank["seed"]) for rank in ranks)
    for summary_row in _interval_rows(ranks):
        yield summary_row | {"low": None, "high": None} if shared else summary_row


def _interval_rows(ranks: Sequence[Row]) -> Iterator[Row]:
    for score, of_score in group_rows(ranks, "score").items():
        carried = canary_ranks(of_score)
        uncarried = canary_ranks(of_score, "other")
        unit = "training" if score == "references" else "pair of trainings"
        setting = {"score": score, "drawn": all(rank["drawn"] for rank in carried)}
        for level in LEVELS:
            if any(rank["among"] * level < 1 for rank in carried):
                continue  # even the first of so few has a larger p
            detection_rate = proportion(sum(rank["p_value"] <= level for rank in carried), len(carried))
            rates = _canary_means(uncarried, [float(rank["p_value"] <= level) for rank in uncarried])
            alarms = clustered_proportion(rates, len(uncarried) // max(1, len(rates)))
            level_setting = setting | {"level": level}
            yield row(
                "rate of exact p at most",
                level_setting,
                detection_rate,
                unit,
                level if alarms.value is None else alarms.value,
            )
            if alarms.value is not None:
                asked_too = level_setting | {
                    "queries": len(uncarried),
                    "guaranteed by the draw": all(rank["drawn"] for rank in uncarried),
                }
                yield row("false alarms of exact p", asked_too, alarms, unit, level)
        null = mean(_canary_means(uncarried, [rank["exposure"] for rank in uncarried])).value
        yield row("exposure in bits", setting, mean([rank["exposure"] for rank in carried]), unit, null)
        reconstructed = [rank for rank in carried if rank["hits"] is not None]
        by_chance = mean([rank["hits_by_chance"] for rank in reconstructed]).value
        yield row("pixels read out", setting, mean([rank["hits"] for rank in reconstructed]), unit, by_chance)


def canary_ranks(of_score: Sequence[Row], feature: str = "canary") -> list[Row]:
    """Return a score's ranks of each canary's audited feature, or of features that it did not carry (`other`).

    For a canary that was trained several times, only the first training counts, because the others have the same
    feature.
    """
    first = {rank["canary"]: rank["seed"] for rank in first_trainings(of_score)}
    ranks = []
    for rank in of_score:
        if rank["feature"] == feature and rank["seed"] == first[rank["canary"]]:
            ranks.append(rank)
    return ranks


def _canary_means(ranks: Sequence[Row], values: Sequence[float]) -> list[float]:
    """Return the mean of the values over each canary's queries."""
    by_canary = group_by(zip(ranks, values, strict=True), lambda query: query[0]["canary"])
    return [float(np.mean([value for _, value in queries])) for queries in by_canary.values()]


# External models compared with references

REFERENCE_RANKS = pa.schema(
    [
        ("models", pa.int32()),  # number of models evaluated as one
        ("references", pa.int32()),
        ("label", pa.int32()),
        *[EXACT_RANKS.field(name) for name in EXACT_RANKS.names[EXACT_RANKS.names.index("feature") :]],
    ]
)


@dataclass(frozen=True)
class ReferenceRanks:
    """The models of one owner, evaluated as one panel, and their references."""

    panel: tuple[SingleModelConfig, ...]
    references: tuple[SingleModelConfig, ...]


@task(version=1, name="unique_feature.reference_ranks")
def reference_ranks(config: ReferenceRanks, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Rank the audited feature, and glyphs that no model carries (REFERENCE_RANKS)."""
    first = config.panel[0]
    relatives = first.relatives
    label = first.label
    assert label is not None
    clean = probe_label_images(relatives, first.shape, label)
    sets = dict(slope_sets(relatives, clean))
    panel = PanelResponses(
        sets,
        reshape_images(whole_split(load(relatives.probe).train), first.shape),
        [_single_response(model, sets, label) for model in config.panel],
        [_single_response(model, sets, label) for model in config.references],
    )
    about = {"models": len(config.panel), "references": len(config.references), "label": label}
    ranks = rank_alone(relatives, clean, list(sets), lambda names: panel.fit_slopes(clean, names))
    return pa.Table.from_pylist([about | rank for rank in ranks], REFERENCE_RANKS)


@dataclass(frozen=True, eq=False)
class PanelResponses:
    """The responses of each model of a panel, and of each reference, to the `sets` of images. Responses have shape
    (sets,).
    """

    sets: Mapping[str, Pixels]
    training: Sliceable
    panel: Sequence[Array]
    references: Sequence[Array]

    def fit_slopes(self, clean: Pixels, names: Sequence[str]) -> tuple[Array, FeatureRegion]:
        """Return the slopes of the panel compared with the references, and their pixels.

        The slopes are fitted to the sets with these names.
        """
        positions = [list(self.sets).index(name) for name in names]
        region = feature_region(clean, [self.sets[name] for name in names], self.training)
        reference_responses = [responses[positions] for responses in self.references]
        slopes = []
        for model_responses in self.panel:
            slopes.append(
                weighted_slopes(
                    region.added,
                    match_spread(model_responses[positions], reference_responses)
                    - np.mean(reference_responses, axis=0),
                    region.inked,
                )
            )
        return slopes[0] if len(slopes) == 1 else mean_standardised_slopes(slopes), region


def _single_response(config: SingleModelConfig, sets: dict[str, Pixels], label: int) -> Array:
    """Return the mean centred logit of the label on each set.

    Raises ValueError if the model's number of classes differs from the probe set's.
    """
    predict = predictor(config, ())
    responses = []
    for name, images in sets.items():
        log_p = predict(name, images)
        check_label(label, log_p.shape[1])
        classes = load(config.relatives.probe).classes
        if log_p.shape[1] != classes:
            if config.model is not None:
                name_of = config.model.name
            elif config.outputs is not None:
                name_of = config.outputs.path
            else:
                name_of = ""
            raise ValueError(
                f"model {name_of} has {log_p.shape[1]} classes and probe {config.relatives.probe.name} {classes}; to "
                "compare with references, they must be equal"
            )
        responses.append(centred_logits(log_p, label).mean())
    return np.array(responses)


def _plan_references(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    question = design.question
    if not isinstance(question, Given) or not question.references:
        return ()
    panel = tuple(single.config for single in trainings.single_models)
    first = replace(panel[0], outputs=None)
    assert first.label is not None
    probe_label_rows(first.relatives, first.label)  # fails now, not in a job
    references = tuple(replace(first, number=number, model=model) for number, model in enumerate(question.references))
    return (Job(reference_ranks, ReferenceRanks(panel, references)),)


def _reference_rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    for rank in number_parts(tables.rows(REFERENCE_RANKS)):
        yield from alone_rows(
            rank, (REFERENCE_RANK, REFERENCE_PART_RANK), {"references": rank["references"]}, "references"
        )


def number_parts(ranks: Sequence[Row]) -> list[Row]:
    """Return the ranks among look-alikes, numbered as `part` of `parts` from 1, then the ranks of the feature."""
    parts = [rank for rank in ranks if rank["feature"] == LOOK_ALIKE]
    numbered = []
    for number, rank in enumerate(parts, start=1):
        numbered.append(rank | {"part": number, "parts": len(parts)})
    return [*numbered, *(rank for rank in ranks if rank["feature"] == "canary")]


def alone_rows(rank: Row, metrics: tuple[str, str], base_setting: Mapping[str, int], score: str) -> Iterator[Row]:
    """Yield the summary rows for a rank of single models. `metrics` names the feature's rank and that of a part."""
    models = rank["models"]
    among = rank["among"]
    if rank["feature"] == LOOK_ALIKE:
        part = (rank["part"], rank["parts"])
        yield look_alike_row(metrics[1], dict(base_setting), rank["p_value"], part, among, models)
        return
    setting = {**base_setting, "label": rank["label"], **Population(among, is_among_all(rank)).setting}
    yield row(metrics[0], setting, alone(rank["p_value"] * among, models), "model", (among + 1) / 2, rank["p_value"])
    yield row("exposure in bits", {"score": score}, alone(rank["exposure"], models), "model")
    if rank["hits"] is not None:
        reconstructed = alone(float(rank["hits"]), models)
        yield row("pixels read out", {"score": score}, reconstructed, "model", rank["hits_by_chance"])


MEASURE = Measure("exact_ranks", EXACT_RANKS, plan, rows)
REFERENCE_MEASURE = Measure("reference_ranks", REFERENCE_RANKS, _plan_references, _reference_rows)
