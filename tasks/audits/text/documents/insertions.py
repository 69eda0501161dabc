"""Which documents does a model know that were inserted into its training data, beside a base without them?

    effect(i) = log p of document i by the model - by its base                                    in nats a token

How often each document was inserted, 0 among others, was drawn by chance. So documents are exchangeable, unless
insertions have an effect: those that were left out are the control, whatever the two models are, and a base that is
worse at all texts alike shows nothing. Two exact tests, both one-sided:

- of the documents that were inserted r times: the mean effect, compared with that of all ways, or DRAWS of them, in
  which as many could have been drawn among them and those that were left out. p is adjusted for the number of numbers
  r (Bonferroni), and the documents of r are told from the others where it is at most `level`.
- of one document: its rank by the effect among those that were left out. q is p adjusted for the number of documents
  (Benjamini & Hochberg 1995), and one is found where it is at most `level`. Ranks against the same control depend on
  one another in the way that this adjustment allows: Bates et al. 2023, "Testing for outliers with conformal p-values".

How documents come out is asked as of other `documents`: by the model, and by its base as the twin. A pair of models is
one draw of everything else, so that intervals are over documents alone. The suite of such pairs is that of Wei et al.
2025, "Hubble" (arXiv 2510.19811), whose insertions are repeated 0, 1, 4, 16, 64 or 256 times.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tasks.audits.text.blind_control import BLIND, bag_of_words
from tasks.audits.text.config import About, Text
from tasks.audits.text.continuations import BEYOND, GREEDY, NEAR, SHARE, TOLD, TWIN, Array, Mask
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

SHOWN, MEMORISED = "repetitions found", "repetitions memorised"
INSERTIONS = pa.schema(
    [
        ("row", pa.int64()),  # of the document among the texts
        ("repetitions", pa.int64()),  # 0 of one that was left out
        ("tokens", pa.int64()),
        ("effect", pa.float64()),  # in nats a token
        ("p_value", pa.float64()),  # null, as what follows, of one that was left out
        ("q_value", pa.float64()),
        ("found", pa.bool_()),
        ("greedy", pa.float64()),  # 1 where the model writes it, else 0; null, as what follows, of a short document
        ("greedy_twin", pa.float64()),  # the same of its base
        ("near", pa.float64()),
        ("near_twin", pa.float64()),
        ("log_p_end", pa.float64()),  # log p_z by the model, in nats
        ("log_p_end_twin", pa.float64()),
        ("tied", pa.float64()),  # share of pairs of documents with one effect: the same in each row
    ]
)
# reduced_p: with effects that are smaller by the smallest one that matters
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
    return Job(insertion_control, trainings[0].config) if isinstance(config.question, Insertions) else ()


def effects(scores: DocumentScores) -> Array:
    """By how much the model finds each document likelier than its base does, in nats a token, (documents,)."""
    difference: Array = scores.log_p[0] - scores.log_p[1]
    return difference


def control_p_values(effect: Array, left_out: Array) -> Array:
    """The rank of each effect among those of the documents that were left out, itself among them, as a share."""
    larger = len(left_out) - np.searchsorted(np.sort(left_out), effect, side="left")
    p_values: Array = (1 + larger) / (1 + len(left_out))
    return p_values


@task(version=2, name="text.insertions")
def insertions(config: DocumentTest, inputs: Inputs) -> pa.Table:
    """Each document's effect with its p-value, and whether it is reproduced (INSERTIONS)."""
    scores = stack_scores(inputs)
    effect, inserted = effects(scores), scores.repetitions > 0
    p_values = np.where(inserted, control_p_values(effect, effect[~inserted]), np.nan)
    q_values = false_discovery_control(p_values)
    ways = document_reproductions(config, scores)
    columns = {}
    for name, values in (("greedy", ways[GREEDY]), ("near", ways[NEAR]), ("log_p_end", scores.log_p_end)):
        columns[name] = nan_as_null(values[0])
        columns[f"{name}_twin"] = nan_as_null(values[1])
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


@task(version=2, name="text.insertion_estimates")
def insertion_estimates(config: DocumentTest, inputs: Inputs) -> pa.Table:
    """What the documents show together: those of equal repetitions, and all that were inserted (ESTIMATES)."""
    scores, rows = stack_scores(inputs), list[Row]()
    left_out = scores.repetitions == 0
    groups: list[tuple[int | None, Mask]] = [(None, ~left_out)]
    groups += [(int(times), scores.repetitions == times) for times in np.unique(scores.repetitions)]
    for times, some in groups:
        made = [*comparisons(config, scores, some, left_out)] if times != 0 else []
        made += group_estimates(config, scores.select(some))
        about = {"repetitions": times, "models": 2, "documents": int(some.sum())}
        rows += (about | each for each in made)
    return pa.Table.from_pylist(rows, INSERTION_ESTIMATES)


