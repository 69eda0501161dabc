"""Has a target forgotten D_Q? The test of exchangeability, the share of D_Q that it may hold, and the answer.

    p = chance that a model that never saw D_Q is as much surer of it than of the control set
    share = share of D_Q that models of a known share would have to hold for the target's effect

with the limits of the share, each of 95 % on its side. `decision` says by which rule the answer follows, and how often
it is wrong; `exchangeability` and `held_share` how the numbers are computed. Several models of one
target answer together: their scores are averaged image by image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.forgetting.confidence_matrix import Array, ConfidenceMatrix, confidence_matrix
from tasks.audits.forgetting.config import About, Forgetting
from tasks.audits.forgetting.decision import DecisionScore, TargetEvidence, decide, holm_adjustment, score_decision
from tasks.audits.forgetting.exchangeability import PValues, effect, p_values, scores, unit_scores
from tasks.audits.forgetting.held_share import (
    UNKNOWN,
    LikenessCheck,
    ShareCurve,
    agreement,
    calibration_agreements,
    count_disagreements,
    likeness_check,
    share_curve,
)
from tasks.audits.forgetting.measures import query_confidences
from tasks.audits.forgetting.target import NamedTarget
from tasks.audits.forgetting.trainings import Kind, ModelId, Trainings, realised_share
from tasks.contract.job import ADDED_LATER, Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.contract.summaries import Row, column_estimate, interval_columns, interval_fields, row
from tasks.external.confidences import round_confidences
from tasks.numerics import seeds, statistics
from tasks.numerics.statistics import Estimate

# One row per target that a model answers for.
DECISIONS = pa.schema(
    [
        ("target", pa.int32()),
        ("name", pa.string()),
        ("source", pa.string()),  # training, model, outputs
        ("query", pa.float64()),  # shares trained on; null where they are not known
        ("calibration", pa.float64()),
        ("outside", pa.float64()),
        ("models", pa.int32()),  # replicates of the target
        # How much surer of D_Q, in standard deviations of chance; null without a control set. Its 95 % interval is over
        # trainings; null where no two show how these vary.
        *interval_fields("effect"),
        ("p", pa.float64()),  # of the test of exchangeability
        ("p_adjusted", pa.float64()),  # over the targets (Holm)
        ("p_other", pa.float64()),  # of the test on its other side: surer of the control set
        # Of D_Q held; null where it is not known. Each limit is of 95 % on its side; the upper is 1 beyond the largest
        # known share.
        *interval_fields("share"),
        ("accuracy", pa.float64()),  # on the control set; null where a table does not say it
        ("accuracy_calibration", pa.float64()),  # of the calibration models
        ("accuracy_p", pa.float64()),  # of a difference
        ("agreement", pa.float64()),  # with the calibration models on the control set
        ("agreement_calibration", pa.float64()),
        ("agreement_p", pa.float64()),
        ("repeats", pa.int32()),  # pictures that were handed out twice
        ("disagreeing", pa.int32()),  # of these with two answers
        ("decision", pa.string()),  # forgotten, not forgotten, not judged, undecided
        ("reason", pa.string()),  # why not judged or undecided, else null
        ("right", pa.string()),  # right, undecided, wrong; null where not known
        ("images", pa.int64()),  # of D_Q
        ("controls", pa.int64()),
        ("units", pa.int64()),  # of both: groups of images that were drawn together
    ]
)
HELD = "share of D_Q held"
SURER, LESS = "surer of D_Q than of control", "surer of control than of D_Q"  # the metrics with the p-values
CHECKS = ("accuracy", "agreement")
REPEATED = "repeated pictures with two answers"
FINE = 1.5e-6  # a last place: six decimals and more
METRIC_BY_SCORE: Mapping[DecisionScore, str] = {
    "right": "targets decided rightly",
    "undecided": "targets undecided",
    "wrong": "targets decided wrongly",
}


@dataclass(frozen=True)
class Decisions(Ranged):
    """The targets by their numbers, the known shares of the partial models by theirs, and the limits of the rule."""

    targets: tuple[NamedTarget, ...]
    partial: tuple[float, ...] = ()
    negligible: Annotated[float, Share(zero=False, one=False)] = 0.1
    permutations: Annotated[int, AtLeast(1)] = 9999
    seed: Annotated[int, AtLeast(0)] = 0
    calibration_share: Annotated[float, Share(zero=False)] = field(default=1.0, metadata={ADDED_LATER: True})


ModelGroup = tuple[Kind, int]  # what a model stands for, and the number of its target or share


class TargetEffect(NamedTuple):
    """What the models of one target say together: the mean of their effects, and the test's p-value on each side."""

    effect: float
    p: PValues


