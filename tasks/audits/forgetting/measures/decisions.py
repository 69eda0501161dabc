"""Has a target forgotten D_Q? The randomisation test, the share of D_Q that the target may hold, and the answer.

    p = chance that a model that never saw D_Q is at least as much more certain about it than about the control set
    share = share of D_Q that models with the target's effect hold

The share has limits at 95 % on each side. `decision` contains the rules and their error rates, `exchangeability` and
`held_share` the formulas. Several models of one target are judged together: their scores are averaged image by image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.audits.forgetting.confidence_matrix import confidence_matrix
from tasks.audits.forgetting.config import About
from tasks.audits.forgetting.data_sets import DataSets
from tasks.audits.forgetting.decision import DecisionScore, decide, holm_adjustment, score_decision
from tasks.audits.forgetting.held_share import UNKNOWN, count_disagreements
from tasks.audits.forgetting.measures import recognition
from tasks.audits.forgetting.model_effects import Decisions, ModelEffects, TargetEffect
from tasks.audits.forgetting.scoring import Scoring
from tasks.audits.forgetting.target_evidence import RecognitionTrial, TargetEvidence
from tasks.audits.forgetting.trainings import ModelId
from tasks.contract.job import Inputs, Job, task
from tasks.contract.learning import accuracy_row
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, column_estimate, interval_columns, interval_fields, row
from tasks.contract.ties import tied_row
from tasks.numerics import statistics

# One row per target with answers.
DECISIONS = pa.schema(
    [
        ("target", pa.int32()),
        ("name", pa.string()),
        ("source", pa.string()),  # training, model, outputs
        ("query", pa.float64()),  # shares in training; null if unknown
        ("calibration", pa.float64()),
        ("outside", pa.float64()),
        ("models", pa.int32()),  # replicates of the target
        # How much more certain the target is about D_Q, in standard deviations under chance. Null without a control
        # set. The 95 % interval is over trainings; null with fewer than two.
        *interval_fields("effect"),
        ("p", pa.float64()),  # from the randomisation test
        ("p_adjusted", pa.float64()),  # adjusted over the targets (Holm)
        ("p_other", pa.float64()),  # other side: more certain about the control set
        # Share of D_Q held, null if unknown. Each limit holds at 95 % on its side; the upper one is 1 beyond the
        # largest known share.
        *interval_fields("share"),
        ("accuracy", pa.float64()),  # on the control set; null if a table does not allow it
        ("accuracy_calibration", pa.float64()),  # mean over the calibration models
        ("accuracy_p", pa.float64()),  # null hypothesis: equal accuracy
        ("agreement", pa.float64()),  # with the calibration models on the control set
        ("agreement_calibration", pa.float64()),
        ("agreement_p", pa.float64()),
        ("repeats", pa.int32()),  # images sent twice
        ("disagreeing", pa.int32()),  # repeated images with two answers
        ("tied", pa.float64()),  # share of equal confidences among pairs of hard images of one class
        ("decision", pa.string()),  # forgotten, not forgotten, not assessable, undecided
        ("reason", pa.string()),  # why it is not assessable or undecided, else null
        ("right", pa.string()),  # right, undecided, wrong; null if the training is unknown
        ("images", pa.int64()),  # images in D_Q
        ("controls", pa.int64()),
        ("units", pa.int64()),  # groups of images that were drawn together, in D_Q and control set
    ]
)
HELD = "share of D_Q held"
SURER = "more certain about D_Q"  # with the test's p-value
LESS = "more certain about control"  # with the p-value of the test's other side
CHECKS = ("accuracy", "agreement")
REPEATED = "repeated images with two answers"
METRIC_BY_SCORE: Mapping[DecisionScore, str] = {
    "right": "targets decided rightly",
    "undecided": "targets undecided",
    "wrong": "targets decided wrongly",
}


@task(version=7, name="forgetting.decisions", gathers=True)
def decisions(config: Decisions, inputs: Inputs) -> pa.Table:
    """Judge each target (DECISIONS) from tables of CONFIDENCES, in target order.

    A target without answers has no row. A table of RECOGNITION affects targets that are output tables.
    """
    trial = recognition.read_trial(inputs)
    matrix = confidence_matrix([table for table in inputs if not table.schema.equals(recognition.RECOGNITION)])
    target_models = {
        number: models for number in range(len(config.targets)) if (models := matrix.replicates("target", number))
    }
    resolutions = {
        number: max(matrix.models[model].printed for model in models) for number, models in target_models.items()
    }
    effects_by_resolution = {}
    for printed in set(resolutions.values()):
        effects_by_resolution[printed] = ModelEffects(config, matrix, printed)
    by_number = {}
    for number, printed in resolutions.items():
        by_number[number] = effects_by_resolution[printed]
    tested = {}
    for number, effects in by_number.items():
        if effects.is_controlled:
            tested[number] = effects.test_target(number, target_models[number])
    p = dict(zip(tested, holm_adjustment([effects.p.surer for effects in tested.values()]), strict=True))
    rows = [
        target_row(by_number[number], number, models, tested.get(number), p.get(number), trial)
        for number, models in target_models.items()
    ]
    return pa.Table.from_pylist(rows, DECISIONS)


def target_row(
    model_effects: ModelEffects,
    number: int,
    models: Sequence[ModelId],
    tested: TargetEffect | None,
    p_adjusted: float | None,
    trial: RecognitionTrial | None = None,
) -> dict[str, Any]:
    target = model_effects.config.targets[number]
    matrix = model_effects.matrix
    effects = Estimate(None, None, None, len(models))
    held_share = None
    accuracy = UNKNOWN
    agreement = UNKNOWN
    if tested is not None:
        value = tested.effect
        curve = model_effects.curve(("target", number))
        if curve is None:
            reach = None
        else:
            reach = curve.interval_half_width(len(models))
        if reach is None:
            low, high = (None, None)
        else:
            low, high = (value - reach, value + reach)
        effects = Estimate(value, low, high, len(models))
        if curve is None:
            held_share = None
        else:
            held_share = curve.estimate_share(value, len(models))
        accuracy, agreement = model_effects.likeness_checks(models)
    answers = [matrix.models[model] for model in models]
    twice = []
    for answer in answers:
        twice.append(count_disagreements(answer.confidence, answer.repeat_confidence, answer.printed))
    disagree, repeats = (sum(counts) for counts in zip(*twice, strict=True))
    p_other = None if tested is None else tested.p.less_sure
    negligible = model_effects.config.negligible
    unbound = trial if target.source == "outputs" else None
    tied = None if tested is None else model_effects.tied_share(models)
    evidence = TargetEvidence(
        len(models),
        p_adjusted,
        held_share,
        accuracy,
        agreement,
        negligible,
        disagree,
        repeats,
        p_other,
        unbound,
        None if tied is None else tied_row(tied, matrix.images, "image", target=target.name),
    )
    decision = decide(model_effects.config, evidence)
    return {
        "target": number,
        "name": target.name,
        "source": target.source,
        "query": target.query,
        "calibration": target.calibration,
        "outside": target.outside,
        "models": len(models),
        **interval_columns("effect", effects),
        "p": None if tested is None else tested.p.surer,
        "p_adjusted": evidence.p,
        "p_other": p_other,
        **interval_columns("share", held_share or Estimate(None, None, None, 0)),
        "accuracy": accuracy.value,
        "accuracy_calibration": accuracy.expected,
        "accuracy_p": accuracy.p,
        "agreement": agreement.value,
        "agreement_calibration": agreement.expected,
        "agreement_p": agreement.p,
        "repeats": repeats,
        "disagreeing": disagree,
        "tied": tied,
        "decision": decision.answer,
        "reason": decision.reason,
        "right": score_decision(decision.answer, target.held, negligible),
        "images": matrix.images,
        "controls": int(matrix.is_control.sum()),
        "units": len(np.unique(matrix.groups)),
    }


def plan(data: DataSets, scoring: Scoring) -> Job:
    trial = recognition.plan(data, scoring)
    trials = (trial,) if isinstance(trial, Job) else ()
    return Job(decisions, scoring.decisions, (*scoring.answers, *trials))


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield each target's share, effect with the test, likeness on the control set, and the number of right decisions.

    A target without answers has a row without a value.
    """
    table = tables.one(DECISIONS)
    if table is None:
        return
    judged = table.to_pylist()
    yield from (share_row(target) for target in judged)
    answered = {target["name"] for target in judged}
    yield from (unanswered_row(target.name) for target in about.targets if target.name not in answered)
    for make_rows in (side_rows, likeness_rows, tie_rows):
        for target in judged:
            yield from make_rows(target)
    yield from _given_accuracy_rows(judged, about)
    known_scores = [target["right"] for target in judged if target["right"] is not None]
    if known_scores:
        for answer, metric in METRIC_BY_SCORE.items():
            yield row(metric, {}, statistics.proportion(known_scores.count(answer), len(known_scores)), "target")


