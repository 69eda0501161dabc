"""One target beside the query and the calibration models: its rho, and the floor, the KS between query models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.audits.forgetting.confidence_matrix import ConfidenceMatrix
from tasks.audits.forgetting.kolmogorov_smirnov import Score, pairwise_distances
from tasks.audits.forgetting.rho import Ratio, ratio
from tasks.audits.forgetting.trainings import ModelId


@dataclass(frozen=True, eq=False)
class Comparison:
    """rho, and the mean KS between query models (None for a single one)."""

    ratio: Ratio
    floor: float | None


def compare_target(matrix: ConfidenceMatrix, target: Sequence[ModelId], score: Score) -> Comparison:
    """The models of a target, or some of them, beside all query and calibration models there are.

    ValueError without a query model.
    """
    query, calibration, models = matrix.rounded_confidences(
        matrix.replicates("query"), matrix.replicates("calibration"), target
    )
    floor = pairwise_distances(query, score)[~np.eye(len(query), dtype=bool)]
    return Comparison(ratio(query, calibration, models, score), float(floor.mean()) if len(floor) else None)
