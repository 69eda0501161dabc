"""Power of a configuration: whether one memorised record can be detected, and how often.

The detection rate assumes that the log-odds of every record differ by SPREAD nats between models trained with the same
recipe. A record's p-value must reach level / records, so power decreases with the number of records and increases with
the number of models.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tasks.audits.membership.config import Canaries, Halves, Membership, ModelPairs
from tasks.audits.membership.given_config import GivenModel
from tasks.audits.membership.image_parts import record_part
from tasks.audits.membership.loss_config import LossAttack
from tasks.contract.power import (
    GOAL,
    SMALLEST,
    Power,
    Resolution,
    exact_test_resolution,
    fewest_others,
    smallest_size,
)
from tasks.datasets.catalog import load
from tasks.datasets.copies import distinct_rows
from tasks.numerics.exact_test import detection_rate

SPREAD = 1.0  # standard deviation of a record's log-odds between models, in nats
EFFECT = 2.0  # effect of the memorised record, in nats


def _count_records(config: Membership) -> int:
    """Count the tested records. Exact copies count once."""
    part = record_part(config)
    images = load(part.data)
    return len(distinct_rows(images, part.rows(images)))


def record_resolution(question: Halves | GivenModel, records: int) -> Resolution:
    """Return whether the exact test, or the rank of a given model, could detect a single one of these records."""
    if isinstance(question, Halves):
        return exact_test_resolution(question.models, question.draws, question.level, records, "records")
    models = 2 * fewest_others(records, question.level)  # each record is in half of them
    advice = f"train at least {models:,} models for {records:,} records"
    return Resolution(1 / (1 + question.models // 2), records, question.level, "records", advice)


def resolution(config: Membership) -> Resolution | None:
    """Return the resolution of the planned audit. None for questions that never clear a model."""
    question = config.question
    if isinstance(question, Canaries | ModelPairs | LossAttack) or not question.models:
        return None
    return record_resolution(question, _count_records(config))


def power(config: Membership) -> Iterator[Power]:
    """Yield the detection rate for one record with an effect of EFFECT nats."""
    question = config.question
    if not isinstance(question, Halves):
        return
    records = _count_records(config)
    models = question.models
    share = record_rate(models, question.draws, question.level, records)
    required_size = smallest_size(
        models, 2, lambda size: record_rate(size, question.draws, question.level, records) >= GOAL
    )
    yield Power(
        f"one record of {records:,} with an effect of {EFFECT:g} nats (models differ by {SPREAD:g} nat)",
        share,
        "" if required_size is None else f"train {required_size} models",
    )


@lru_cache(maxsize=256)
def record_rate(models: int, draws: int, level: float, records: int) -> float:
    """Return the share of audits that detect one record with an effect of EFFECT - SMALLEST nats."""
    return detection_rate((EFFECT - SMALLEST) / SPREAD, models, draws, level, records)


def notes(config: Membership) -> Iterator[str]:
    """Yield a warning if there are so few records that training on one may noticeably harm another."""
    if not isinstance(config.question, Halves):
        return
    records = _count_records(config)
    if records < FEW_RECORDS:
        yield (
            f"{records} records: each is paired with a record in the opposite half of the models. With fewer than "
            f"{FEW_RECORDS} records, one may be identified because training on its partner harms it (7 % of 40 records "
            "at p of 5 %)"
        )


FEW_RECORDS = 100
