"""How little of the query set in training is found: detections of single models, by the share that they trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.audits.forgetting.decision import Forgot
from tasks.statistics import Estimate, proportion


@dataclass(frozen=True)
class Detections:
    """Of the models of one share, how many are found not to have forgotten, each audited alone."""

    models: int
    detected: int

    @property
    def power(self) -> Estimate:
        """The share of models found, with its Wilson interval."""
        return proportion(self.detected, self.models)


def detections(answers: Sequence[Forgot]) -> Detections:
    """The detections among the decisions on single models."""
    return Detections(len(answers), sum(answer == "not forgotten" for answer in answers))


def smallest_detected(decisions: Mapping[float, Forgot]) -> float | None:
    """The smallest share above 0 from which on, for it and all greater ones, the decision is "not forgotten".

    `decisions` are those on all models of a share together. None where there is no such share.
    """
    found = None
    for share in sorted((share for share in decisions if share > 0), reverse=True):
        if decisions[share] != "not forgotten":
            break
        found = share
    return found
