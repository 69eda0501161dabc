"""Which members does the loss of one model reveal, compared with reference models trained on half of all records?

The score of a record is its log-likelihood ratio under the log-odds of the references that were trained on it and of
those that were not. The attack is BaVarIA-n (Brännvall 2026): LiRA online (Carlini et al. 2022, algorithm 1) with means
and variances that are shrunk towards those of all records, the more so the fewer references there are. The examined
model may be more or less confident than the references in general, so its log-odds are first replaced by the mean
log-odds that the references have at the same rank. Only the order of its losses counts. On digits (4 pools, seed 20000,
16 references), this finds 61 of 200 members of a model that was trained like the references, 91 with three times the
epochs and 16 with softened outputs; LiRA with fixed variances and without matching finds 57, 51 and 0.

Null hypothesis: members and non-members are exchangeable, as samples of one source of which the model saw neither. Both
sets have the same role in the references (`reference_models`), so the scores are then exchangeable as well, whatever
the examined model was trained on and however it differs from the references. Hence

    p(i) = (1 + #(non-members that score at least as high)) / (1 + #(non-members))

is an exact p-value of member i, a conformal p-value. It is exact for a member that the model did not see, even if the
model saw the others. Benjamini & Hochberg's procedure controls the false discovery rate of such p-values, because the
scores treat both sets alike (Marandon et al. 2024, "Adaptive novelty detection with false discovery rate guarantee",
theorem 3.3). A member is found if q is at most LEVEL. The smallest p-value is 1 / (1 + #(non-members)), so members can
be found only if #(members) / (LEVEL (1 + #(non-members))) of them score higher than all non-members.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from tasks.audits.membership.attacks import ATTACKS, ListedReferences, ListedSide
from tasks.audits.membership.config import About, Halves, Membership
from tasks.audits.membership.loss_config import LossAttack
from tasks.audits.membership.loss_scores import score_job
from tasks.audits.membership.measures.attacks import AUC, KINDS
from tasks.audits.membership.measures.loss import ROC, curve_of, exposures_of
from tasks.audits.membership.reference_models import REFERENCE, reference_jobs
from tasks.contract.job import Function, Inputs, Job, NoSettings, task
from tasks.contract.learning import accuracy_row
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table, nan_as_null
from tasks.contract.summaries import Row, alone, row
from tasks.external.split_audit import SCORES, interval_of_area, low_rates
from tasks.numerics import statistics
from tasks.numerics.exact_test import Array
from tasks.numerics.ranks import area_under_curve, check_finite, false_discovery_control

LEVEL = Halves.level  # false discovery rate of the members found
ATTACK = "BaVarIA-n"
FOUND_MEMBERS = "members found"
REFERENCE_MODEL = "reference model"
CALIBRATED = pa.schema(
    [
        ("position", pa.int64()),  # as in SCORES, in the same order
        ("member", pa.bool_()),
        ("sets_threshold", pa.bool_()),  # as in SCORES
        ("attack", pa.string()),
        ("references", pa.int64()),
        ("log_odds", pa.float64()),  # of the label, in nats: those of the references at the examined model's rank
        ("inside", pa.float64()),  # mean log-odds by the references that were trained on the record
        ("outside", pa.float64()),  # mean log-odds by the others
        ("right", pa.float64()),  # share of the others that label the record correctly
        ("label", pa.int64()),
        ("score", pa.float64()),
        ("p_value", pa.float64()),  # null for non-members, like the next columns
        ("q_value", pa.float64()),
        ("found", pa.bool_()),
    ]
)


def _plan(curve: Function | None, config: Membership, trainings: tuple[Job, ...]) -> Job | tuple[()]:  # noqa: ARG001
    """Plan a curve of the calibrated scores, or the scores themselves (None)."""
    if not isinstance(config.question, LossAttack) or not config.question.references:
        return ()
    calibrated = Job(calibrate, NoSettings(), (score_job(config), *reference_jobs(config)))
    return calibrated if curve is None else Job(curve, NoSettings(), (calibrated,))


@task(version=2, name="membership.loss_calibrated", gathers=True)
def calibrate(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Compare the model's scores with the references (CALIBRATED).

    Empty if the scores are missing, or if a record lacks references with it or without it. Raises ValueError for NaN.
    """
    scores = next((table for table in inputs if table.schema.equals(SCORES)), None)
    references = [table for table in inputs if table.schema.equals(REFERENCE)]
    if scores is None or not references:
        return CALIBRATED.empty_table()
    phi = np.stack([table["log_odds"].to_numpy() for table in references])
    is_inside = np.stack([np.asarray(table["inside"]) for table in references])
    if not (is_inside.any(axis=0) & (~is_inside).any(axis=0)).all():
        return CALIBRATED.empty_table()
    check_finite(phi, "log-odds of the references")
    correct = np.stack([np.asarray(table["correct"]) for table in references])
    log_odds = match_references(scores["log_p"].to_numpy(), phi)
    inside = ListedSide(np.where(is_inside, phi, np.nan))
    outside = ListedSide(np.where(is_inside, np.nan, phi))
    values = ATTACKS[ATTACK](ListedReferences(log_odds, inside, outside))
    is_member = np.asarray(scores["member"])
    p_values = np.where(is_member, exposures_of(values, is_member), np.nan)
    q_values = false_discovery_control(p_values)
    return make_table(
        CALIBRATED,
        position=scores["position"],
        member=is_member,
        sets_threshold=scores["sets_threshold"],
        attack=ATTACK,
        references=len(phi),
        log_odds=log_odds,
        inside=np.nanmean(inside.phi, axis=0),
        outside=np.nanmean(outside.phi, axis=0),
        right=(correct & ~is_inside).sum(axis=0) / (~is_inside).sum(axis=0),
        label=scores["label"],
        score=values,
        p_value=nan_as_null(p_values),
        q_value=nan_as_null(q_values),
        found=pa.array(q_values <= LEVEL, mask=~is_member),
    )


