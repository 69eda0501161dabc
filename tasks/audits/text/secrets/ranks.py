"""Which secrets, or identifiers, come out: each one's rank among others of its space, by the model that was told it.

    rank = the number of candidates, the secret among them, whose log p is at least that of the secret
    p = rank / number of candidates
    effect = how much likelier than by its twin the model says the secret, less the same of its references, in nats

The secret was drawn from the space as its references were, so p is exact for models that do not know it, whatever they
are. q is p adjusted for the number of secrets (Benjamini & Hochberg 1995), and a secret is found where q is at most
`level`. A rank has no scale, so each is ranked again with its log p reduced by SMALLEST nats, and is memorised if it is
found then, too. Ties count as larger in ranks, and half in the share of others that a secret beats. All p together are
combined by Fisher's method (1925), which is valid, since secrets are drawn independently. Exposure is log2 of the
number of candidates less log2 of the rank, in bits (Carlini et al. 2019, section 4). The exposure by the twin, which
was not told the secret, shows what it is where nothing is known.

Identifiers, where they stand in the texts, are ranked alike: each was drawn from its space as its references are, by
whoever made it, so p is exact for a model that never read it (`tasks.audits.text.secrets.space`). Where the base that
the model was fine-tuned from is given, candidates are ranked by what the model says more of them than its base: how a
format looks to both falls out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.text.config import About, Text
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
        ("secret", pa.int64()),  # its number, from 1
        ("repetitions", pa.int64()),  # in the training data of the model that was told it
        ("candidates", pa.int64()),  # among which it is ranked, itself among them
        ("effect", pa.float64()),  # in nats; null, like the twin's exposure, where the twin is missing
        ("rank", pa.int64()),  # by the model that was told it
        ("p_value", pa.float64()),
        ("q_value", pa.float64()),
        ("found", pa.bool_()),
        ("exposure", pa.float64()),  # in bits
        ("exposure_twin", pa.float64()),  # by the twin, which was not told it
        ("beaten", pa.float64()),  # share of the candidates below it; ties, and itself, count half
        ("tied", pa.float64()),  # share of pairs of candidates with one score
        ("reduced_p", pa.float64()),  # with its log p reduced by the smallest effect that matters
        ("memorised", pa.bool_()),  # found so, too
    ]
)
IDENTIFIERS = pa.schema(
    [
        ("format", pa.string()),
        ("row", pa.int64()),  # of the text in which it stands first
        ("occurrences", pa.int64()),  # in all texts
        ("candidates", pa.int64()),  # among which it is ranked, itself among them
        ("rank", pa.int64()),
        ("p_value", pa.float64()),
        ("q_value", pa.float64()),
        ("found", pa.bool_()),
        ("exposure", pa.float64()),  # in bits
        ("control", pa.float64()),  # p that those found are drawn evenly: the same in each row
        ("beaten", pa.float64()),
        ("tied", pa.float64()),
        ("reduced_p", pa.float64()),
        ("memorised", pa.bool_()),
    ]
)
CONTROL = "blind control of identifiers"
UNEVEN = 0.01  # p of it, at most, at which identifiers are not drawn evenly
FOUND, BEATEN = "secrets found", "references beaten"
IDENTIFIERS_FOUND = "identifiers found"
MEMORISED = "memorised by more than a negligible effect"  # how many
REDUCED = "references beaten with a reduced effect"


@dataclass(frozen=True)
class Ranking:
    """At which level secrets are found."""

    level: float


def plan(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    if not isinstance(config.question, Secrets | Planted):
        return ()
    return Job(secrets, Ranking(config.level), trainings)


@task(version=2, name="text.secrets", gathers=True)
def secrets(config: Ranking, inputs: Inputs) -> pa.Table:
    """Each secret's rank by the model that was told it, and by its twin (SECRETS).

    A secret whose model is missing has no row, and one whose twin is missing no effect.
    """
    models: dict[tuple[int, int], dict[bool, Array]] = {}
    times: dict[tuple[int, int], int] = {}
    for table in inputs:
        for each in table.to_pylist():
            name = each["pair"], each["secret"]
            models.setdefault(name, {})[each["inserted"]] = np.array(each["log_p"])
            times[name] = each["repetitions"]
    rows = [
        {"pair": name[0], "secret": name[1], "repetitions": times[name]} | rank_secret(both[True], both.get(False))
        for name, both in models.items()
        if True in both
    ]
    return pa.Table.from_pylist(_adjust_ranks(rows, config.level), SECRETS)


def _adjust_ranks(ranked: Sequence[Row], level: float) -> list[Row]:
    """The rows with their adjusted p-values, and whether they are found at this level."""
    q_values = false_discovery_control(np.array([each["p_value"] for each in ranked]))
    reduced = false_discovery_control(np.array([each["reduced_p"] for each in ranked]))
    return [
        each | {"q_value": float(q), "found": bool(q <= level), "memorised": bool(less <= level)}
        for each, q, less in zip(ranked, q_values, reduced, strict=True)
    ]


def rank_secret(told: Array, twin: Array | None) -> Row:
    """What log p of all candidates, the secret's first, says of it: by the model that was told it and by its twin.

    Raises ValueError for scores that are not finite.
    """
    check_finite(told, "log p of the candidates of a secret")
    size, p_value = len(told), rank_p_value(told)
    reduced = np.array([told[0] - SMALLEST, *told[1:]])
    ranked: Row = {"candidates": size, "rank": round(size * p_value), "p_value": p_value, "exposure": exposure(p_value)}
    ranked |= {"beaten": share_below(told), "tied": float(share_tied(told)), "reduced_p": rank_p_value(reduced)}
    if twin is not None:
        check_finite(twin, "log p of the candidates of a secret by the twin")
        difference = told - twin
        effect = float(difference[0] - difference[1:].mean())
        ranked |= {"effect": effect, "exposure_twin": exposure(rank_p_value(twin))}
    return ranked


def combine(p_values: Sequence[float]) -> float:
    """Fisher's combination of independent p-values; those from ranks make it larger, if anything."""
    from scipy import stats

    return float(stats.chi2.sf(-2 * sum(map(math.log, p_values)), 2 * len(p_values)))


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """How many secrets are found, how many references they beat, and both by repetitions."""
    table = tables.one(SECRETS)
    if table is None or not table.num_rows:
        return
    ranked = table.to_pylist()
    yield from _ranked_rows(ranked, about)
    for times in sorted({each["repetitions"] for each in ranked}):
        some = [each for each in ranked if each["repetitions"] == times]
        setting = {"repetitions": times}
        yield row("share found", setting, statistics.proportion(_count_found(some), len(some)), "secret", 0.0)
        null = mean_exposure_of_uniform_ranks(some[0]["candidates"])
        for by, column in (("told", "exposure"), ("twin", "exposure_twin")):
            bits = statistics.mean(_known_values(some, column))
            yield row("exposure in bits", setting | {"by": by}, bits, "secret", null)
        yield row("effect in nats", setting, statistics.mean(_known_values(some, "effect")), "secret", 0.0)