class SingleAudit(NamedTuple):
    """A model of a known share, audited alone."""

    share: float
    effect: float
    p: float
    high: float  # upper limit of the share


@dataclass(frozen=True, eq=False)
class ModelEffects:
    """All models' effects, computed once.

    Where a target's numbers are rounded, to the last place `printed`, so are those of the models that it is held
    against: calibration models and models of known shares, each in the target's place. How difficult an image is, is
    still read off all digits of the calibration models. Places up to FINE are taken for all digits, since what so fine
    a rounding makes equal hangs on a temperature more than on the rounding.
    """

    config: Decisions
    matrix: ConfidenceMatrix
    printed: float = 0.0

    @cached_property
    def calibration(self) -> list[ModelId]:
        return self.matrix.replicates("calibration")

    @cached_property
    def calibration_confidences(self) -> Array:
        """The confidences of the calibration models (models, n)."""
        return self.matrix.confidences(self.calibration)

    @property
    def is_controlled(self) -> bool:
        return bool(self.matrix.is_control.any() and len(self.calibration))

    def printed_confidences(self, models: Sequence[ModelId]) -> Array:
        """The confidences of models in a target's place (models, n)."""
        return round_confidences(self.matrix.confidences(models), self.printed if self.printed > FINE else 0.0)

    def unit_scores(self, of_images: Array) -> tuple[Array, NDArray[np.bool_]]:
        return unit_scores(of_images, self.matrix.groups, self.matrix.is_control)

    def scores(self, models: Sequence[ModelId]) -> list[Array]:
        """The images' scores of each of these models, (n,)."""
        return [scores(of, self.calibration_confidences) for of in self.printed_confidences(models)]

    @cached_property
    def null_scores(self) -> list[Array]:
        """The images' scores of each calibration model, compared with the others; none of a single one."""
        if len(self.calibration_confidences) < 2:
            return []
        return [
            scores(of, np.delete(self.calibration_confidences, at, axis=0))
            for at, of in enumerate(self.printed_confidences(self.calibration))
        ]

    @cached_property
    def null_effects(self) -> list[float]:
        """The effect of each calibration model, compared with the others."""
        return [effect(*self.unit_scores(of_images)) for of_images in self.null_scores]

    @cached_property
    def known_shares(self) -> dict[ModelGroup, float]:
        """The share of each partial training and of each target of that kind."""
        shares: dict[ModelGroup, float] = {("partial", number): of for number, of in enumerate(self.config.partial)}
        drawn_alone = len(np.unique(self.matrix.groups)) == len(self.matrix.groups)
        for number, target in enumerate(self.config.targets):
            # Of groups, such as patients, the share that was drawn need not be the one that was asked for.
            if target.is_beside_all and target.query and (drawn_alone or target.query == 1):
                shares["target", number] = target.query
        return shares

    @cached_property
    def known_effects(self) -> dict[ModelGroup, list[float]]:
        """The effects of their models."""
        replicates = {who: self.matrix.replicates(*who) for who in self.known_shares}
        return {
            who: [effect(*self.unit_scores(of)) for of in self.scores(models)] for who, models in replicates.items()
        }

    def curve(self, without: ModelGroup) -> ShareCurve | None:
        """The effect over the share from all models of known shares but those of this target, or this null model."""
        null = [of for at, of in enumerate(self.null_effects) if without != ("calibration", at)]
        effects: dict[float, list[float]] = {0.0: null}
        for who, found in self.known_effects.items():
            if who != without:
                effects.setdefault(self.known_shares[who], []).extend(found)
        return share_curve(effects, self.config.calibration_share)

    def single_audits(self) -> Iterator[SingleAudit]:
        """Each model of a known share, audited alone; of share 0 the calibration models, each beside the others."""
        for at, of_images in enumerate(self.null_scores):
            yield self._audit_single(0.0, ("calibration", at), at, of_images)
        for who, of in self.known_shares.items():
            for at, of_images in enumerate(self.scores(self.matrix.replicates(*who))):
                yield self._audit_single(of, who, at, of_images)

    def _audit_single(self, share: float, who: ModelGroup, at: int, of_images: Array) -> SingleAudit:
        units = self.unit_scores(of_images)
        found, curve = effect(*units), self.curve(who)
        high = 1.0 if curve is None else curve.estimate_share(found, 1).high
        chance = seeds.generator(self.config.seed, "permutations", *who, at)
        p = p_values(*units, self.config.permutations, chance).surer
        return SingleAudit(share, found, p, 1.0 if high is None else high)

    def test_target(self, number: int, models: Sequence[ModelId]) -> TargetEffect:
        """The effect of a target's models, and the test of exchangeability of their mean scores."""
        of_images = self.scores(models)
        chance = seeds.generator(self.config.seed, "permutations", number)
        p = p_values(*self.unit_scores(np.mean(of_images, axis=0)), self.config.permutations, chance)
        return TargetEffect(float(np.mean([effect(*self.unit_scores(of)) for of in of_images])), p)

    def likeness_checks(self, models: Sequence[ModelId]) -> tuple[LikenessCheck, LikenessCheck]:
        """Accuracy and agreement on the control set, beside those of calibration models."""
        there = self.matrix.is_control
        drawn = self.config.calibration_share
        accuracy = likeness_check(self.accuracies(models), self.accuracies(self.calibration), drawn)
        known = self.calibration_confidences[:, there]
        said = [agreement(of[there], known) for of in self.printed_confidences(models)]
        expected = calibration_agreements(known, self.printed_confidences(self.calibration)[:, there])
        return accuracy, likeness_check([value for value in said if value is not None], expected, drawn)

    def accuracies(self, models: Sequence[ModelId]) -> list[float] | None:
        """Of each model on the control set; None where one does not say which classes are more probable."""
        right = [self.matrix.models[model].right for model in models]
        said = [float(of[self.matrix.is_control].mean()) for of in right if of is not None]
        return said if len(said) == len(right) else None


