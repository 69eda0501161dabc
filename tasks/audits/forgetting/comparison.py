"""One target beside the query and the calibration models: its rho, the floor, and the decision on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks import seeds
from tasks.audits.forgetting.confidence_matrix import ConfidenceMatrix
from tasks.audits.forgetting.decision import Decision, decided
from tasks.audits.forgetting.kolmogorov_smirnov import Score, among
from tasks.audits.forgetting.rho import Ratio, ratio
from tasks.audits.forgetting.trainings import Model


@dataclass(frozen=True, eq=False)
class Comparison:
    """rho, the mean KS between query models (None for a single one), and the decision with what it takes for granted.

    `separation` is as in `decision.decided`.
    """

    ratio: Ratio
    floor: float | None
    separation: float | None
    decision: Decision


def compared(
    matrix: ConfidenceMatrix, target: Sequence[Model], score: Score, margin: float, resamples: int, seed: int
) -> Comparison:
    """The models of a target, or some of them, beside all query and calibration models there are.

    All targets meet the same resamples of the images. ValueError without a query model.
    """
    query, calibration, models = matrix.at_one_resolution(
        matrix.replicates("query"), matrix.replicates("calibration"), target
    )
    generator = seeds.generator(seed, "resamples of images")
    quotient = ratio(query, calibration, models, matrix.groups[~matrix.is_control], resamples, generator, score)
    floor = among(query, score)[~np.eye(len(query), dtype=bool)]
    known = len(floor) and len(calibration)
    separation = float(quotient.to_calibration.min() - floor.max()) if known else None
    decision = decided(quotient.rho.value, quotient.rho.low, quotient.rho.high, separation, margin)
    return Comparison(quotient, float(floor.mean()) if len(floor) else None, separation, decision)
