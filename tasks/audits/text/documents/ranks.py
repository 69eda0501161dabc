"""Which documents does a model know once it was trained on them, and how much of them does it write?

    effect(i) = mean log p of document i by models trained on it - mean by those that were not      in nats a token

p is that of the exact test of `tasks.numerics.exact_test`, one-sided: every document is in exactly half of the models,
and which half was drawn evenly. q is p adjusted for the number of documents (Benjamini & Hochberg 1995), and one is
found where q is at most `level`.

A model reproduces a document where it goes on from the document's first tokens, `prefix`, with those that follow,
`suffix` (`tasks.audits.text.continuations` says in which ways). Each way is set beside the twins', the models that were
not trained on the document: they write what fluency alone brings, and the difference is what the training on the
document did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.text.config import About, Text
from tasks.audits.text.continuations import BEYOND, GREEDY, NEAR, SHARE, TOLD, TWIN, Array, Mask, reproductions
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

DRAWS = 9999  # sets of models that are drawn where all of them are too many
FOUND, MEMORISED = "documents found", "documents memorised"
EFFECT, WON, LOSS = "effect in nats a token", "pairs won", "loss in nats a token"
DOCUMENTS = pa.schema(
    [
        ("row", pa.int64()),  # of the document among the texts
        ("repetitions", pa.int64()),
        ("tokens", pa.int64()),
        ("members", pa.int64()),  # models trained on it
        ("effect", pa.float64()),  # in nats a token; null, as what follows, where all models are of one side
        ("pairs_won", pa.float64()),  # share of pairs of models in which the one trained on it finds it likelier
        ("p_value", pa.float64()),
        ("q_value", pa.float64()),
        ("found", pa.bool_()),
        ("greedy", pa.float64()),  # share of the models trained on it; null, as what follows, of a short document
        ("greedy_twin", pa.float64()),  # and of those that were not
        ("near", pa.float64()),
        ("near_twin", pa.float64()),
        ("log_p_end", pa.float64()),  # mean of log p_z by models trained on it, in nats
        ("log_p_end_twin", pa.float64()),
        ("memorised", pa.bool_()),  # found with an effect that is smaller by the smallest one that matters
        ("memorised_q", pa.float64()),
        ("tied", pa.float64()),  # share of pairs of models with one score
    ]
)
ESTIMATES = pa.schema(
    [
        ("metric", pa.string()),
        ("repetitions", pa.int64()),  # of the documents that it is of; null: of all
        ("way", pa.string()),  # in which a document is reproduced; null where it is not about that
        ("by", pa.string()),  # told or twin; null of what compares both
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
    """How documents are tested, and which of them count as reproduced."""

    level: float
    seed: int
    suffix: int
    attempts: tuple[int, ...]
    likely: float
    near: float


@dataclass(frozen=True)
class DocumentScores:
    """What the models say of each document; `member` and what follows are (models, documents), the others (documents,).

    `log_p` is in nats a token. NaN stands for what was not asked of a document.
    """

    rows: NDArray[np.int64]
    repetitions: NDArray[np.int64]
    tokens: NDArray[np.int64]
    member: Mask
    log_p: Array
    log_p_end: Array
    wrong: Array
    distance: Array

    def select(self, some: Mask) -> DocumentScores:
        return DocumentScores(
            self.rows[some],
            self.repetitions[some],
            self.tokens[some],
            self.member[:, some],
            self.log_p[:, some],
            self.log_p_end[:, some],
            self.wrong[:, some],
            self.distance[:, some],
        )


def document_test(question: Documents | Insertions, config: Text) -> DocumentTest:
    seed = seeds.derive(config.seed, "exact test")
    return DocumentTest(config.level, seed, question.suffix, question.attempts, question.likely, question.near)


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
    member, log_p, end, wrong, distance = (
        np.stack([table[name].to_numpy() for table in tables])
        for name in ("member", "log_p", "log_p_end", "wrong", "distance")
    )
    check_finite(log_p, "log p of the documents")
    numbers = (each.astype(np.float64) for each in (end, wrong, distance))
    return DocumentScores(
        first["row"].to_numpy(), first["repetitions"].to_numpy(), tokens, member, log_p / tokens, *numbers
    )


def document_reproductions(config: DocumentTest, scores: DocumentScores) -> Mapping[str, Array]:
    """Whether each model reproduces each document, by the way, (models, documents): 1, 0, or NaN where not asked."""
    return reproductions(config, scores.log_p_end, scores.wrong, scores.distance, config.suffix)


@task(version=2, name="text.documents", gathers=True)
def documents(config: DocumentTest, inputs: Inputs) -> pa.Table:
    """Each document's effect with its p-value, and how often it is reproduced (DOCUMENTS)."""
    scores = stack_scores(inputs)
    p_values = randomisation_p_values(scores.log_p, scores.member, DRAWS, config.seed, config.level)
    q_values = false_discovery_control(p_values)
    less = SMALLEST / scores.tokens  # of the whole document, whose log p is in nats a token
    memorised_q = false_discovery_control(
        reduced_p_values(scores.log_p, scores.member, p_values, less, DRAWS, config.seed, config.level)
    )
    ways = document_reproductions(config, scores)
    columns = {}
    for name, values in (("greedy", ways[GREEDY]), ("near", ways[NEAR]), ("log_p_end", scores.log_p_end)):
        columns[name] = nan_as_null(_side_means(values, scores.member))
        columns[f"{name}_twin"] = nan_as_null(_side_means(values, ~scores.member))
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


