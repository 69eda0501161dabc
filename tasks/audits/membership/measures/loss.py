"""Does the loss of one model distinguish members from non-members, and could they be distinguished without the model?

The score of a record is log p of its label, the negative loss (Yeom et al. 2018). `loss_scores` holds it for each
record, with the scores of the blind control (`tasks.external.split_audit`). `loss_roc` is the curve of this one model:
the share of members above each threshold, with exact 95 % intervals over members, by the share of non-members above it.

A record's exposure is the share of non-members with at least its score,

    exposure(i) = (1 + #(non-members that score at least as high)) / (1 + #(non-members))

It orders the members: records that are easy to predict have a high score in every model, which reference models take
into account (`measures.calibrated`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from tasks.audits.membership.config import About, Membership
from tasks.audits.membership.loss_config import LossAttack
from tasks.audits.membership.loss_scores import score_job
from tasks.audits.membership.measures.attacks import AUC, KINDS
from tasks.contract.job import Function, Inputs, Job, NoSettings, task
from tasks.contract.learning import accuracy_row
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, interval_columns, interval_fields, row
from tasks.contract.ties import tied_row
from tasks.external.split_audit import SCORES, evaluate
from tasks.numerics import statistics
from tasks.numerics.exact_test import Array, Mask
from tasks.numerics.ranks import share_tied

LOSS = "loss"  # the attack, as in `attacks`
BLIND = "AUC without the model"
GIVEN = "model"
MOST_POINTS = 400  # thresholds of the curve
ROC = pa.schema(
    [
        ("false_positive", pa.float64()),  # share of the non-members above the threshold
        *interval_fields("true_positive"),  # share of the members above it, exact 95 % interval over members
        ("members", pa.int64()),
    ]
)


def _plan(measure: Function | None, config: Membership, trainings: tuple[Job, ...]) -> Job | tuple[()]:  # noqa: ARG001
    """Plan a measure of the scores, or the scores themselves (None)."""
    if not isinstance(config.question, LossAttack):
        return ()
    scores = score_job(config)
    return scores if measure is None else Job(measure, NoSettings(), (scores,))


def split_scores(scores: pa.Table) -> tuple[Array, Array]:
    """Return the scores of the members and of the non-members."""
    is_member = np.asarray(scores["member"])
    log_p = scores["log_p"].to_numpy()
    return log_p[is_member], log_p[~is_member]


@task(version=1, name="membership.loss_roc")
def roc(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Compute the curve of the loss attack (ROC)."""
    (scores,) = inputs
    return curve_of(*split_scores(scores))


def curve_of(members: Array, nonmembers: Array) -> pa.Table:
    """Return the curve of scores (ROC), at thresholds that are scores of non-members."""
    ordered = np.sort(nonmembers)[::-1]
    kept = np.unique(np.geomspace(1, len(ordered), MOST_POINTS).astype(np.int64)) - 1
    tables = []
    for place in kept:
        threshold = ordered[place]
        hits = statistics.exact_proportion(int((members > threshold).sum()), len(members))
        above = float((nonmembers > threshold).mean())
        tables.append(
            make_table(ROC, false_positive=above, **interval_columns("true_positive", hits), members=len(members))
        )
    return pa.concat_tables(tables)


def exposures(scores: pa.Table) -> Array:
    """Return the exposure of each record, (records,), in the order of SCORES. Small values are exposed."""
    return exposures_of(scores["log_p"].to_numpy(), np.asarray(scores["member"]))


def exposures_of(scores: Array, is_member: Mask) -> Array:
    """Return each record's share of non-members with at least its score, (records,)."""
    ordered = np.sort(scores[~is_member])
    at_least = len(ordered) - np.searchsorted(ordered, scores, side="left")
    shares: Array = (1 + at_least) / (1 + len(ordered))
    return shares


def _rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001
    """Yield the attack's area and rates, the blind control, the ties and the accuracy on both sets."""
    scores = tables.one(SCORES)
    if scores is None or not scores.num_rows:
        return
    audit = evaluate(scores)
    counts = {"members": audit.members, "non-members": audit.nonmembers}
    yield row(AUC, {"attack": LOSS}, audit.auc, "record", 0.5)
    for rate in audit.rates:
        setting = {"attack": LOSS, "nominal": f"{100 * rate.nominal:g} %"}
        yield row(KINDS["TPR"], setting, rate.true_positive, "record", rate.nominal)
        yield row(KINDS["FPR"], setting, rate.false_positive, "record", rate.nominal)
    yield row(BLIND, counts, audit.blind_auc, "record", 0.5, audit.blind_p)
    log_p = scores["log_p"].to_numpy()
    yield tied_row(float(share_tied(log_p)), len(log_p), "record", of=GIVEN)
    if scores["correct"].null_count:  # a table of losses
        return
    is_member = np.asarray(scores["member"])
    for name, rows in (("members", is_member), ("non-members", ~is_member)):
        labels = scores["label"].to_numpy()[rows]
        right = statistics.proportion(int(scores["correct"].to_numpy()[rows].sum()), len(labels))
        chance = float(np.bincount(labels).max() / len(labels))
        yield accuracy_row(right, name, chance, "record", model_name=GIVEN)


MEASURES = (
    Measure("loss_scores", SCORES, partial(_plan, None), _rows),
    Measure("loss_roc", ROC, partial(_plan, roc)),
)
