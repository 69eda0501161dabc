"""Does a model know documents that were inserted into its training data, compared with a base model without them?

    effect(i) = log p of document i by the model - by its base                                   in nats per token

The number of insertions of each document, which may be 0, was drawn at random. Documents are therefore exchangeable
unless insertions have an effect. The documents that were left out are the control, for any two models, and a base that
is worse on all texts shows no effect. There are two exact one-sided tests:

- Documents inserted r times: their mean effect is compared with the mean effect under all other assignments (or DRAWS
  random ones) of the same number of documents among these and those left out. p is adjusted for the number of values of
  r (Bonferroni).
- A single document: its p-value is the rank of its effect among the effects of the documents left out. q is p adjusted
  for the number of documents (Benjamini & Hochberg 1995); a document is found if q is at most `level`. Ranks against a
  common control have the dependence that this adjustment permits: Bates et al. 2023, "Testing for outliers with
  conformal p-values".

Reproduction is tested as for `documents`, with the base as the control model. A pair of models is a single draw of
everything else, so intervals are over documents only. Wei et al. 2025, "Hubble" (arXiv 2510.19811), published such
pairs, with 0, 1, 4, 16, 64 or 256 insertions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tasks.audits.text.blind_control import BLIND, bag_of_words
from tasks.audits.text.config import About, Text
from tasks.audits.text.continuations import BEYOND, BY_CONTROL, BY_TRAINED, GREEDY, NEAR, SHARE, Array, Mask
from tasks.audits.text.documents.models import PairedModel, read_insertions
from tasks.audits.text.documents.ranks import (
    DRAWS,
    EFFECT,
    ESTIMATES,
    FOUND,
    LOSS,
    WON,
    DocumentScores,
    DocumentTest,
    document_reproductions,
    document_test,
    stack_scores,
)
from tasks.audits.text.question import Insertions
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.power import SMALLEST
from tasks.contract.schemas import make_table, nan_as_null
from tasks.contract.summaries import Estimate, Row, alone, row
from tasks.contract.ties import tied_row
from tasks.external.split_audit import blind_areas, interval_of_area
from tasks.numerics import seeds, statistics
from tasks.numerics.exact_test import randomisation_p_values
from tasks.numerics.ranks import area_under_curve, false_discovery_control, share_tied

SHOWN = "repetitions found"
MEMORISED = "repetitions memorised"
INSERTIONS = pa.schema(
    [
        ("row", pa.int64()),  # index of the document among the texts
        ("repetitions", pa.int64()),  # 0 if it was left out
        ("tokens", pa.int64()),
        ("effect", pa.float64()),  # in nats per token
        ("p_value", pa.float64()),  # null, like q_value and found, if the document was left out
        ("q_value", pa.float64()),
        ("found", pa.bool_()),
        (
            "greedy",
            pa.float64(),
        ),  # 1 if the model reproduces it, else 0; null, like the columns below, if it is too short
        ("greedy_control", pa.float64()),  # by the base
        ("near_verbatim", pa.float64()),
        ("near_verbatim_control", pa.float64()),
        ("log_p_end", pa.float64()),  # log p_z by the model, in nats
        ("log_p_end_control", pa.float64()),
        ("tied", pa.float64()),  # share of document pairs with equal effects; the same in all rows
    ]
)
# reduced_p: p-value after the effects are reduced by the smallest relevant size
INSERTION_ESTIMATES = pa.schema([*ESTIMATES, ("p_value", pa.float64()), ("reduced_p", pa.float64())])


def plan(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    if not isinstance(config.question, Insertions):
        return ()
    return Job(insertions, document_test(config.question, config), trainings)


def plan_estimates(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    if not isinstance(config.question, Insertions):
        return ()
    return Job(insertion_estimates, document_test(config.question, config), trainings)


def plan_control(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    if isinstance(config.question, Insertions):
        return Job(insertion_control, trainings[0].config)
    return ()


def effects(scores: DocumentScores) -> Array:
    """Return log p of each document by the model minus log p by its base, in nats per token, shape (documents,)."""
    difference: Array = scores.log_p[0] - scores.log_p[1]
    return difference


def control_p_values(effect: Array, left_out: Array) -> Array:
    """Return the p-value of each effect: its rank among itself and the effects of documents left out, as a share."""
    larger = len(left_out) - np.searchsorted(np.sort(left_out), effect, side="left")
    p_values: Array = (1 + larger) / (1 + len(left_out))
    return p_values


@task(version=3, name="text.insertions")
def insertions(config: DocumentTest, inputs: Inputs) -> pa.Table:
    """Compute the effect and p-value of each document, and whether it is reproduced (INSERTIONS)."""
    scores = stack_scores(inputs)
    effect = effects(scores)
    inserted = scores.repetitions > 0
    p_values = np.where(inserted, control_p_values(effect, effect[~inserted]), np.nan)
    q_values = false_discovery_control(p_values)
    ways = document_reproductions(config, scores)
    columns = {}
    for name, values in (("greedy", ways[GREEDY]), ("near_verbatim", ways[NEAR]), ("log_p_end", scores.log_p_end)):
        columns[name] = nan_as_null(values[0])
        columns[f"{name}_control"] = nan_as_null(values[1])
    return make_table(
        INSERTIONS,
        row=scores.rows,
        repetitions=scores.repetitions,
        tokens=scores.tokens,
        effect=effect,
        p_value=nan_as_null(p_values),
        q_value=nan_as_null(q_values),
        found=pa.array(q_values <= config.level, mask=~inserted),
        **columns,
        tied=float(share_tied(effect)),
    )


@task(version=4, name="text.insertion_estimates")
def insertion_estimates(config: DocumentTest, inputs: Inputs) -> pa.Table:
    """Estimate the effects of all inserted documents, and by repetition count (INSERTION_ESTIMATES)."""
    scores = stack_scores(inputs)
    rows = list[Row]()
    left_out = scores.repetitions == 0
    groups: list[tuple[int | None, Mask]] = [(None, ~left_out)]
    groups += [(int(times), scores.repetitions == times) for times in np.unique(scores.repetitions)]
    for times, group in groups:
        group_rows = []
        if times != 0:
            group_rows = [*comparisons(config, scores, group, left_out)]
        group_rows += group_estimates(config, scores.select(group))
        about = {"repetitions": times, "models": 2, "documents": int(group.sum())}
        rows += (about | group_row for group_row in group_rows)
    return pa.Table.from_pylist(rows, INSERTION_ESTIMATES)


def comparisons(config: DocumentTest, scores: DocumentScores, group: Mask, left_out: Mask) -> Iterator[Row]:
    """Yield the mean effect relative to the documents left out, and the probability of a larger effect than theirs."""
    effect = effects(scores)
    compared = group | left_out
    group_effects = effect[group]
    left_out_effects = effect[left_out]
    p_value = randomisation_p_values(effect[compared][:, None], group[compared][:, None], DRAWS, config.seed)[0]
    less = effect - SMALLEST / scores.tokens * group
    reduced = randomisation_p_values(less[compared][:, None], group[compared][:, None], DRAWS, config.seed)[0]
    p_values = {"p_value": float(p_value), "reduced_p": float(max(p_value, reduced))}
    yield estimate_row(EFFECT, statistics.difference(group_effects, left_out_effects), null=0.0, **p_values)
    area = interval_of_area(
        area_under_curve(group_effects, left_out_effects), len(group_effects), len(left_out_effects)
    )
    yield estimate_row(WON, area, null=0.5)


def group_estimates(config: DocumentTest, scores: DocumentScores) -> Iterator[Row]:
    """Yield the loss of a group of documents, and the share that is reproduced, by the model and by its base."""
    for model, by in enumerate((BY_TRAINED, BY_CONTROL)):
        yield estimate_row(LOSS, statistics.mean(-scores.log_p[model]), by=by)
    for way, reproduced in document_reproductions(config, scores).items():
        is_continued = ~np.isnan(reproduced[0])
        if not is_continued.any():
            continue
        sides = [(reproduced[model][is_continued] > 0).tolist() for model in range(2)]
        for by, flags in zip((BY_TRAINED, BY_CONTROL), sides, strict=True):
            yield estimate_row(SHARE, statistics.proportion(sum(flags), len(flags)), way=way, by=by)
        yield estimate_row(BEYOND, statistics.paired_difference(*sides), way=way, null=0.0)


def estimate_row(metric: str, estimate: Estimate, **about: str | float) -> Row:
    return {"metric": metric, "estimate": estimate.value, "low": estimate.low, "high": estimate.high, **about}


@task(version=1, name="text.insertion_control")
def insertion_control(config: PairedModel, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - independent of the models
    """Test whether a bag of words distinguishes inserted documents from those left out (CONTROL)."""
    documents = read_insertions(config)
    ordered = np.argsort(documents.repetitions == 0, kind="stable")  # inserted documents first
    words = bag_of_words([documents.texts[row] for row in ordered])
    inserted = np.count_nonzero(documents.repetitions)
    area, p_value = blind_areas(words, int(inserted), seeds.derive(config.seed, "blind control"))
    limits = {"low": area.low, "high": area.high}
    return make_table(CONTROL, auc=area.value, **limits, p_value=p_value, documents=len(ordered))


CONTROL = pa.schema(
    [
        ("auc", pa.float64()),  # of a bag-of-words classifier
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("p_value", pa.float64()),  # of the null hypothesis that the insertions are random
        ("documents", pa.int64()),
    ]
)


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the number of documents that are found, with the smallest adjusted p-value."""
    tested = []
    for document in tables.rows(INSERTIONS):
        if document["p_value"] is not None:
            tested.append(document)
    if tested:
        count = sum(document["found"] for document in tested)
        smallest = min(document["q_value"] for document in tested)
        yield row(FOUND, {"level": about.level}, alone(float(count), len(tested)), "document", 0.0, smallest)
        yield tied_row(tested[0]["tied"], len(tested), "document")


