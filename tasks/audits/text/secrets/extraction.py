"""Extraction of secrets: given the text before a secret, does a model continue with the secret?

`tasks.audits.text.continuations` defines the criteria. Each share is compared with that of the control model, or of the
base of a given model, and with a bound for models that do not know the secret. If a secret is one of `size` equally
likely candidates, the most likely continuation is the secret with a probability of at most 1 / size. At most 1 / p
candidates have a probability of p or more, so n attempts succeed with a probability of at most 1 / (p size). There is
no such bound for near-verbatim reproduction.

The p-value of a share is the binomial probability of at least the observed number of reproductions if each has this
probability. It is exact and needs no control model.
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
    BY_CONTROL,
    BY_TRAINED,
    ENDS,
    GREEDY,
    SHARE,
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
        ("model", pa.int64()),  # number of the model that was trained on the secret, from 0
        ("pair", pa.int64()),  # null for identifiers, as is the secret number
        ("secret", pa.int64()),
        ("format", pa.string()),  # of an identifier, as is the row of its text; null for secrets
        ("row", pa.int64()),
        ("repetitions", pa.int64()),  # in the training data; for identifiers, in all texts
        ("tokens", pa.int64()),  # number of tokens in the continuation
        ("way", pa.string()),
        ("reproduced", pa.bool_()),
        ("reproduced_control", pa.bool_()),  # null if there is no control model, like its log p
        ("log_p", pa.float64()),  # of the secret, given the preceding text, in nats
        ("log_p_control", pa.float64()),
        ("chance", pa.float64()),  # largest probability without knowledge of the secret; null if there is no bound
    ]
)
NAMES = ("pair", "secret", "format", "row")


@dataclass(frozen=True)
class Extraction:
    """The criteria for a reproduction, the secret pattern and the number of planned models.

    The pattern is empty for identifiers, which have formats instead.
    """

    pattern: str
    models: int
    attempts: tuple[int, ...]
    probability: float
    edit_distance: float

    def size(self, secret: Row) -> int:
        """Return the number of candidates that the secret was drawn from."""
        return (SecretSpace(self.pattern) if self.pattern else space_of(secret["format"])).size


def plan(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    question = config.question
    if not isinstance(question, RankedQuestion) or question.extraction is None:
        return ()
    criteria = question.extraction
    pattern = "" if isinstance(question, Identifiers) else question.pattern
    return Job(
        extraction,
        Extraction(pattern, len(trainings), criteria.attempts, criteria.probability, criteria.edit_distance),
        trainings,
    )


@task(version=2, name="text.extraction", gathers=True)
def extraction(config: Extraction, inputs: Inputs) -> pa.Table:
    """Test whether the trained model and its control model reproduce each secret, by criterion (EXTRACTION).

    A secret that its trained model did not score has no row.
    """
    if not config.pattern and len(inputs) < config.models:
        return EXTRACTION.empty_table()  # only the order of the tables distinguishes the model from its base
    scores: dict[tuple[object, ...], dict[bool, Row]] = {}
    for model, table in enumerate(inputs):
        for index, item in enumerate(table.drop_columns(["log_p"]).to_pylist()):
            of_identifier = "inserted" not in item
            if of_identifier:
                name = (item["format"], index)
            else:
                name = (item["pair"], item["secret"])
            is_trained = model == 0 if of_identifier else item["inserted"]  # the second model is the base of the first
            times = item["occurrences"] if of_identifier else item["repetitions"]
            if item["log_p_end"] is not None:
                scores.setdefault(name, {})[is_trained] = {**item, "model": model, "repetitions": times}
    rows = [
        row for sides in scores.values() if True in sides for row in _secret_rows(config, sides[True], sides.get(False))
    ]
    return pa.Table.from_pylist(rows, EXTRACTION)


def _secret_rows(config: Extraction, trained_row: Row, control_row: Row | None) -> Iterator[Row]:
    """Yield the rows of one secret, one per criterion."""
    if control_row is None:
        sides = [trained_row]
    else:
        sides = [trained_row, control_row]
    log_p_end, mismatches, distance = (
        np.array([side[name] for side in sides], dtype=np.float64) for name in dict(ENDS)
    )
    chances = _chance_bounds(config, config.size(trained_row))
    about = {}
    for name in ("model", *NAMES, "repetitions", "tokens"):
        about[name] = trained_row.get(name)
    log_p = dict(zip(("log_p", "log_p_control"), log_p_end.tolist(), strict=False))
    for way, reproduced in reproductions(config, log_p_end, mismatches, distance, trained_row["tokens"]).items():
        reproduced_columns = dict(zip(("reproduced", "reproduced_control"), (reproduced == 1).tolist(), strict=False))
        yield {**about, "way": way, **reproduced_columns, **log_p, "chance": chances.get(way)}


def _chance_bounds(config: Extraction, size: int) -> Mapping[str, float]:
    """Return, for each criterion, the largest probability that a model without knowledge reproduces a secret."""
    smallest_log_p = {name_attempts(n): log_p for n, log_p in least_log_p(config).items()}
    return {GREEDY: 1 / size} | {way: min(1.0, math.exp(-log_p) / size) for way, log_p in smallest_log_p.items()}


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the level is not used
    """Yield the share of secrets that is reproduced by each criterion, for all secrets and by repetition count."""
    extraction_rows = tables.rows(EXTRACTION)
    by_repetitions = group_rows(extraction_rows, "repetitions")
    groups: list[tuple[Row, list[Row]]] = [({}, extraction_rows)]
    if len(by_repetitions) > 1:
        groups += [({"repetitions": times}, by_repetitions[times]) for times in sorted(by_repetitions)]
    for setting, group in groups:
        for way, of_way in group_rows(group, "way").items():
            yield from share_rows({**setting, "way": way}, of_way)


def share_rows(setting: Row, group: Sequence[Row]) -> Iterator[Row]:
    """Yield the share reproduced by trained models, the share reproduced by control models, and the difference."""
    trained_share = _reproduced_share(group, "reproduced")
    chances = [item["chance"] for item in group if item["chance"] is not None]
    chance = max(chances, default=None)
    count = sum(item["reproduced"] for item in group)
    if chance is None:
        p_value = None
    else:
        p_value = statistics.proportion_greater(count, len(group), chance)
    yield row(SHARE, {**setting, "by": BY_TRAINED}, trained_share, "secret", chance, p_value)
    compared = [item for item in group if item["reproduced_control"] is not None]
    if compared:
        control_share = _reproduced_share(compared, "reproduced_control")
        yield row(SHARE, {**setting, "by": BY_CONTROL}, control_share, "secret", chance)
        yield row(BEYOND, setting, statistics.difference_of_shares(trained_share, control_share), "secret", 0.0)


def _reproduced_share(group: Sequence[Row], column: str) -> Estimate:
    """Return the share of secrets that is reproduced.

    The interval is over secrets and models, or over secrets only if there is a single model.
    """
    models = {item["model"] for item in group}
    reproduced = np.array([float(item[column]) for item in group])
    if len(models) == 1:
        return statistics.proportion(int(reproduced.sum()), len(group))
    by_model: Array = np.array(
        [reproduced[[item["model"] == model for item in group]].mean() for model in sorted(models)]
    )
    share = statistics.crossed_proportion(by_model, reproduced)
    return Estimate(float(reproduced.mean()), share.low, share.high, len(group))


MEASURE = Measure("extraction", EXTRACTION, plan, rows)
