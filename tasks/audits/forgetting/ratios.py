"""What the audit says of each target: its rho with the interval, the decision, and what the published rule says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tasks.audits.forgetting.audited import Audited
from tasks.audits.forgetting.comparison import compared
from tasks.audits.forgetting.decision import right
from tasks.audits.forgetting.distance import SCORES, Score
from tasks.audits.forgetting.ratio import Ratio
from tasks.audits.forgetting.said import Said, said
from tasks.audits.forgetting.trainings import Model
from tasks.job import Inputs, task

# One row per target that a model answers for, and score.
RATIOS = pa.schema(
    [
        ("target", pa.int32()),
        ("name", pa.string()),
        ("score", pa.string()),  # of the distances: published, or one-sided, on which the answer rests
        ("source", pa.string()),  # training, model, outputs
        ("query", pa.float64()),  # shares trained on; null where they are not known
        ("calibration", pa.float64()),
        ("outside", pa.float64()),
        ("models", pa.int32()),  # replicates of the target
        ("ks", pa.float64()),  # A, the mean KS to the query models, with its 95 % interval
        ("ks_low", pa.float64()),
        ("ks_high", pa.float64()),
        ("rho", pa.float64()),  # null where it is undefined
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("decision", pa.string()),  # forgotten, not forgotten, undecided
        ("reason", pa.string()),  # why undecided, else null
        ("right", pa.string()),  # right, undecided, wrong; null where not known
        ("rule_forgotten", pa.int32()),  # of the triples, how many the published rule calls forgotten: rho >= 1
        ("rule_triples", pa.int32()),  # triples of a query, calibration and target model that it can be applied to
        ("ks_calibration", pa.float64()),  # B, at the target's resolution, with its 95 % interval
        ("ks_calibration_low", pa.float64()),
        ("ks_calibration_high", pa.float64()),
        ("floor", pa.float64()),  # the mean KS between query models, at the target's resolution
        ("separation", pa.float64()),  # smallest KS(q_i, c_k) - largest KS(q_i, q_j), there too; above 0, or no power
        ("images", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Ratios:
    """The targets by their numbers, the margin of the decision, and how often images are resampled, from `seed`."""

    targets: tuple[Audited, ...]
    margin: float = 0.1
    resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.margin < 1:
            raise ValueError(f"margin is {self.margin}; it must be a number between 0 and 1")
        for name, least in (("resamples", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}")


@task(version=2, name="forgetting.ratios", gathers=True)
def ratios(config: Ratios, inputs: Inputs) -> pa.Table:
    """What is said of each target (RATIOS), by its number, from tables of CONFIDENCES.

    A target no model of which is there has no rows, and without any query model there is none at all.
    """
    answers = said(inputs)
    rows = []
    for number, target in enumerate(config.targets):
        if answers.named("query") and answers.named("target", number):
            rows += [row(config, answers, number, target, score) for score in SCORES]
    return pa.Table.from_pylist(rows, RATIOS)


def row(config: Ratios, answers: Said, number: int, target: Audited, score: Score) -> dict[str, Any]:
    models = answers.named("target", number)
    found = compared(answers, models, score, config.margin, config.resamples, config.seed)
    forgotten, triples = published_rule(found.ratio, answers, models, given=target.source != "training")
    a, b, rho = found.ratio.target, found.ratio.calibration, found.ratio.rho
    return {
        "target": number,
        "name": target.name,
        "score": score,
        "source": target.source,
        "query": target.query,
        "calibration": target.calibration,
        "outside": target.outside,
        "models": len(models),
        "ks": a.value,
        "ks_low": a.low,
        "ks_high": a.high,
        "rho": rho.value,
        "low": rho.low,
        "high": rho.high,
        "decision": found.decision.answer,
        "reason": found.decision.reason,
        "right": right(found.decision.answer, target.remembers),
        "rule_forgotten": forgotten,
        "rule_triples": triples,
        "ks_calibration": b.value,
        "ks_calibration_low": b.low,
        "ks_calibration_high": b.high,
        "floor": found.floor,
        "separation": found.separation,
        "images": answers.images,
    }


def published_rule(found: Ratio, answers: Said, models: Sequence[Model], given: bool) -> tuple[int, int]:
    """Of how many triples (q_r, c_r, t_r) rho >= 1, and of how many there is a rho.

    A triple lacks one where a training is missing or KS(q_r, c_r) is 0. A model that is given is in every triple.
    """
    query = {model.replicate: place for place, model in enumerate(answers.named("query"))}
    calibration = {model.replicate: place for place, model in enumerate(answers.named("calibration"))}
    target = {model.replicate: place for place, model in enumerate(models)}
    rhos = []
    for replicate in query.keys() & calibration.keys():
        if not given and replicate not in target:
            continue
        i, k, j = query[replicate], calibration[replicate], 0 if given else target[replicate]
        if found.to_calibration[i, k]:
            rhos.append(found.to_target[i, j] / found.to_calibration[i, k])
    return sum(rho >= 1 for rho in rhos), len(rhos)
