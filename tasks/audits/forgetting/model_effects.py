"""Effects of all models of an audit, with the share curve, the tests and the likeness checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.audits.forgetting.confidence_matrix import Array, ConfidenceMatrix
from tasks.audits.forgetting.exchangeability import PValues, effect, log_odds, p_values, scores, unit_scores
from tasks.audits.forgetting.held_share import (
    LikenessCheck,
    ShareCurve,
    agreement,
    calibration_agreements,
    likeness_check,
    share_curve,
)
from tasks.audits.forgetting.target import NamedTarget
from tasks.audits.forgetting.trainings import Kind, ModelId
from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.external.confidences import round_confidences
from tasks.numerics import seeds
from tasks.numerics.ranks import share_tied

FINE = 1.5e-6  # resolution of six decimals


@dataclass(frozen=True)
class Decisions(Ranged):
    """Targets, the shares of the partial models by index, and the settings of the decision rule."""

    targets: tuple[NamedTarget, ...]
    partial: tuple[float, ...] = ()
    negligible: Annotated[float, Share(zero=False, one=False)] = 0.1
    permutations: Annotated[int, AtLeast(1)] = 9999
    seed: Annotated[int, AtLeast(0)] = 0
    calibration_share: Annotated[float, Share(zero=False)] = 1.0

    @property
    def has_unbound_tables(self) -> bool:
        """Whether tables may be targets. A table that is bound to its model needs no recognition trial."""
        return any(target.source == "outputs" for target in self.targets)


ModelGroup = tuple[Kind, int]  # kind, and the index of the target or share


class TargetEffect(NamedTuple):
    """Mean effect of a target's models, and the test's p-values on both sides."""

    effect: float
    p: PValues


class SingleAudit(NamedTuple):
    """Result of auditing one model of a known share on its own."""

    share: float
    effect: float
    p: float
    high: float  # upper limit of the share


@dataclass(frozen=True, eq=False)
class ModelEffects:
    """Effects of all models, computed once.

    If a target's numbers are rounded, `printed` is the unit of their last place. The numbers of the models it is
    compared with (calibration models and models of known shares, each in the role of the target) are then rounded in
    the same way. The difficulty of images is computed from the unrounded calibration models. Resolutions up to FINE
    count as unrounded, since ties at this resolution depend more on a temperature than on the rounding.
    """

    config: Decisions
    matrix: ConfidenceMatrix
    printed: float = 0.0

    @cached_property
    def calibration(self) -> list[ModelId]:
        return self.matrix.replicates("calibration")

    @cached_property
    def calibration_confidences(self) -> Array:
        """Confidences of the calibration models (models, n)."""
        return self.matrix.confidences(self.calibration)

    @property
    def is_controlled(self) -> bool:
        return bool(self.matrix.is_control.any() and len(self.calibration))

    def printed_confidences(self, models: Sequence[ModelId]) -> Array:
        """Return the confidences of models in the role of the target, (models, n)."""
        return round_confidences(self.matrix.confidences(models), self.printed if self.printed > FINE else 0.0)

    def unit_scores(self, image_scores: Array) -> tuple[Array, NDArray[np.bool_]]:
        return unit_scores(image_scores, self.matrix.groups, self.matrix.is_control)

    def scores(self, models: Sequence[ModelId]) -> list[Array]:
        """Return each model's scores of the images, (n,)."""
        result = []
        for confidence in self.printed_confidences(models):
            result.append(scores(confidence, self.calibration_confidences))
        return result

    @cached_property
    def null_scores(self) -> list[Array]:
        """Image scores of each calibration model compared with the others. Empty for a single model."""
        if len(self.calibration_confidences) < 2:
            return []
        result = []
        for index, confidence in enumerate(self.printed_confidences(self.calibration)):
            result.append(scores(confidence, np.delete(self.calibration_confidences, index, axis=0)))
        return result

    @cached_property
    def null_effects(self) -> list[float]:
        """Effect of each calibration model compared with the others."""
        return [effect(*self.unit_scores(image_scores)) for image_scores in self.null_scores]

    @cached_property
    def known_shares(self) -> dict[ModelGroup, float]:
        """Known share of each group of partial models, and of each target trained on all of D_C and a share."""
        shares: dict[ModelGroup, float] = {
            ("partial", number): share for number, share in enumerate(self.config.partial)
        }
        drawn_alone = len(np.unique(self.matrix.groups)) == len(self.matrix.groups)
        for number, target in enumerate(self.config.targets):
            # Groups of images, such as patients, are drawn whole, so the drawn share may differ from the configured
            # one.
            if target.is_beside_all and target.query and (drawn_alone or target.query == 1):
                shares["target", number] = target.query
        return shares

    @cached_property
    def known_effects(self) -> dict[ModelGroup, list[float]]:
        """Effects of the models of known shares."""
        replicates = {group: self.matrix.replicates(*group) for group in self.known_shares}
        effects = {}
        for group, models in replicates.items():
            effects[group] = [effect(*self.unit_scores(image_scores)) for image_scores in self.scores(models)]
        return effects

    def curve(self, without: ModelGroup) -> ShareCurve | None:
        """Fit the effect over the share to all models of known shares except this target or this calibration model."""
        null = []
        for index, null_effect in enumerate(self.null_effects):
            if without != ("calibration", index):
                null.append(null_effect)
        effects: dict[float, list[float]] = {0.0: null}
        for group, group_effects in self.known_effects.items():
            if group != without:
                effects.setdefault(self.known_shares[group], []).extend(group_effects)
        return share_curve(effects, self.config.calibration_share)

    def single_audits(self) -> Iterator[SingleAudit]:
        """Audit each model of a known share alone. At share 0, each calibration model is compared with the others."""
        for index, image_scores in enumerate(self.null_scores):
            yield self._audit_single(0.0, ("calibration", index), index, image_scores)
        for group, share in self.known_shares.items():
            for index, image_scores in enumerate(self.scores(self.matrix.replicates(*group))):
                yield self._audit_single(share, group, index, image_scores)

    def _audit_single(self, share: float, group: ModelGroup, index: int, image_scores: Array) -> SingleAudit:
        units = self.unit_scores(image_scores)
        single_effect = effect(*units)
        curve = self.curve(group)
        if curve is None:
            high = None
        else:
            high = curve.estimate_share(single_effect, 1).high
        chance = seeds.generator(self.config.seed, "permutations", *group, index)
        p = p_values(*units, self.config.permutations, chance).surer
        return SingleAudit(share, single_effect, p, 1.0 if high is None else high)

    def test_target(self, number: int, models: Sequence[ModelId]) -> TargetEffect:
        """Compute the effect of a target's models, and the randomisation test of their mean scores."""
        model_scores = self.scores(models)
        chance = seeds.generator(self.config.seed, "permutations", number)
        p = p_values(*self.unit_scores(np.mean(model_scores, axis=0)), self.config.permutations, chance)
        return TargetEffect(
            float(np.mean([effect(*self.unit_scores(image_scores)) for image_scores in model_scores])), p
        )

    def likeness_checks(self, models: Sequence[ModelId]) -> tuple[LikenessCheck, LikenessCheck]:
        """Compare accuracy and agreement on the control set with the calibration models."""
        is_control = self.matrix.is_control
        drawn_share = self.config.calibration_share
        accuracy = likeness_check(self.accuracies(models), self.accuracies(self.calibration), drawn_share)
        calibration = self.calibration_confidences[:, is_control]
        agreements = []
        for confidence in self.printed_confidences(models):
            agreements.append(agreement(confidence[is_control], calibration))
        expected = calibration_agreements(calibration, self.printed_confidences(self.calibration)[:, is_control])
        return accuracy, likeness_check([value for value in agreements if value is not None], expected, drawn_share)

    def tied_share(self, models: Sequence[ModelId]) -> float:
        """Return the share of same-class image pairs with equal confidences, the largest over the models.

        Only the half of the images that is harder for the calibration models counts. Easy images have little weight in
        the test, and float32 rounds many of their confidences to 1.
        """
        easiness = log_odds(self.calibration_confidences).mean(axis=0)
        is_hard = easiness <= np.median(easiness)
        classes = []
        for label in np.unique(self.matrix.labels):
            classes.append(is_hard & (self.matrix.labels == label))
        return max(_equal_share(confidence, classes) for confidence in self.matrix.confidences(models))

    def accuracies(self, models: Sequence[ModelId]) -> list[float] | None:
        """Return each model's accuracy on the control set. None if it is unknown for any of them."""
        right = [self.matrix.models[model].right for model in models]
        accuracies = []
        for correct in right:
            if correct is not None:
                accuracies.append(float(correct[self.matrix.is_control].mean()))
        return accuracies if len(accuracies) == len(right) else None


def _equal_share(confidences: Array, classes: Sequence[NDArray[np.bool_]]) -> float:
    """Return the share of equal pairs among the pairs of the same class. 0 without pairs."""
    equal = pairs = 0.0
    for class_mask in classes:
        count = int(class_mask.sum())
        if count > 1:
            pairs_of_class = count * (count - 1) / 2
            equal += pairs_of_class * float(share_tied(confidences[class_mask]))
            pairs += pairs_of_class
    return equal / pairs if pairs else 0.0