@task(version=3, name="forgetting.decisions", gathers=True)
def decisions(config: Decisions, inputs: Inputs) -> pa.Table:
    """What is decided of each target (DECISIONS), by its number, from tables of CONFIDENCES.

    A target no model of which is there has no row.
    """
    matrix = confidence_matrix(inputs)
    there = {number: models for number in range(len(config.targets)) if (models := matrix.replicates("target", number))}
    places = {number: max(matrix.models[model].printed for model in models) for number, models in there.items()}
    found = {printed: ModelEffects(config, matrix, printed) for printed in set(places.values())}
    by_number = {number: found[printed] for number, printed in places.items()}
    tested = {number: of.test_target(number, there[number]) for number, of in by_number.items() if of.is_controlled}
    p = dict(zip(tested, holm_adjustment([of.p.surer for of in tested.values()]), strict=True))
    rows = [
        target_row(by_number[number], number, models, tested.get(number), p.get(number))
        for number, models in there.items()
    ]
    return pa.Table.from_pylist(rows, DECISIONS)


def target_row(
    found: ModelEffects, number: int, models: Sequence[ModelId], tested: TargetEffect | None, p_adjusted: float | None
) -> dict[str, Any]:
    target, matrix = found.config.targets[number], found.matrix
    effects, held, accuracy, agreed = Estimate(None, None, None, len(models)), None, UNKNOWN, UNKNOWN
    if tested is not None:
        value, curve = tested.effect, found.curve(("target", number))
        reach = None if curve is None else curve.interval_half_width(len(models))
        low, high = (None, None) if reach is None else (value - reach, value + reach)
        effects = Estimate(value, low, high, len(models))
        held = None if curve is None else curve.estimate_share(value, len(models))
        accuracy, agreed = found.likeness_checks(models)
    said = [matrix.models[model] for model in models]
    twice = [count_disagreements(of.confidence, of.again, of.printed) for of in said]
    disagree, repeats = (sum(counts) for counts in zip(*twice, strict=True))
    other = None if tested is None else tested.p.less_sure
    negligible = found.config.negligible
    evidence = TargetEvidence(len(models), p_adjusted, held, accuracy, agreed, negligible, disagree, repeats, other)
    decision = decide(found.config, evidence)
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
        "p_other": other,
        **interval_columns("share", held or Estimate(None, None, None, 0)),
        "accuracy": accuracy.value,
        "accuracy_calibration": accuracy.expected,
        "accuracy_p": accuracy.p,
        "agreement": agreed.value,
        "agreement_calibration": agreed.expected,
        "agreement_p": agreed.p,
        "repeats": repeats,
        "disagreeing": disagree,
        "decision": decision.answer,
        "reason": decision.reason,
        "right": score_decision(decision.answer, target.held, negligible),
        "images": matrix.images,
        "controls": int(matrix.is_control.sum()),
        "units": len(np.unique(matrix.groups)),
    }


