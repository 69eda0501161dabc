"""Ranks of secrets and identifiers among other candidates of the same format.

    rank = number of candidates, including the secret, whose log p is at least that of the secret
    p = rank / number of candidates
    effect = gain of the secret's log p over the control model minus the mean gain of its references, in nats

The secret and its references are drawn from the same distribution, so p is exact for any model that does not know the
secret. q is p adjusted for the number of secrets (Benjamini & Hochberg 1995); a secret is found if q is at most
`level`. Ranks have no scale, so each secret is ranked again with its log p reduced by SMALLEST nats; it is memorised if
it is still found. In ranks, tied references count as larger; in the share of references that a secret outranks, they
count as half. All p-values are combined by Fisher's method (1925), which is valid because secrets are drawn
independently. Exposure is log2 of the number of candidates minus log2 of the rank, in bits (Carlini et al. 2019,
section 4). The exposure by the control model shows what to expect without memory.

Identifiers in texts are ranked in the same way: whoever generated them drew them like their references, so p is exact
for a model that never read them (`tasks.audits.text.secrets.space`). If the base of the given model is known,
candidates are ranked by the difference in log p, which cancels the general plausibility of a format.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.text.config import About, Text
from tasks.audits.text.continuations import BY_CONTROL, BY_TRAINED
from tasks.audits.text.question import Identifiers, Planted, Secrets
from tasks.audits.text.secrets.space import mean_exposure_of_uniform_ranks
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.power import SMALLEST
from tasks.contract.summaries import Row, alone, row
from tasks.contract.ties import tied_row
from tasks.numerics import statistics
from tasks.numerics.ranks import (
    check_finite,
    exposure,
    false_discovery_control,
    rank_p_value,
    share_below,
    share_tied,
)

Array = NDArray[np.float64]
SECRETS = pa.schema(
    [
        ("pair", pa.int64()),
        ("secret", pa.int64()),  # its 1-based index
        ("repetitions", pa.int64()),  # number of copies in the training data of the trained model
        ("candidates", pa.int64()),  # including the secret
        ("effect", pa.float64()),  # in nats; null if there is no control model, like its exposure
        ("rank", pa.int64()),  # by the trained model
        ("p_value", pa.float64()),
        ("q_value", pa.float64()),
        ("found", pa.bool_()),
        ("exposure", pa.float64()),  # in bits
        ("exposure_control", pa.float64()),  # by the control model
        ("beaten", pa.float64()),  # share of candidates that the secret outranks; ties and the secret count half
        ("tied", pa.float64()),  # share of candidate pairs with equal scores
        ("reduced_p", pa.float64()),  # p-value with log p reduced by the smallest relevant effect
        ("memorised", pa.bool_()),  # whether it is still found with the reduced log p
    ]
)
IDENTIFIERS = pa.schema(
    [
        ("format", pa.string()),
        ("row", pa.int64()),  # index of the text with its first occurrence
        ("occurrences", pa.int64()),  # number of occurrences in all texts
        ("candidates", pa.int64()),  # including the secret
        ("rank", pa.int64()),
        ("p_value", pa.float64()),
        ("q_value", pa.float64()),
        ("found", pa.bool_()),
        ("exposure", pa.float64()),  # in bits
        ("control", pa.float64()),  # p-value of the test of uniform randomness; the same in all rows
        ("beaten", pa.float64()),
        ("tied", pa.float64()),
        ("reduced_p", pa.float64()),
        ("memorised", pa.bool_()),
    ]
)
CONTROL = "blind control of identifiers"
UNEVEN = 0.01  # significance level of the test of uniform randomness
FOUND = "secrets found"
BEATEN = "references beaten"
IDENTIFIERS_FOUND = "identifiers found"
MEMORISED = "memorised by more than a negligible effect"  # counts secrets
REDUCED = "references beaten with a reduced effect"


@dataclass(frozen=True)
class Ranking:
    """The significance level for secrets."""

    level: float


def plan(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    if not isinstance(config.question, Secrets | Planted):
        return ()
    return Job(secrets, Ranking(config.level), trainings)


@task(version=3, name="text.secrets", gathers=True)
def secrets(config: Ranking, inputs: Inputs) -> pa.Table:
    """Rank each secret by its trained model and by its control model (SECRETS).

    A secret without a trained model has no row; a secret without a control model has no effect.
    """
    models: dict[tuple[int, int], dict[bool, Array]] = {}
    times: dict[tuple[int, int], int] = {}
    for table in inputs:
        for secret in table.to_pylist():
            name = secret["pair"], secret["secret"]
            models.setdefault(name, {})[secret["inserted"]] = np.array(secret["log_p"])
            times[name] = secret["repetitions"]
    rows = []
    for name, sides in models.items():
        if True in sides:
            ranked = rank_secret(sides[True], sides.get(False))
            rows.append({"pair": name[0], "secret": name[1], "repetitions": times[name]} | ranked)
    return pa.Table.from_pylist(_adjust_ranks(rows, config.level), SECRETS)


def _adjust_ranks(ranked: Sequence[Row], level: float) -> list[Row]:
    """Add adjusted p-values to the rows, and whether each item is found at this level."""
    q_values = false_discovery_control(np.array([item["p_value"] for item in ranked]))
    reduced = false_discovery_control(np.array([item["reduced_p"] for item in ranked]))
    ranks = []
    for item, q, less in zip(ranked, q_values, reduced, strict=True):
        ranks.append(item | {"q_value": float(q), "found": bool(q <= level), "memorised": bool(less <= level)})
    return ranks


def rank_secret(log_p: Array, control_log_p: Array | None) -> Row:
    """Rank a secret by log p of all candidates, under the trained model and under the control model.

    The secret comes first in both arrays. Raises ValueError if a score is not finite.
    """
    check_finite(log_p, "log p of the candidates of a secret")
    size = len(log_p)
    p_value = rank_p_value(log_p)
    reduced = np.array([log_p[0] - SMALLEST, *log_p[1:]])
    ranked: Row = {"candidates": size, "rank": round(size * p_value), "p_value": p_value, "exposure": exposure(p_value)}
    ranked |= {"beaten": share_below(log_p), "tied": float(share_tied(log_p)), "reduced_p": rank_p_value(reduced)}
    if control_log_p is not None:
        check_finite(control_log_p, "log p of the candidates of a secret by the control model")
        difference = log_p - control_log_p
        effect = float(difference[0] - difference[1:].mean())
        ranked |= {"effect": effect, "exposure_control": exposure(rank_p_value(control_log_p))}
    return ranked


def combine(p_values: Sequence[float]) -> float:
    """Combine independent p-values by Fisher's method, which is conservative for discrete ranks."""
    from scipy import stats

    return float(stats.chi2.sf(-2 * sum(map(math.log, p_values)), 2 * len(p_values)))


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield how many secrets are found and the share of references they outrank, in total and by repetition count."""
    table = tables.one(SECRETS)
    if table is None or not table.num_rows:
        return
    ranked = table.to_pylist()
    yield from _ranked_rows(ranked, about)
    for times in sorted({secret["repetitions"] for secret in ranked}):
        group = [secret for secret in ranked if secret["repetitions"] == times]
        setting = {"repetitions": times}
        yield row("share found", setting, statistics.proportion(_count_found(group), len(group)), "secret", 0.0)
        null = mean_exposure_of_uniform_ranks(group[0]["candidates"])
        for by, column in ((BY_TRAINED, "exposure"), (BY_CONTROL, "exposure_control")):
            bits = statistics.mean(_known_values(group, column))
            yield row("exposure in bits", setting | {"by": by}, bits, "secret", null)
        yield row("effect in nats", setting, statistics.mean(_known_values(group, "effect")), "secret", 0.0)


def _ranked_rows(ranked: Sequence[Row], about: About, unit: str = "secret") -> Iterator[Row]:
    """Yield the number found with the smallest adjusted p-value, and the mean share of references outranked."""
    smallest = min(item["q_value"] for item in ranked)
    metric = FOUND if about.things == "secrets" else IDENTIFIERS_FOUND
    yield row(metric, {"level": about.level}, alone(float(_count_found(ranked)), len(ranked)), unit, 0.0, smallest)
    beaten = statistics.mean([item["beaten"] for item in ranked])
    combined = combine([item["p_value"] for item in ranked])
    yield row(BEATEN, {}, statistics.within_shares(beaten), unit, 0.5, combined)
    count = sum(item["memorised"] for item in ranked)
    size = {"nats": SMALLEST}
    smallest_reduced = float(false_discovery_control([item["reduced_p"] for item in ranked]).min())
    yield row(MEMORISED, size, alone(float(count), len(ranked)), unit, 0.0, smallest_reduced)
    reduced = combine([item["reduced_p"] for item in ranked])
    yield row(REDUCED, size, alone(beaten.value, len(ranked)), unit, 0.5, reduced)
    yield tied_row(float(np.mean([item["tied"] for item in ranked])), len(ranked), unit)


def _known_values(ranked: Sequence[Row], column: str) -> list[float]:
    return [item[column] for item in ranked if item[column] is not None]


def _count_found(ranked: Sequence[Row]) -> int:
    return sum(item["found"] for item in ranked)


def _plan_identifiers(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    if not isinstance(config.question, Identifiers):
        return ()
    if config.question.base is None:
        rank = identifiers
    else:
        rank = identifiers_relative_to_base
    return Job(rank, Ranking(config.level), trainings)


@task(version=2, name="text.identifiers", gathers=True)
def identifiers(config: Ranking, inputs: Inputs) -> pa.Table:
    """Rank each identifier by the given model (IDENTIFIERS)."""
    copied_columns = ("format", "row", "occurrences", "control")
    rows = []
    for table in inputs:
        for identifier in table.to_pylist():
            rows.append(
                {name: identifier[name] for name in copied_columns} | rank_secret(np.array(identifier["log_p"]), None)
            )
    return pa.Table.from_pylist(_adjust_ranks(rows, config.level), IDENTIFIERS)


@task(version=2, name="text.identifiers_relative_to_base")
def identifiers_relative_to_base(config: Ranking, inputs: Inputs) -> pa.Table:
    """Rank each identifier by its log p under the given model minus that under the base (IDENTIFIERS)."""
    model_scores, base_scores = (table["log_p"].to_pylist() for table in inputs)
    differences = []
    for model_log_p, base_log_p in zip(model_scores, base_scores, strict=True):
        differences.append((np.array(model_log_p) - np.array(base_log_p)).tolist())
    column = inputs[0].schema.get_field_index("log_p")
    table: pa.Table = identifiers(config, (inputs[0].set_column(column, "log_p", pa.array(differences)),))
    return table


def _identifier_rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the same rows as for secrets, and the p-value of the blind control."""
    table = tables.one(IDENTIFIERS)
    if table is None or not table.num_rows:
        return
    ranked = table.to_pylist()
    yield from _ranked_rows(ranked, about, "identifier")
    control = ranked[0]["control"]
    yield row(CONTROL, {}, alone(control, len(ranked)), "identifier", p_value=control)


MEASURE = Measure("secrets", SECRETS, plan, rows)
OF_IDENTIFIERS = Measure("identifiers", IDENTIFIERS, _plan_identifiers, _identifier_rows)
