"""The power of a configuration: whether one remembered record could be found, and how often one of a stated effect is.

The statement of power is for log-odds that differ by SPREAD nats between models of one training recipe, for every
record. A record's p-value must reach level / records, so power falls with the number of records and rises with the
number of models.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tasks.audits.membership.config import Canaries, Halves, Membership
from tasks.audits.membership.given_config import GivenModel
from tasks.audits.membership.image_parts import record_part
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

SPREAD = 1.0  # standard deviation of a record's log-odds over models, in nats
EFFECT = 2.0  # nats by which the record of the statement is remembered


def _count_records(config: Membership) -> int:
    """The records that are tested: exact copies are one."""
    part = record_part(config)
    images = load(part.data)
    return len(distinct_rows(images, part.rows(images)))


def record_resolution(question: Halves | GivenModel, records: int) -> Resolution:
    """Whether one of these records could be found: by the exact test, or of a given model by its rank."""
    if isinstance(question, Halves):
        return exact_test_resolution(question.models, question.draws, question.level, records, "records")
    models = 2 * fewest_others(records, question.level)  # half of them without a record
    advice = f"with {records:,} records train {models:,} models"
    return Resolution(1 / (1 + question.models // 2), records, question.level, "records", advice)


def resolution(config: Membership) -> Resolution | None:
    """That of the plan; None for canaries, whose bound on epsilon clears no model, and without models to rank among."""
    question = config.question
    if isinstance(question, Canaries) or not question.models:
        return None
    return record_resolution(question, _count_records(config))


def power(config: Membership) -> Iterator[Power]:
    """How often one record that is remembered by EFFECT nats is found."""
    question = config.question
    if not isinstance(question, Halves):
        return
    records, models = _count_records(config), question.models
    share = record_rate(models, question.draws, question.level, records)
    enough = smallest_size(models, 2, lambda size: record_rate(size, question.draws, question.level, records) >= GOAL)
    yield Power(
        f"one record of {records:,} that is remembered by {EFFECT:g} nats (models differ by {SPREAD:g} nat)",
        share,
        "" if enough is None else f"train {enough} models",
    )


@lru_cache(maxsize=256)
def record_rate(models: int, draws: int, level: float, records: int) -> float:
    """The share of audits that find one record whose effect, EFFECT nats, is reduced by SMALLEST."""
    return detection_rate((EFFECT - SMALLEST) / SPREAD, models, draws, level, records)


def notes(config: Membership) -> Iterator[str]:
    """A warning about few records, of which one may be found for what the training on its partner does."""
    if not isinstance(config.question, Halves):
        return
    records = _count_records(config)
    if records < FEW_RECORDS:
        yield (
            f"{records} records: two of a pair have opposite halves of the models, and with fewer than {FEW_RECORDS} "
            "records one may be found because the training on its partner does harm (7 % of 40 records at p of 5 %)"
        )


FEW_RECORDS = 100
