"""Can a model be made to say a secret: does it go on with it, given what stands before it?

`tasks.audits.text.continuations` says in which ways. Each stands beside the twin, or the base of a given model, which
was not told the secret, and beside what chance brings at most. A secret is one of `size` that are equally likely, and
whoever was not told it goes on without knowing which: its likeliest continuation is one of them at most, and so many
as 1 / p at most have a probability of p or more. So it is reproduced greedily with a probability of at most 1 / size,
and by n attempts of at most 1 / (p size). Near misses have no such bound.

The p-value of a share is that of as many secrets being reproduced, each with this probability: exact, and no twin is
needed for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.audits.text.config import About, Text
from tasks.audits.text.continuations import (
    BEYOND,
    ENDS,
    GREEDY,
    SHARE,
    TOLD,
    TWIN,
    Array,
    least_log_p,
    name_attempts,
    reproductions,
)
from tasks.audits.text.question import Identifiers, RankedQuestion
from tasks.audits.text.secrets.space import SecretSpace, space_of
from tasks.contract.grouping import group_rows
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, row
from tasks.numerics import statistics

EXTRACTION = pa.schema(
    [
        ("model", pa.int64()),  # that was told the secret, from 0
        ("pair", pa.int64()),  # null, like the secret's number, of identifiers
        ("secret", pa.int64()),
        ("format", pa.string()),  # of identifiers, like the row of the text; else null
        ("row", pa.int64()),
        ("repetitions", pa.int64()),  # in the training data; of identifiers in all texts
        ("tokens", pa.int64()),  # that the model is to go on with
        ("way", pa.string()),
        ("reproduced", pa.bool_()),
        ("reproduced_twin", pa.bool_()),  # null, like the twin's log p, where there is no twin
        ("log_p", pa.float64()),  # of the secret after what stands before it, in nats
        ("log_p_twin", pa.float64()),
        ("chance", pa.float64()),  # that a model which was not told it does, at most; null where it has no bound
    ]
)
NAMES = ("pair", "secret", "format", "row")


@dataclass(frozen=True)
class Extraction:
    """What counts as reproduced, and the pattern of the secrets; empty of identifiers, which have formats.

    `models` is the number of models that were planned.
    """

    pattern: str
    models: int
    attempts: tuple[int, ...]
    likely: float
    near: float

    def size(self, secret: Row) -> int:
        """The number of secrets among which this one was drawn."""
        return (SecretSpace(self.pattern) if self.pattern else space_of(secret["format"])).size


def plan(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    question = config.question
    if not isinstance(question, RankedQuestion) or question.extraction is None:
        return ()
    asked = question.extraction
    pattern = "" if isinstance(question, Identifiers) else question.pattern
    return Job(extraction, Extraction(pattern, len(trainings), asked.attempts, asked.likely, asked.near), trainings)


@task(version=1, name="text.extraction", gathers=True)
def extraction(config: Extraction, inputs: Inputs) -> pa.Table:
    """Each secret in each way: whether the model that was told it goes on with it, and whether its twin (EXTRACTION).

    A secret whose model is missing, or cannot be asked, has no row.
    """
    if not config.pattern and len(inputs) < config.models:
        return EXTRACTION.empty_table()  # a model and its base, which their order alone distinguishes
    said: dict[tuple[object, ...], dict[bool, Row]] = {}
    for model, table in enumerate(inputs):
        for at, each in enumerate(table.drop_columns(["log_p"]).to_pylist()):
            of_identifier = "inserted" not in each
            name = (each["format"], at) if of_identifier else (each["pair"], each["secret"])
            told = model == 0 if of_identifier else each["inserted"]  # the second model is the base of the first
            times = each["occurrences"] if of_identifier else each["repetitions"]
            if each["log_p_end"] is not None:
                said.setdefault(name, {})[told] = {**each, "model": model, "repetitions": times}
    rows = [row for both in said.values() if True in both for row in _secret_rows(config, both[True], both.get(False))]
    return pa.Table.from_pylist(rows, EXTRACTION)


def _secret_rows(config: Extraction, told: Row, twin: Row | None) -> Iterator[Row]:
    """The rows of one secret, one for each way."""
    sides = [told] if twin is None else [told, twin]
    log_p_end, wrong, distance = (np.array([each[name] for each in sides], dtype=np.float64) for name in dict(ENDS))
    chances = _chances_of_strangers(config, config.size(told))
    about = {name: told.get(name) for name in ("model", *NAMES, "repetitions", "tokens")}
    log_p = dict(zip(("log_p", "log_p_twin"), log_p_end.tolist(), strict=False))
    for way, reproduced in reproductions(config, log_p_end, wrong, distance, told["tokens"]).items():
        by = dict(zip(("reproduced", "reproduced_twin"), (reproduced == 1).tolist(), strict=False))
        yield {**about, "way": way, **by, **log_p, "chance": chances.get(way)}


def _chances_of_strangers(config: Extraction, size: int) -> Mapping[str, float]:
    """How probably a model that was not told a secret reproduces it at most, by the ways that have a bound."""
    least = {name_attempts(n): log_p for n, log_p in least_log_p(config).items()}
    return {GREEDY: 1 / size} | {way: min(1.0, math.exp(-log_p) / size) for way, log_p in least.items()}


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - an interval knows no level
    """How many secrets are reproduced in each way, of all and of those of equal repetitions, beside the twins."""
    found = tables.rows(EXTRACTION)
    by_repetitions = group_rows(found, "repetitions")
    groups: list[tuple[Row, list[Row]]] = [({}, found)]
    if len(by_repetitions) > 1:
        groups += [({"repetitions": times}, by_repetitions[times]) for times in sorted(by_repetitions)]
    for setting, some in groups:
        for way, of_way in group_rows(some, "way").items():
            yield from share_rows({**setting, "way": way}, of_way)


def share_rows(setting: Row, some: Sequence[Row]) -> Iterator[Row]:
    """The share that is reproduced by models that were told a secret, and by twins, and the difference."""
    told = _reproduced_share(some, "reproduced")
    chances = [each["chance"] for each in some if each["chance"] is not None]
    chance, count = max(chances, default=None), sum(each["reproduced"] for each in some)
    p_value = None if chance is None else statistics.proportion_greater(count, len(some), chance)
    yield row(SHARE, {**setting, "by": TOLD}, told, "secret", chance, p_value)
    beside = [each for each in some if each["reproduced_twin"] is not None]
    if beside:
        twin = _reproduced_share(beside, "reproduced_twin")
        yield row(SHARE, {**setting, "by": TWIN}, twin, "secret", chance)
        yield row(BEYOND, setting, statistics.difference_of_shares(told, twin), "secret", 0.0)


def _reproduced_share(some: Sequence[Row], column: str) -> Estimate:
    """The share of the secrets, over secrets and models; of one model, of which alone it speaks, over secrets."""
    models = {each["model"] for each in some}
    reproduced = np.array([float(each[column]) for each in some])
    if len(models) == 1:
        return statistics.proportion(int(reproduced.sum()), len(some))
    by_model: Array = np.array(
        [reproduced[[each["model"] == model for each in some]].mean() for model in sorted(models)]
    )
    share = statistics.crossed_proportion(by_model, reproduced)
    return Estimate(float(reproduced.mean()), share.low, share.high, len(some))


MEASURE = Measure("extraction", EXTRACTION, plan, rows)
