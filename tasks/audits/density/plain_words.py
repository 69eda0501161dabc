"""The audit's answer for readers without a machine-learning background, and its symbols explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tasks.audits.density.config import Memorization
from tasks.audits.density.evidence import SURELY, Evidence
from tasks.audits.density.tail import LEVEL
from tasks.contract.certificate import Boundary, NumberLine, chances, line_of
from tasks.contract.summaries import blank_weak_interval

SYMBOLS: Mapping[str, str] = {
    "M": "the published score: how much more probable an observation is to models that trained on it, in nats; above 0 "
    "where nothing is memorised",
    "matched-count M": "the same with as many models on either side, which is 0 on average where nothing is memorised",
    "log p": "the logarithm of the probability that a model gives an image, in nats",
    "generalisation gap": "how much training on an image raises its log p, on average over all images",
    "false discoveries": "the share of those called memorised that are expected to be called wrongly",
    "epsilon": "the bound of differential privacy: of log p, how much one image may change it",
    "effective samples": "how many of the codes that log p is estimated with contribute to it",
    "loss": "the negative of the bound that is trained, in nats",
}
ASKED = "Does a generative model that is trained in this way keep single images of its training data?"
NOTICE_OF_NULL = "This is a null: no model was trained on the images that are asked about. "

SCORES_FIRST = (
    "Look at the images that are called (the table scores) before the model, or what it draws, is given away.",
    "Train with fewer epochs, without near copies, or with differential privacy, and audit again.",
)
NEAR_COPIES = ("Look for near copies (question=duplicates): of those this audit says nothing.",)
MORE_REPETITIONS = ("Train more repetitions (repetitions=20): what is stored is not trained again.",)


def explain_count(config: Memorization, evidence: Evidence) -> Iterator[str]:
    """How many images are called, in words that need no statistics."""
    count, n = evidence.count, evidence.called["n"]
    called = f"memorised by more than {config.negligible:g} nats, at {100 * LEVEL:g} % false discoveries"
    if count:
        yield f"Of {n:,} images {count:,} {'is' if count == 1 else 'are'} called, one by one, {called}."
    else:
        yield f"Of {n:,} images none is called {called}."


def explain_all_together(config: Memorization) -> Iterator[str]:
    yield "The p-values of all images together show more than chance."
    if not config.is_null:
        yield "Some images are therefore memorised, but they cannot be identified."


def explain_found(evidence: Evidence) -> Iterator[str]:
    """Which memory of a single image would have been found."""
    if evidence.found is not None and evidence.found["estimate"] is not None:
        yield (
            f"A single image would have been found from about {evidence.found['estimate']:.3g} nats on, as many as "
            "make it more probable by that power of e."
        )


def explain_gap(config: Memorization, evidence: Evidence) -> Iterator[str]:
    """The generalisation gap with its interval."""
    gap = None if evidence.gap is None else blank_weak_interval(evidence.gap)
    if gap is None or gap["low"] is None:
        return
    nats = f"{gap['estimate']:.3g} nats (95 % interval {gap['low']:.3g} to {gap['high']:.3g})"
    yield (
        f"On average the log probability of an image that is counted as trained on is higher by {nats}."
        if config.is_null
        else f"On average training on an image raises its log probability by {nats}, which says nothing of any "
        "single one."
    )


def count_line(evidence: Evidence) -> NumberLine:
    """The number of images that are called."""
    n, one = evidence.called["n"], Boundary(1.0, "memorised from one on")
    what = f"images, of {n:,}, that are called memorised"
    return NumberLine(what, evidence.called["estimate"] * n, null=0.0, boundaries=(one,))


def all_together_line(evidence: Evidence) -> NumberLine:
    return chances(evidence.by_chance, SURELY)


def gap_line(config: Memorization, evidence: Evidence) -> NumberLine | None:
    """The generalisation gap; None without an estimate."""
    limit = Boundary(config.negligible, "not detected only if the whole interval lies below", clears=True)
    what = (
        "how much higher the log probability is of images that are counted as trained on, on average, in nats"
        if config.is_null
        else "how much training on an image raises its log probability on average, in nats"
    )
    return line_of(evidence.gap, what, boundaries=(limit,))