def comparisons(config: DocumentTest, scores: DocumentScores, some: Mask, left_out: Mask) -> Iterator[Row]:
    """The effect of some documents beside those left out, with its exact p-value, and how often it is higher."""
    effect, both = effects(scores), some | left_out
    one, other = effect[some], effect[left_out]
    p_value = randomisation_p_values(effect[both][:, None], some[both][:, None], DRAWS, config.seed)[0]
    less = effect - SMALLEST / scores.tokens * some
    reduced = randomisation_p_values(less[both][:, None], some[both][:, None], DRAWS, config.seed)[0]
    p_values = {"p_value": float(p_value), "reduced_p": float(max(p_value, reduced))}
    yield estimate_row(EFFECT, statistics.difference(one, other), null=0.0, **p_values)
    area = interval_of_area(area_under_curve(one, other), len(one), len(other))
    yield estimate_row(WON, area, null=0.5)


def group_estimates(config: DocumentTest, scores: DocumentScores) -> Iterator[Row]:
    """The loss of some documents, and how many are reproduced, by the model and by its base."""
    for model, by in enumerate((TOLD, TWIN)):
        yield estimate_row(LOSS, statistics.mean(-scores.log_p[model]), by=by)
    for way, said in document_reproductions(config, scores).items():
        asked = ~np.isnan(said[0])
        if not asked.any():
            continue
        sides = [(said[model][asked] > 0).tolist() for model in range(2)]
        for by, its in zip((TOLD, TWIN), sides, strict=True):
            yield estimate_row(SHARE, statistics.proportion(sum(its), len(its)), way=way, by=by)
        yield estimate_row(BEYOND, statistics.paired_difference(*sides), way=way, null=0.0)


def estimate_row(metric: str, estimate: Estimate, **about: str | float) -> Row:
    return {"metric": metric, "estimate": estimate.value, "low": estimate.low, "high": estimate.high, **about}


@task(version=1, name="text.insertion_control")
def insertion_control(config: PairedModel, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - it never sees a model
    """How well a bag of words tells the documents that were inserted from those that were not (CONTROL)."""
    asked = read_insertions(config)
    ordered = np.argsort(asked.repetitions == 0, kind="stable")  # those that were inserted come first
    words, inserted = bag_of_words([asked.texts[row] for row in ordered]), np.count_nonzero(asked.repetitions)
    area, p_value = blind_areas(words, int(inserted), seeds.derive(config.seed, "blind control"))
    limits = {"low": area.low, "high": area.high}
    return make_table(CONTROL, auc=area.value, **limits, p_value=p_value, documents=len(ordered))


CONTROL = pa.schema(
    [
        ("auc", pa.float64()),  # of a bag of words
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("p_value", pa.float64()),  # that it was drawn which documents were inserted, as far as the control sees
        ("documents", pa.int64()),
    ]
)


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """How many documents are found, with the p-value that any is known."""
    tested = [each for each in tables.rows(INSERTIONS) if each["p_value"] is not None]
    if tested:
        count, smallest = sum(each["found"] for each in tested), min(each["q_value"] for each in tested)
        yield row(FOUND, {"level": about.level}, alone(float(count), len(tested)), "document", 0.0, smallest)
        yield tied_row(tested[0]["tied"], len(tested), "document")


def estimate_rows(tables: Tables, about: About) -> Iterator[Row]:
    """Of how many numbers of repetitions the documents are told from those left out, and the estimates."""
    estimates = tables.rows(INSERTION_ESTIMATES)
    tested = [each for each in estimates if each["metric"] == EFFECT and each["repetitions"] is not None]
    for metric, column in ((SHOWN, "p_value"), (MEMORISED, "reduced_p")) if tested else ():
        adjusted = [min(1.0, len(tested) * each[column]) for each in tested]
        shown = alone(float(sum(p_value <= about.level for p_value in adjusted)), len(tested))
        yield row(metric, {"level": about.level}, shown, "number of repetitions", 0.0, min(adjusted))
    for each in estimates:
        named = {name: each[name] for name in ("repetitions", "way", "by") if each[name] is not None}
        limits = Estimate(each["estimate"], each["low"], each["high"], each["documents"])
        yield row(each["metric"], named, limits, "document", each["null"], each["p_value"])


def _control_rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - an interval knows no level
    for each in tables.rows(CONTROL):
        area = Estimate(each["auc"], each["low"], each["high"], each["documents"])
        yield row(BLIND, {}, area, "document", 0.5, each["p_value"])


MEASURE = Measure("insertions", INSERTIONS, plan, rows)
ESTIMATED = Measure("insertion_estimates", INSERTION_ESTIMATES, plan_estimates, estimate_rows)
CONTROLLED = Measure("insertion_control", CONTROL, plan_control, _control_rows)