def plan(config: Forgetting, trainings: Trainings) -> Job | tuple[()]:
    asked = query_confidences.plan(config, trainings)
    return Job(decisions, decisions_config(config, trainings), asked) if asked else ()


def decisions_config(config: Forgetting, trainings: Trainings) -> Decisions:
    """How targets are decided on, here and in the measure of power."""
    seed = seeds.derive(config.seed, "decisions")
    partial = tuple(realised_share(config, share) for share in config.partial_shares)
    return Decisions(trainings.targets, partial, config.negligible, config.permutations, seed, config.calibration_share)


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """The share of each target, its effect with the test, its likeness on the control set, and how many are right.

    A target that nothing is known of, since no model of it answered, has a row without a value.
    """
    table = tables.one(DECISIONS)
    if table is None:
        return
    judged = table.to_pylist()
    yield from (share_row(target) for target in judged)
    answered = {target["name"] for target in judged}
    yield from (unanswered_row(target.name) for target in about.targets if target.name not in answered)
    for of in (side_rows, likeness_rows):
        for target in judged:
            yield from of(target)
    known = [target["right"] for target in judged if target["right"] is not None]
    if known:
        for answer, metric in METRIC_BY_SCORE.items():
            yield row(metric, {}, statistics.proportion(known.count(answer), len(known)), "target")


def control_metric(check: str) -> str:
    return f"{check} on the control set"


def share_row(target: Row) -> Row:
    held = column_estimate(target, "share", target["models"])
    return row(HELD, {"target": target["name"]}, held, "training", 0.0)


def unanswered_row(name: str) -> Row:
    """The same of a target that nothing is known of, since no model of it answered."""
    return row(HELD, {"target": name}, Estimate(None, None, None, 0), "training", 0.0)


def side_rows(target: Row) -> Iterator[Row]:
    """The effect with the p-value of either side of the test; nothing without a control set."""
    setting = {"target": target["name"]}
    surer = column_estimate(target, "effect", target["models"])
    if surer.value is not None:
        yield row(SURER, setting, surer, "training", 0.0, p_value=target["p_adjusted"])
        low, high = (None if end is None else -end for end in (surer.high, surer.low))
        less = Estimate(-surer.value, low, high, surer.n)
        yield row(LESS, setting, less, "training", 0.0, p_value=target["p_other"])


def likeness_rows(target: Row) -> Iterator[Row]:
    """How like the calibration models the target is on the control set; nothing without one."""
    if target["effect"] is None:
        return
    setting = {"target": target["name"]}
    for check in CHECKS:
        value, expected, p = (target[f"{check}{of}"] for of in ("", "_calibration", "_p"))
        found = Estimate(value, None, None, 0 if value is None else target["models"])
        yield row(control_metric(check), setting, found, "training", expected, p_value=p)
    if target["repeats"]:
        differ = statistics.proportion(target["disagreeing"], target["repeats"])
        yield row(REPEATED, setting, differ, "picture", 0.0)


MEASURE = Measure("decisions", DECISIONS, plan, rows)
