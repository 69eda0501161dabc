"""The power of a configuration: whether one secret or document could be found, and how often a known one is.

A secret is ranked among others of its space, so that its p-value is at least one over their number. The statement of
power is for log p that differs by SPREAD nats between secrets of a space, or for documents between models.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from tasks.audits.text.config import Text
from tasks.audits.text.documents.ranks import DRAWS
from tasks.audits.text.question import Documents, Identifiers, Planted, RankedQuestion, Secrets
from tasks.contract.power import (
    GOAL,
    SMALLEST,
    Power,
    Resolution,
    exact_test_resolution,
    fewest_others,
    smallest_size,
)
from tasks.numerics.exact_test import detection_rate

SPREAD = 2.0  # standard deviation of log p over the secrets of a space, in nats
EFFECT = 8.0  # nats by which the secret of the statement is likelier
DOCUMENT_SPREAD, DOCUMENT_EFFECT = 1.0, 2.0  # of the whole document, in nats


def rank_resolution(question: RankedQuestion, level: float, tests: int) -> Resolution:
    """Whether one of these secrets, or identifiers, could be found."""
    item = "identifiers" if isinstance(question, Identifiers) else "secrets"
    others = fewest_others(tests, level)
    advice = f"rank {tests} {item} among {others + 1} or more (references={others})"
    return Resolution(1 / question.candidates, tests, level, item, advice)


def document_resolution(models: int, level: float, tests: int) -> Resolution:
    """Whether one of these documents could be found by the exact test over models."""
    return exact_test_resolution(models, DRAWS, level, tests, "documents")


def insertion_resolution(level: float, inserted: int, left_out: int) -> Resolution:
    """Whether one of these inserted documents could be found by its rank among the documents that were left out."""
    advice = f"with {inserted:,} inserted documents leave {fewest_others(inserted, level):,} out"
    return Resolution(1 / (1 + left_out), inserted, level, "inserted documents", advice)


def resolution(config: Text) -> Resolution | None:
    """That of the plan; None if no answer clears, or if the items must first be counted in the texts."""
    match config.question:
        case Documents() as question:
            return document_resolution(question.models, config.level, question.documents)
        case Secrets() | Planted() as question:
            return rank_resolution(question, config.level, question.ranked)
    return None


def power(config: Text) -> Iterator[Power]:
    """How often one secret, or one document, of a stated effect is found."""
    match config.question:
        case Documents() as question:
            yield _document_power(question, config.level)
        case Secrets() | Planted() as question:
            share = _secret_rate(question.candidates, config.level / question.ranked)
            size = (
                f"one secret of {question.ranked:,} that is {EFFECT:g} nats likelier (others differ by {SPREAD:g} nats)"
            )
            yield Power(size, share)


def _document_power(question: Documents, level: float) -> Power:
    documents = question.documents
    share = document_rate(question.models, level, documents)
    models = smallest_size(question.models, 2, lambda size: document_rate(size, level, documents) >= GOAL)
    size = f"one document of {documents:,} that is remembered by {DOCUMENT_EFFECT:g} nats"
    spread = f"(models differ by {DOCUMENT_SPREAD:g} nat)"
    return Power(f"{size} {spread}", share, "" if models is None else f"train {models} models")


def _secret_rate(size: int, p_value: float) -> float:
    """The share of secrets EFFECT nats likelier whose rank among `size` candidates is small enough, with normal log p.

    At most k - 1 of the others may be at least as likely, k the last rank that is called: the number of those is
    binomial given the secret's log p, over which it is averaged.
    """
    import numpy as np
    from scipy import stats

    last = math.floor(p_value * size + 1e-9)
    if last < 1:
        return 0.0
    places = (np.arange(200) + 0.5) / 200
    above = stats.norm.sf(stats.norm.ppf(places) + (EFFECT - SMALLEST) / SPREAD)
    return float(stats.binom.cdf(last - 1, size - 1, above).mean())


@lru_cache(maxsize=256)
def document_rate(models: int, level: float, documents: int) -> float:
    """The share of audits that find one document whose effect is DOCUMENT_EFFECT, as a t-test does."""
    effect = (DOCUMENT_EFFECT - SMALLEST) / DOCUMENT_SPREAD
    return detection_rate(effect, models, DRAWS, level, documents)
