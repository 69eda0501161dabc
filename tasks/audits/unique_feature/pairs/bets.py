"""Bets on the ranks of the pairs, in plan order, with their product after each pair.

Each canary carries a different feature, drawn from the family in which it is ranked (`canary_verdicts`), so that the
rank is exact given the results of the earlier pairs. Because a rank detects effects of any size, the effect is first
reduced by the smallest relevant one; the product of the bets on unreduced effects is stored as `detected`.
`tasks.numerics.betting` defines the bet and its error. The run ends at the first pair whose product reaches 1 / level.
The summary row contains the largest product. Its p-value, the inverse of the product, is valid for any number of looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.measures.family import family_jobs
from tasks.audits.unique_feature.pairs.canary_verdicts import verdict_row
from tasks.audits.unique_feature.population import OTHERS, family_pairs
from tasks.audits.unique_feature.questions import Pairs
from tasks.audits.unique_feature.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, alone, row
from tasks.datasets.features import family
from tasks.numerics import betting

BETS = "largest evidence of ranks"
DETECTED = "largest evidence of ranks, of effects of any size"
LEVEL = "level"  # key of the level in a setting

EVIDENCE = pa.schema(
    [
        ("pair", pa.int32()),  # number in plan order, from 1
        ("canary", pa.int64()),
        ("rank", pa.int32()),  # of the feature, with its effect reduced by the smallest relevant one; 1 is first
        ("members", pa.int32()),  # size of the family, including the feature
        ("bet", pa.float64()),
        ("evidence", pa.float64()),  # product of the bets so far
        ("level", pa.float64()),
        ("decided", pa.bool_()),  # whether the evidence reaches 1 / level
        ("detected", pa.float64()),  # product of the bets on the ranks of unreduced effects
    ]
)


@dataclass(frozen=True)
class StoppingLevel:
    level: float


@task(version=2, name="unique_feature.evidence")
def evidence(config: StoppingLevel, inputs: Inputs) -> pa.Table:
    """Compute the bet on every pair (EVIDENCE). The inputs are the families of the pairs, in plan order."""
    ranked = [verdict_row(pair.training[0], [pair]) for pair in family_pairs(inputs)]
    sizes = [verdict["members"] for verdict in ranked]
    reduced = [round(verdict["reduced_p"] * verdict["members"]) for verdict in ranked]
    detected = betting.evidence([verdict["rank"] for verdict in ranked], sizes)
    values = []
    for number in range(1, len(reduced) + 1):
        values.append(float(betting.evidence(reduced[:number], sizes[:number])[-1]))
    return make_table(
        EVIDENCE,
        pair=range(1, len(ranked) + 1),
        canary=[verdict["canary"] for verdict in ranked],
        rank=reduced,
        members=sizes,
        bet=[betting.bet(rank, size) for rank, size in zip(reduced, sizes, strict=True)],
        evidence=values,
        level=config.level,
        decided=[betting.is_decided(value, config.level) for value in values],
        detected=detected,
    )


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    question = design.question
    if not isinstance(question, Pairs) or not question.stopping_level:
        return ()
    # Fails now, not after all training runs.
    family(design.asked_feature, design.family, design.seed, trainings.shape[:2])
    return (Job(evidence, StoppingLevel(question.stopping_level), family_jobs(design, trainings)),)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    pairs = tables.rows(EVIDENCE)
    if pairs:
        setting = {LEVEL: pairs[0]["level"], OTHERS: min(pair["members"] for pair in pairs) - 1}
        for metric, column in ((BETS, "evidence"), (DETECTED, "detected")):
            largest = max(pair[column] for pair in pairs)
            yield row(metric, setting, alone(largest, len(pairs)), "pair of trainings", 1.0, min(1.0, 1 / largest))


MEASURE = Measure("evidence", EVIDENCE, plan, rows)