def control_metric(check: str) -> str:
    return f"{check} on the control set"


def share_row(target: Row) -> Row:
    held_share = column_estimate(target, "share", target["models"])
    return row(HELD, {"target": target["name"]}, held_share, "training", 0.0)


def unanswered_row(name: str) -> Row:
    """Return the share row of a target without answers."""
    return row(HELD, {"target": name}, Estimate(None, None, None, 0), "training", 0.0)


def side_rows(target: Row) -> Iterator[Row]:
    """Yield the effect with the p-value of each side of the test. Yields nothing without a control set."""
    setting = {"target": target["name"]}
    surer = column_estimate(target, "effect", target["models"])
    if surer.value is not None:
        yield row(SURER, setting, surer, "training", 0.0, p_value=target["p_adjusted"])
        low, high = (None if end is None else -end for end in (surer.high, surer.low))
        less = Estimate(-surer.value, low, high, surer.n)
        yield row(LESS, setting, less, "training", 0.0, p_value=target["p_other"])


def likeness_rows(target: Row) -> Iterator[Row]:
    """Yield the target's likeness to the calibration models on the control set. Yields nothing without one."""
    if target["effect"] is None:
        return
    setting = {"target": target["name"]}
    for check in CHECKS:
        value, expected, p = (target[f"{check}{suffix}"] for suffix in ("", "_calibration", "_p"))
        estimate = Estimate(value, None, None, 0 if value is None else target["models"])
        yield row(control_metric(check), setting, estimate, "training", expected, p_value=p)
    if target["repeats"]:
        differ = statistics.proportion(target["disagreeing"], target["repeats"])
        yield row(REPEATED, setting, differ, "picture", 0.0)


def _given_accuracy_rows(judged: Sequence[Row], about: About) -> Iterator[Row]:
    """Yield each given target's accuracy on the control set, if known. `fits` has the accuracy of trained models.

    The best constant answer is computed on D_Q, since the control set comes from the same source.
    """
    for target in judged:
        if target["source"] != "training" and target["accuracy"] is not None:
            accuracy = statistics.proportion(round(target["accuracy"] * target["controls"]), target["controls"])
            model_name = f"given model {target['name']}"
            yield accuracy_row(accuracy, "the control set", about.chance, "image", model_name=model_name)


def tie_rows(target: Row) -> Iterator[Row]:
    """Yield the target's share of equal confidences. Yields nothing without a test."""
    if target["tied"] is not None:
        yield tied_row(target["tied"], target["images"], "image", target=target["name"])


MEASURE = Measure("decisions", DECISIONS, plan, rows)
