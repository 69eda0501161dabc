"""Which documents does a model know because it was trained on them, and how much of them does it reproduce?

    effect(i) = mean log p of document i by models trained on it - mean by all other models      in nats per token

p is the p-value of the exact one-sided test in `tasks.numerics.exact_test`: every document is in the training data of
exactly half of the models, drawn uniformly from all halves. q is p adjusted for the number of documents (Benjamini &
Hochberg 1995); a document is found if q is at most `level`.

A model reproduces a document if, given the first `prefix` tokens of the document, it continues with the next `suffix`
tokens (`tasks.audits.text.continuations` defines the criteria). Each share is compared with that of the control models,
which were not trained on the document and reproduce it by fluency alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.text.config import About, Text
from tasks.audits.text.continuations import (
    BEYOND,
    BY_CONTROL,
    BY_TRAINED,
    GREEDY,
    NEAR,
    SHARE,
    Array,
    Mask,
    reproductions,
)
from tasks.audits.text.question import Documents, Insertions
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.power import SMALLEST
from tasks.contract.schemas import make_table, nan_as_null
from tasks.contract.summaries import Estimate, Row, alone, row
from tasks.contract.ties import tied_row
from tasks.numerics import seeds, statistics
from tasks.numerics.exact_test import randomisation_p_values, reduced_p_values
from tasks.numerics.ranks import check_finite, false_discovery_control, share_tied

DRAWS = 9999  # number of model sets that are drawn if there are too many to enumerate
FOUND = "documents found"
MEMORISED = "documents memorised"
EFFECT = "effect in nats a token"
WON = "pairs won"
LOSS = "loss in nats a token"
DOCUMENTS = pa.schema(
    [
        ("row", pa.int64()),  # index of the document among the texts
        ("repetitions", pa.int64()),
        ("tokens", pa.int64()),
        ("members", pa.int64()),  # number of models trained on it
        ("effect", pa.float64()),  # in nats per token; null, like the columns below, if all models are on one side
        ("pairs_won", pa.float64()),  # share of model pairs in which the trained model assigns the higher probability
        ("p_value", pa.float64()),
        ("q_value", pa.float64()),
        ("found", pa.bool_()),
        (
            "greedy",
            pa.float64(),
        ),  # share of trained models that reproduce it; null, like those below, if it is too short
        ("greedy_control", pa.float64()),  # share of control models that reproduce it
        ("near_verbatim", pa.float64()),
        ("near_verbatim_control", pa.float64()),
        ("log_p_end", pa.float64()),  # mean log p_z by trained models, in nats
        ("log_p_end_control", pa.float64()),
        ("memorised", pa.bool_()),  # whether it is still found with its effect reduced by the smallest relevant one
        ("memorised_q", pa.float64()),
        ("tied", pa.float64()),  # share of model pairs with equal scores
    ]
)
ESTIMATES = pa.schema(
    [
        ("metric", pa.string()),
        ("repetitions", pa.int64()),  # repetition count of the documents; null for all documents
        ("way", pa.string()),  # criterion for reproduction; null for other metrics
        ("by", pa.string()),  # trained model or control model; null for comparisons of the two
        ("estimate", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("models", pa.int64()),
        ("documents", pa.int64()),
        ("null", pa.float64()),
    ]
)


@dataclass(frozen=True)
class DocumentTest:
    """The settings of the test, and the criteria for a reproduction."""

    level: float
    seed: int
    suffix: int
    attempts: tuple[int, ...]
    probability: float
    edit_distance: float


@dataclass(frozen=True)
class DocumentScores:
    """Scores of all models.

    `member` and the fields below it have shape (models, documents), the others (documents,). `log_p` is in nats per
    token. NaN marks documents that were not continued.
    """

    rows: NDArray[np.int64]
    repetitions: NDArray[np.int64]
    tokens: NDArray[np.int64]
    member: Mask
    log_p: Array
    log_p_end: Array
    mismatches: Array
    edit_distance: Array

    def select(self, columns: Mask) -> DocumentScores:
        return DocumentScores(
            self.rows[columns],
            self.repetitions[columns],
            self.tokens[columns],
            self.member[:, columns],
            self.log_p[:, columns],
            self.log_p_end[:, columns],
            self.mismatches[:, columns],
            self.edit_distance[:, columns],
        )


def document_test(question: Documents | Insertions, config: Text) -> DocumentTest:
    seed = seeds.derive(config.seed, "exact test")
    return DocumentTest(
        config.level, seed, question.suffix, question.attempts, question.probability, question.edit_distance
    )


def plan(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    if not isinstance(config.question, Documents):
        return ()
    return Job(documents, document_test(config.question, config), trainings)


def plan_estimates(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    if not isinstance(config.question, Documents):
        return ()
    return Job(estimates, document_test(config.question, config), trainings)


def stack_scores(tables: Sequence[pa.Table]) -> DocumentScores:
    first = tables[0]
    tokens = first["tokens"].to_numpy()
    member, log_p, end, mismatches, distance = (
        np.stack([table[name].to_numpy() for table in tables])
        for name in ("member", "log_p", "log_p_end", "mismatches", "edit_distance")
    )
    check_finite(log_p, "log p of the documents")
    numbers = (values.astype(np.float64) for values in (end, mismatches, distance))
    return DocumentScores(
        first["row"].to_numpy(), first["repetitions"].to_numpy(), tokens, member, log_p / tokens, *numbers
    )


def document_reproductions(config: DocumentTest, scores: DocumentScores) -> Mapping[str, Array]:
    """Return whether each model reproduces each document, by criterion.

    Arrays have shape (models, documents) and contain 1, 0 or NaN.
    """
    return reproductions(config, scores.log_p_end, scores.mismatches, scores.edit_distance, config.suffix)


@task(version=4, name="text.documents", gathers=True)
def documents(config: DocumentTest, inputs: Inputs) -> pa.Table:
    """Compute the effect and p-value of each document, and the share of models that reproduce it (DOCUMENTS)."""
    scores = stack_scores(inputs)
    p_values = randomisation_p_values(scores.log_p, scores.member, DRAWS, config.seed, config.level)
    q_values = false_discovery_control(p_values)
    less = SMALLEST / scores.tokens  # nats of the whole document, per token
    memorised_q = false_discovery_control(
        reduced_p_values(scores.log_p, scores.member, p_values, less, DRAWS, config.seed, config.level)
    )
    ways = document_reproductions(config, scores)
    columns = {}
    for name, values in (("greedy", ways[GREEDY]), ("near_verbatim", ways[NEAR]), ("log_p_end", scores.log_p_end)):
        columns[name] = nan_as_null(_side_means(values, scores.member))
        columns[f"{name}_control"] = nan_as_null(_side_means(values, ~scores.member))
    unknown = np.isnan(p_values)
    return make_table(
        DOCUMENTS,
        row=scores.rows,
        repetitions=scores.repetitions,
        tokens=scores.tokens,
        members=scores.member.sum(axis=0),
        effect=nan_as_null(_document_effects(scores)),
        pairs_won=nan_as_null(pairs_won(scores).mean(axis=0)),
        p_value=nan_as_null(p_values),
        q_value=nan_as_null(q_values),
        found=pa.array(q_values <= config.level, mask=unknown),
        **columns,
        memorised=pa.array(memorised_q <= config.level, mask=unknown),
        memorised_q=nan_as_null(memorised_q),
        tied=nan_as_null(share_tied(scores.log_p)),
    )


@task(version=2, name="text.document_estimates", gathers=True)
def estimates(config: DocumentTest, inputs: Inputs) -> pa.Table:
    """Estimate the effects of all documents, and by repetition count (ESTIMATES)."""
    scores = stack_scores(inputs)
    rows = list[Row]()
    groups: list[tuple[int | None, Mask]] = [(None, np.ones(len(scores.rows), dtype=bool))]
    repetition_counts = np.unique(scores.repetitions).tolist()
    groups += [(times, scores.repetitions == times) for times in repetition_counts if len(repetition_counts) > 1]
    for times, group in groups:
        rows += ({"repetitions": times, **estimate} for estimate in group_estimates(config, scores.select(group)))
    return pa.Table.from_pylist(rows, ESTIMATES)


def group_estimates(config: DocumentTest, scores: DocumentScores) -> Iterator[Row]:
    """Yield the estimates for a group of documents, with intervals over models and documents."""
    contributions = _effect_contributions(scores)
    won = pairs_won(scores)
    yield estimate_row(EFFECT, _crossed_means(contributions), scores, null=0.0)
    yield estimate_row(WON, statistics.within_shares(_crossed_means(won)), scores, null=0.5)
    for by, member in _sides_of(scores).items():
        yield estimate_row(LOSS, _crossed_means(np.where(member, -scores.log_p, np.nan)), scores, by=by)
    for way, reproduced in document_reproductions(config, scores).items():
        if np.isnan(reproduced).all():
            continue
        shares = {}
        for by, member in _sides_of(scores).items():
            side_values = np.where(member, reproduced, np.nan)
            shares[by] = statistics.crossed_proportion(_known_means(side_values, 1), _known_means(side_values, 0))
            yield estimate_row(SHARE, shares[by], scores, way=way, by=by)
        difference = statistics.difference_of_shares(shares[BY_TRAINED], shares[BY_CONTROL])
        yield estimate_row(BEYOND, difference, scores, way=way, null=0.0)


def estimate_row(metric: str, estimate: Estimate, scores: DocumentScores, **about: str | float) -> Row:
    models, documents = scores.member.shape
    limits = {"estimate": estimate.value, "low": estimate.low, "high": estimate.high}
    return {"metric": metric, **limits, "models": models, "documents": documents, **about}


def _sides_of(scores: DocumentScores) -> Mapping[str, Mask]:
    return {BY_TRAINED: scores.member, BY_CONTROL: ~scores.member}


def means(values: Array, axis: int) -> Array:
    """Return the mean along an axis, ignoring NaN. The result is NaN if there are no other values."""
    is_known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        mean: Array = np.where(is_known, values, 0.0).sum(axis) / is_known.sum(axis)
    return mean


def _side_means(values: Array, member: Mask) -> Array:
    """Return the mean of each document over the models of one side, shape (documents,)."""
    return means(np.where(member, values, np.nan), 0)


def _known_means(values: Array, axis: int) -> Array:
    """Return the means along an axis that are not NaN. With few documents, a model may have none on one side."""
    mean = means(values, axis)
    known_means: Array = mean[~np.isnan(mean)]
    return known_means


def _crossed_means(values: Array) -> Estimate:
    return statistics.crossed_mean(_known_means(values, 1), _known_means(values, 0))


def _document_effects(scores: DocumentScores) -> Array:
    """Return the gain in log p under models trained on a document, in nats per token, shape (documents,)."""
    return _side_means(scores.log_p, scores.member) - _side_means(scores.log_p, ~scores.member)


def _effect_contributions(scores: DocumentScores) -> Array:
    """Return the contribution of each model to each effect, shape (models, documents).

    The mean contribution over the models is the effect.
    """
    models = len(scores.member)
    members = scores.member.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(scores.member, models / members, -models / (models - members))
        contributions: Array = weights * (scores.log_p - scores.log_p.mean(axis=0))
    contributions[:, (members == 0) | (members == models)] = np.nan
    return contributions


def pairs_won(scores: DocumentScores) -> Array:
    """Return, for each model, the share of its pairs with models of the other side in which the trained model scores
    higher.

    The shape is (models, documents), with NaN if there is no other side. A tie counts as half.
    """
    log_p = scores.log_p
    member = scores.member
    above = (np.sign(log_p[:, None] - log_p[None]) + 1) / 2  # (models, models, documents): the first above the second
    won = np.where(member[:, None], above, 1 - above)
    return means(np.where(member[:, None] != member[None], won, np.nan), 1)


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the number of documents that are found, with the smallest adjusted p-value."""
    table = tables.one(DOCUMENTS)
    if table is None:
        tested = []
    else:
        tested = [document for document in table.to_pylist() if document["p_value"] is not None]
    if tested:
        count = sum(document["found"] for document in tested)
        smallest = min(document["q_value"] for document in tested)
        yield row(FOUND, {"level": about.level}, alone(float(count), len(tested)), "document", 0.0, smallest)
        memorised = alone(float(sum(document["memorised"] for document in tested)), len(tested))
        smallest = min(document["memorised_q"] for document in tested)
        yield row(MEMORISED, {"level": about.level, "nats": SMALLEST}, memorised, "document", 0.0, smallest)
        yield tied_row(float(np.mean([document["tied"] for document in tested])), len(tested), "document")


def estimate_rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the level is not used
    for estimate in tables.rows(ESTIMATES):
        setting = {}
        for name in ("repetitions", "way", "by"):
            if estimate[name] is not None:
                setting[name] = estimate[name]
        limits = Estimate(estimate["estimate"], estimate["low"], estimate["high"], estimate["models"])
        yield row(estimate["metric"], setting, limits, "training", estimate["null"])


MEASURE = Measure("documents", DOCUMENTS, plan, rows)
ESTIMATED = Measure("document_estimates", ESTIMATES, plan_estimates, estimate_rows)
