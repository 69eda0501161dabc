"""The power of a configuration: whether one secret or document could be found, and the detection rate of a known one.

The p-value of a secret is at least one over its number of candidates. The detection rate assumes that log p has a
standard deviation of SPREAD nats between candidates, or of DOCUMENT_SPREAD nats between models.
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

SPREAD = 2.0  # standard deviation of log p over candidates, in nats
EFFECT = 8.0  # gain in log p of the memorised secret, in nats
DOCUMENT_SPREAD = 1.0  # standard deviation of log p of the whole document over models, in nats
DOCUMENT_EFFECT = 2.0  # in nats


def rank_resolution(question: RankedQuestion, level: float, tests: int) -> Resolution:
    """Return whether one of these secrets or identifiers could be found."""
    item = "secrets"
    if isinstance(question, Identifiers):
        item = "identifiers"
    reference_count = fewest_others(tests, level)
    advice = f"rank {tests} {item} among {reference_count + 1} or more (references={reference_count})"
    return Resolution(1 / question.candidates, tests, level, item, advice)


def document_resolution(models: int, level: float, tests: int) -> Resolution:
    """Return whether the exact test over models could find one of these documents."""
    return exact_test_resolution(models, DRAWS, level, tests, "documents")


def insertion_resolution(level: float, inserted: int, left_out: int) -> Resolution:
    """Return whether one inserted document could be found by its rank among the documents left out."""
    advice = f"leave out {fewest_others(inserted, level):,} documents for {inserted:,} inserted ones"
    return Resolution(1 / (1 + left_out), inserted, level, "inserted documents", advice)


def resolution(config: Text) -> Resolution | None:
    """Return the resolution of a plan, or None if no answer clears or the number of items is not known yet."""
    match config.question:
        case Documents() as question:
            return document_resolution(question.models, config.level, question.documents)
        case Secrets() | Planted() as question:
            return rank_resolution(question, config.level, question.ranked)
    return None


def power(config: Text) -> Iterator[Power]:
    """Yield the detection rate for one secret, or one document, with a stated effect."""
    match config.question:
        case Documents() as question:
            yield _document_power(question, config.level)
        case Secrets() | Planted() as question:
            share = _secret_rate(question.candidates, config.level / question.ranked)
            size = (
                f"one of {question.ranked:,} secrets with a gain of {EFFECT:g} nats (candidates differ by {SPREAD:g} "
                "nats)"
            )
            yield Power(size, share)


def _document_power(question: Documents, level: float) -> Power:
    documents = question.documents
    share = document_rate(question.models, level, documents)
    models = smallest_size(question.models, 2, lambda size: document_rate(size, level, documents) >= GOAL)
    size = f"one of {documents:,} documents with an effect of {DOCUMENT_EFFECT:g} nats"
    spread = f"(models differ by {DOCUMENT_SPREAD:g} nat)"
    return Power(f"{size} {spread}", share, "" if models is None else f"train {models} models")


def _secret_rate(size: int, p_value: float) -> float:
    """Return the detection rate of a secret with a gain of EFFECT nats, among `size` candidates with normal log p.

    A secret is detected if its rank is at most k. Given its log p, the number of candidates above it is binomial. The
    rate is the probability that at most k - 1 candidates are above it, averaged over its log p.
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
    """Return the share of audits that find one document with an effect of DOCUMENT_EFFECT (t-test approximation)."""
    effect = (DOCUMENT_EFFECT - SMALLEST) / DOCUMENT_SPREAD
    return detection_rate(effect, models, DRAWS, level, documents)