def estimate_rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield how many repetition counts have an effect, and the estimates."""
    estimates = tables.rows(INSERTION_ESTIMATES)
    tested = [
        estimate for estimate in estimates if estimate["metric"] == EFFECT and estimate["repetitions"] is not None
    ]
    for metric, column in ((SHOWN, "p_value"), (MEMORISED, "reduced_p")) if tested else ():
        adjusted = [min(1.0, len(tested) * estimate[column]) for estimate in tested]
        detected_count = alone(float(sum(p_value <= about.level for p_value in adjusted)), len(tested))
        yield row(metric, {"level": about.level}, detected_count, "number of repetitions", 0.0, min(adjusted))
    for estimate in estimates:
        setting = {}
        for name in ("repetitions", "way", "by"):
            if estimate[name] is not None:
                setting[name] = estimate[name]
        limits = Estimate(estimate["estimate"], estimate["low"], estimate["high"], estimate["documents"])
        yield row(estimate["metric"], setting, limits, "document", estimate["null"], estimate["p_value"])


def _control_rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the level is not used
    for control in tables.rows(CONTROL):
        area = Estimate(control["auc"], control["low"], control["high"], control["documents"])
        yield row(BLIND, {}, area, "document", 0.5, control["p_value"])


MEASURE = Measure("insertions", INSERTIONS, plan, rows)
ESTIMATED = Measure("insertion_estimates", INSERTION_ESTIMATES, plan_estimates, estimate_rows)
CONTROLLED = Measure("insertion_control", CONTROL, plan_control, _control_rows)
