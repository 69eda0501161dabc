"""The effect of a regulariser on memory: the scores of the regularised network minus those of the plain one.

The table compares the mean of M over the canaries with M > 0, as Table 3 does with Table 2, and the effects of the
canary. Interval and two-tailed p-value are Welch's, over training runs: the two networks have different canaries, as
published, so the two samples are independent.

Source. Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks", Tables 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.pairs.canary_scores import scores_job
from tasks.audits.unique_feature.pairs.units import Units, column, units
from tasks.audits.unique_feature.trainings import Trainings
from tasks.contract.job import Inputs, Job, NoSettings, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, row
from tasks.numerics.statistics import difference, mean, welch_two_sided

REGULARISED = pa.schema(
    [
        ("score", pa.string()),
        ("regularised", pa.float64()),  # mean over the regularised network's units
        ("plain", pa.float64()),  # mean over the units of the same network without its regularisers
        ("difference", pa.float64()),
        ("low", pa.float64()),  # 95 % interval of the difference
        ("high", pa.float64()),
        ("n", pa.int64()),  # number of units of both networks
        ("unit", pa.string()),
        ("p_value", pa.float64()),  # two-tailed
    ]
)

SETTINGS = {"M_w effect": {"images": "probe"}}


@task(version=1, name="unique_feature.regularised")
def regularisation(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Compare two tables of canary scores (REGULARISED): the regularised network's and the plain network's."""
    first, plain = (units(table.to_pylist()) for table in inputs)
    return pa.Table.from_pylist(list(comparison_rows(first, plain)), REGULARISED)


def comparison_rows(setting: Units, plain: Units) -> Iterator[Row]:
    """Yield a row for each score."""
    positive = []
    for network in (setting, plain):
        positive.append([m for m in column(network.rows, "m") if m > 0])
    yield _comparison_row("M where positive", positive, setting.model)
    for score, name in (("M effect", "m_effect"), ("M_w effect", "m_w_probe_effect")):
        yield _comparison_row(score, [column(network.rows, name) for network in (setting, plain)], setting.pair)


def _comparison_row(score: str, samples: list[list[float]], unit: str) -> Row:
    first, plain = samples
    less = difference(first, plain)
    return {
        "score": score,
        "regularised": mean(first).value,
        "plain": mean(plain).value,
        "difference": less.value,
        "low": less.low,
        "high": less.high,
        "n": less.n,
        "unit": unit,
        "p_value": welch_two_sided(first, plain).p_value,
    }


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if trainings.plain is None or not design.asks_for("scores"):
        return ()
    return (Job(regularisation, NoSettings(), (scores_job(design, trainings), scores_job(design, trainings.plain))),)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    for score in tables.rows(REGULARISED):
        less = Estimate(score["difference"], score["low"], score["high"], score["n"])
        setting = SETTINGS.get(score["score"], {})
        yield row(f"{score['score']}, less plain", setting, less, score["unit"], 0.0, score["p_value"])


MEASURE = Measure("regularised", REGULARISED, plan, rows)