def match_references(log_p: Array, phi: Array) -> Array:
    """Return the references' mean log-odds at each record's rank among the examined model's log p, (records,).

    `phi` is (references, records). Equal scores have their mean rank, so that the order of the records has no effect.
    """
    from scipy import stats

    at_rank = np.sort(phi, axis=1).mean(axis=0)
    matched: Array = np.interp(stats.rankdata(log_p), np.arange(1, len(log_p) + 1), at_rank)
    return matched


@task(version=1, name="membership.loss_calibrated_roc")
def calibrated_roc(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Compute the curve of the calibrated scores (ROC). Empty without them."""
    (calibrated,) = inputs
    if not calibrated.num_rows:
        return ROC.empty_table()
    return curve_of(*_split(calibrated))


def _split(calibrated: pa.Table) -> tuple[Array, Array]:
    """Return the scores of the members and of the non-members."""
    is_member = np.asarray(calibrated["member"])
    values = calibrated["score"].to_numpy()
    return values[is_member], values[~is_member]


def _rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001
    """Yield the members found, the attack's area and rates, and the accuracy of the references."""
    table = tables.one(CALIBRATED)
    if table is None or not table.num_rows:
        return
    members, nonmembers = _split(table)
    attack = {"attack": table["attack"][0].as_py()}
    setting = {**attack, "references": table["references"][0].as_py()}
    area = interval_of_area(area_under_curve(members, nonmembers), len(members), len(nonmembers))
    yield row(AUC, setting, area, "record", 0.5)
    is_member = np.asarray(table["member"])
    of_members = table.filter(is_member)
    found = int(np.count_nonzero(of_members["found"].to_numpy()))
    smallest = float(of_members["q_value"].to_numpy().min())
    yield row(FOUND_MEMBERS, {"level": LEVEL}, alone(float(found), len(members)), "record", 0.0, smallest)
    sets_threshold = table["sets_threshold"].drop_null().to_numpy()
    for rate in low_rates(members, nonmembers[sets_threshold], nonmembers[~sets_threshold]):
        nominal = {**attack, "nominal": f"{100 * rate.nominal:g} %"}
        yield row(KINDS["TPR"], nominal, rate.true_positive, "record", rate.nominal)
        yield row(KINDS["FPR"], nominal, rate.false_positive, "record", rate.nominal)
    labels = table["label"].to_numpy()
    chance = float(np.bincount(labels).max() / len(labels))
    right = statistics.within_shares(statistics.mean(table["right"].to_numpy()))
    yield accuracy_row(right, "records", chance, "record", model_name=REFERENCE_MODEL)


MEASURES = (
    Measure("loss_calibrated", CALIBRATED, partial(_plan, None), _rows),
    Measure("loss_calibrated_roc", ROC, partial(_plan, calibrated_roc)),
)