@task(version=1, name="text.document_estimates", gathers=True)
def estimates(config: DocumentTest, inputs: Inputs) -> pa.Table:
    """What the documents show together, all of them and those of equal repetitions (ESTIMATES)."""
    scores, rows = stack_scores(inputs), list[Row]()
    groups: list[tuple[int | None, Mask]] = [(None, np.ones(len(scores.rows), dtype=bool))]
    there = np.unique(scores.repetitions).tolist()
    groups += [(times, scores.repetitions == times) for times in there if len(there) > 1]
    for times, some in groups:
        rows += ({"repetitions": times, **each} for each in group_estimates(config, scores.select(some)))
    return pa.Table.from_pylist(rows, ESTIMATES)


def group_estimates(config: DocumentTest, scores: DocumentScores) -> Iterator[Row]:
    """The estimates of some documents, over both models and documents."""
    contributions, won = _effect_contributions(scores), pairs_won(scores)
    yield estimate_row(EFFECT, _crossed_means(contributions), scores, null=0.0)
    yield estimate_row(WON, statistics.within_shares(_crossed_means(won)), scores, null=0.5)
    for by, member in _sides_of(scores).items():
        yield estimate_row(LOSS, _crossed_means(np.where(member, -scores.log_p, np.nan)), scores, by=by)
    for way, said in document_reproductions(config, scores).items():
        if np.isnan(said).all():
            continue
        shares = {}
        for by, member in _sides_of(scores).items():
            its = np.where(member, said, np.nan)
            shares[by] = statistics.crossed_proportion(_known_means(its, 1), _known_means(its, 0))
            yield estimate_row(SHARE, shares[by], scores, way=way, by=by)
        beyond = statistics.difference_of_shares(shares[TOLD], shares[TWIN])
        yield estimate_row(BEYOND, beyond, scores, way=way, null=0.0)


def estimate_row(metric: str, estimate: Estimate, scores: DocumentScores, **about: str | float) -> Row:
    models, documents = scores.member.shape
    limits = {"estimate": estimate.value, "low": estimate.low, "high": estimate.high}
    return {"metric": metric, **limits, "models": models, "documents": documents, **about}


def _sides_of(scores: DocumentScores) -> Mapping[str, Mask]:
    return {TOLD: scores.member, TWIN: ~scores.member}


def means(values: Array, axis: int) -> Array:
    """The mean of what is known along an axis; NaN where nothing is."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        mean: Array = np.where(known, values, 0.0).sum(axis) / known.sum(axis)
    return mean


def _side_means(values: Array, member: Mask) -> Array:
    """The mean of each document over the models of one side, (documents,)."""
    return means(np.where(member, values, np.nan), 0)


def _known_means(values: Array, axis: int) -> Array:
    """The same without those of which nothing is known, such as models that have none of a few documents."""
    mean = means(values, axis)
    known: Array = mean[~np.isnan(mean)]
    return known


def _crossed_means(values: Array) -> Estimate:
    return statistics.crossed_mean(_known_means(values, 1), _known_means(values, 0))


def _document_effects(scores: DocumentScores) -> Array:
    """By how much a document is likelier by models that were trained on it, in nats a token, (documents,)."""
    return _side_means(scores.log_p, scores.member) - _side_means(scores.log_p, ~scores.member)


def _effect_contributions(scores: DocumentScores) -> Array:
    """What each model brings to the effect of each document, (models, documents), whose means are the effects."""
    models, members = len(scores.member), scores.member.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(scores.member, models / members, -models / (models - members))
        contributions: Array = weights * (scores.log_p - scores.log_p.mean(axis=0))
    contributions[:, (members == 0) | (members == models)] = np.nan
    return contributions


def pairs_won(scores: DocumentScores) -> Array:
    """The share of a model's pairs with those of the other side that the one trained on the document wins.

    (models, documents); NaN where there is no other side. Equals count half.
    """
    log_p, member = scores.log_p, scores.member
    above = (np.sign(log_p[:, None] - log_p[None]) + 1) / 2  # (models, models, documents): the first above the second
    won = np.where(member[:, None], above, 1 - above)
    return means(np.where(member[:, None] != member[None], won, np.nan), 1)


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """How many documents are found, with the p-value that any has an effect."""
    table = tables.one(DOCUMENTS)
    tested = [] if table is None else [each for each in table.to_pylist() if each["p_value"] is not None]
    if tested:
        count, smallest = sum(each["found"] for each in tested), min(each["q_value"] for each in tested)
        yield row(FOUND, {"level": about.level}, alone(float(count), len(tested)), "document", 0.0, smallest)
        memorised = alone(float(sum(each["memorised"] for each in tested)), len(tested))
        smallest = min(each["memorised_q"] for each in tested)
        yield row(MEMORISED, {"level": about.level, "nats": SMALLEST}, memorised, "document", 0.0, smallest)
        yield tied_row(float(np.mean([each["tied"] for each in tested])), len(tested), "document")


def estimate_rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - an interval knows no level
    """The estimates, whose intervals are over models and documents."""
    for each in tables.rows(ESTIMATES):
        named = {name: each[name] for name in ("repetitions", "way", "by") if each[name] is not None}
        limits = Estimate(each["estimate"], each["low"], each["high"], each["models"])
        yield row(each["metric"], named, limits, "training", each["null"])


MEASURE = Measure("documents", DOCUMENTS, plan, rows)
ESTIMATED = Measure("document_estimates", ESTIMATES, plan_estimates, estimate_rows)
