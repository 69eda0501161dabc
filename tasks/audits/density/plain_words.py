"""Explanations for readers without a machine-learning background, and a glossary of symbols."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tasks.audits.density.config import Memorization
from tasks.audits.density.evidence import Evidence
from tasks.audits.density.measures.scores import FOUND
from tasks.audits.density.tail import LEVEL
from tasks.contract.certificate import Boundary, NumberLine, advise_retraining
from tasks.contract.summaries import blank_weak_interval

SYMBOLS: Mapping[str, str] = {
    "M": "the published score: the logarithm of how many times as likely an image is under models that trained on it, "
    "in nats; above 0 even without memorisation",
    "matched-count M": "the same score with equal numbers of models on both sides; 0 on average without memorisation",
    "log p": "the logarithm of the probability that a model assigns to an image, in nats",
    "generalisation gap": "the mean rise in an image's log p by training on it",
    "false discoveries": "the expected share of false alarms among the images reported as memorised",
    "epsilon": "the bound of differential privacy: the largest change in log p that one image may cause",
    "effective samples": "the number of codes that effectively contribute to an estimate of log p",
    "loss": "the negative of the training objective, a bound on log p, in nats",
    "nats": "the unit of log p: 1 nat is a factor of 2.7 in probability, 10 nats are a factor of 22,000",
}
ASKED = "Does a generative model that is trained in this way memorise individual images of its training data?"
NOTICE_OF_NULL = "This is a control run: no model was trained on the tested images. "

REVIEW_IMAGES = (
    "Review the images reported as memorised before you share the model or images that it generates. The command "
    "engram results RUN scores lists them.",
    advise_retraining("privacy.epsilon=8", "remove near copies from the data"),
)
NEAR_COPIES = ("Check the data for near copies (question=duplicates): this audit cannot assess them.",)
MORE_REPETITIONS = ("Run the audit with more repetitions (repetitions=20). Trained models are reused.",)

MILLION = math.log(1e6)  # nats; readers cannot compare larger factors


def format_factor(nats: float) -> str:
    """Format a difference in log probability as a factor, such as "about 1,800 times"."""
    if nats > MILLION:
        return "more than a million times"
    digits = 3 if nats < math.log(10) else 2
    return f"about {float(f'{math.exp(nats):.{digits}g}'):,g} times"


def explain_count(config: Memorization, evidence: Evidence) -> Iterator[str]:
    """State the number of memorised images, how strongly they are memorised, and the number of false alarms."""
    count = evidence.count
    n = evidence.identified_share["n"]
    yield "The audit compares models that were trained on an image with models that were not."
    if not count:
        yield f"The audit identified none of the {n:,} tested images as memorised."
        return
    verb = "image is" if count == 1 else "images are"
    yield f"Of {n:,} tested images, {count:,} {verb} identified as memorised."
    if config.is_null:
        return
    typical = evidence.background.median_identified
    if typical is not None and typical["estimate"] is not None:
        yield (
            f"A typical one of them is {format_factor(typical['estimate'])} as likely under models that trained on it "
            "as under models that did not."
        )
    yield explain_false_alarms(count)


def explain_false_alarms(count: int) -> str:
    expected = LEVEL * count
    if expected < 1:
        return f"If nothing were memorised, at most about {100 * LEVEL:g} of 100 such audits would identify any image."
    return f"On average, at most {expected:.0f} of them are false alarms."


def explain_all_together(config: Memorization, evidence: Evidence) -> Iterator[str]:
    n = evidence.identified_share["n"]
    if config.is_null:
        yield "Taken together, the results of all images differ more than chance explains."
        return
    yield (
        f"Taken together, the results show that at least {fewest_memorised(evidence):,} of the {n:,} images are "
        "memorised, but not which ones."
    )


def fewest_memorised(evidence: Evidence) -> int:
    """Return the lower 95 % limit of the number of memorised images."""
    assert evidence.excess is not None, "only images that are counted together have a lower limit"
    return round(float(evidence.excess["low"]) * int(evidence.identified_share["n"]))


def explain_detection_limit(evidence: Evidence) -> Iterator[str]:
    """State the weakest memorisation of a single image that the audit detects."""
    if evidence.detection_limit is not None and evidence.detection_limit["estimate"] is not None:
        yield (
            f"If training made a single image {format_factor(evidence.detection_limit['estimate'])} as likely, the "
            f"audit would detect it in {100 * FOUND:.0f} of 100 cases."
        )
    if not evidence.would_find_one:
        yield "The audit could have missed a memorised image."


def explain_gap(config: Memorization, evidence: Evidence) -> Iterator[str]:
    """State the generalisation gap as a factor, with an interval."""
    if evidence.gap is None:
        gap = None
    else:
        gap = blank_weak_interval(evidence.gap)
    if gap is None or gap["low"] is None:
        return
    low = format_factor(gap["low"]).removeprefix("about ").removesuffix(" times")
    high = format_factor(gap["high"]).removeprefix("about ").removesuffix(" times")
    factor = f"{format_factor(gap['estimate'])} as likely (95 % interval {low} to {high} times)"
    if config.is_null:
        yield f"On average, an image that is counted as a training image is {factor} as another one."
        return
    yield f"On average, training on an image makes it {factor}. This average does not describe any single image."


def count_line(evidence: Evidence) -> NumberLine:
    """Draw the number of images identified as memorised."""
    n = evidence.identified_share["n"]
    label = f"images identified as memorised, of {n:,}"
    return NumberLine(label, evidence.identified_share["estimate"] * n, null=0.0, boundaries=(_FROM_ONE,))


_FROM_ONE = Boundary(1.0, "memorised from 1 image")


def all_together_line(evidence: Evidence) -> NumberLine:
    """Draw the lower limit of the number of memorised images."""
    label = f"memorised images, at least, of {evidence.identified_share['n']:,}"
    return NumberLine(label, float(fewest_memorised(evidence)), null=0.0, boundaries=(_FROM_ONE,))


def gap_line(config: Memorization, evidence: Evidence) -> NumberLine | None:
    """Draw the generalisation gap as a factor, or as a power of ten if it is large. None without an estimate."""
    if evidence.gap is None or evidence.gap["estimate"] is None or not math.isfinite(evidence.gap["estimate"]):
        return None
    gap = blank_weak_interval(evidence.gap)
    subject = "training makes an image"
    if config.is_null:
        subject = "images counted as training images are"
    values = [gap["estimate"], gap["low"], gap["high"]]
    is_large = any(value is not None and abs(value) > MILLION for value in values)
    label = f"how many times as likely {subject}, on average"
    if is_large:
        label = f"powers of ten by which {subject} more likely, on average"

    def scale(nats: float | None) -> float | None:
        if nats is None:
            return None
        return nats / math.log(10) if is_large else math.exp(nats)

    estimate, low, high = map(scale, values)
    null = scale(gap["null"])
    limit = scale(config.negligible)
    assert estimate is not None
    assert limit is not None
    boundary = Boundary(float(f"{limit:.3g}"), "not detected only if the whole interval is below", clears=True)
    return NumberLine(label, estimate, low, high, null, boundaries=(boundary,), logarithmic=not is_large)