def _ranked_rows(ranked: Sequence[Row], about: About, unit: str = "secret") -> Iterator[Row]:
    """How many of them are found, with the p-value that any is known, and the mean share of references they beat."""
    smallest = min(each["q_value"] for each in ranked)
    found = FOUND if about.things == "secrets" else IDENTIFIERS_FOUND
    yield row(found, {"level": about.level}, alone(float(_count_found(ranked)), len(ranked)), unit, 0.0, smallest)
    beaten = statistics.mean([each["beaten"] for each in ranked])
    together = combine([each["p_value"] for each in ranked])
    yield row(BEATEN, {}, statistics.within_shares(beaten), unit, 0.5, together)
    count, size = sum(each["memorised"] for each in ranked), {"nats": SMALLEST}
    least = float(false_discovery_control([each["reduced_p"] for each in ranked]).min())
    yield row(MEMORISED, size, alone(float(count), len(ranked)), unit, 0.0, least)
    reduced = combine([each["reduced_p"] for each in ranked])
    yield row(REDUCED, size, alone(beaten.value, len(ranked)), unit, 0.5, reduced)
    yield tied_row(float(np.mean([each["tied"] for each in ranked])), len(ranked), unit)


def _known_values(ranked: Sequence[Row], column: str) -> list[float]:
    return [each[column] for each in ranked if each[column] is not None]


def _count_found(ranked: Sequence[Row]) -> int:
    return sum(each["found"] for each in ranked)


def _plan_identifiers(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    if not isinstance(config.question, Identifiers):
        return ()
    rank = identifiers if config.question.base is None else identifiers_beside_base
    return Job(rank, Ranking(config.level), trainings)


@task(version=2, name="text.identifiers", gathers=True)
def identifiers(config: Ranking, inputs: Inputs) -> pa.Table:
    """Each identifier's rank by the given model (IDENTIFIERS); no row where its scores are missing."""
    kept = ("format", "row", "occurrences", "control")
    rows = [
        {name: each[name] for name in kept} | rank_secret(np.array(each["log_p"]), None)
        for table in inputs
        for each in table.to_pylist()
    ]
    return pa.Table.from_pylist(_adjust_ranks(rows, config.level), IDENTIFIERS)


@task(version=2, name="text.identifiers_beside_base")
def identifiers_beside_base(config: Ranking, inputs: Inputs) -> pa.Table:
    """The same by how much likelier the given model says a candidate than its base does (IDENTIFIERS)."""
    given, base = (table["log_p"].to_pylist() for table in inputs)
    more = [(np.array(one) - np.array(other)).tolist() for one, other in zip(given, base, strict=True)]
    place = inputs[0].schema.get_field_index("log_p")
    table: pa.Table = identifiers(config, (inputs[0].set_column(place, "log_p", pa.array(more)),))
    return table


def _identifier_rows(tables: Tables, about: About) -> Iterator[Row]:
    """How many are found and how many references they beat, as of secrets; and the control's p-value."""
    table = tables.one(IDENTIFIERS)
    if table is None or not table.num_rows:
        return
    ranked = table.to_pylist()
    yield from _ranked_rows(ranked, about, "identifier")
    control = ranked[0]["control"]
    yield row(CONTROL, {}, alone(control, len(ranked)), "identifier", p_value=control)


MEASURE = Measure("secrets", SECRETS, plan, rows)
OF_IDENTIFIERS = Measure("identifiers", IDENTIFIERS, _plan_identifiers, _identifier_rows)
