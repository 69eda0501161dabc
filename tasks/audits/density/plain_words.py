"""Explanations for readers without a machine-learning background, and a glossary of symbols."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tasks.audits.density.config import Density, Memorization
from tasks.audits.density.evidence import SIGNIFICANT, Evidence
from tasks.audits.density.measures.scores import FOUND
from tasks.audits.density.record_words import is_about_records
from tasks.audits.density.tail import LEVEL
from tasks.contract.certificate import Boundary, NumberLine, advise_retraining
from tasks.contract.examined_models import NOT_DEPLOYED, describe_trained
from tasks.contract.factors import MILLION, describe_change, format_times
from tasks.contract.summaries import blank_weak_interval
from tasks.programs.config import Program

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


PROBABILITY = "A generative model gives every image a probability, which measures how readily it would produce it."


def format_factor(nats: float) -> str:
    """Format a difference in log probability as a factor, such as "about 1,800 times"."""
    times = format_times(nats)
    return f"{times} times" if times.startswith("more") else f"about {times} times"


def advise_review(config: Density, _evidence: Evidence | None) -> tuple[str, ...]:
    return (
        "Review the images reported as memorised before you share the model or images that it generates (`engram "
        "results RUN scores` lists them).",
        _advise_retraining(config),
    )


def advise_protection(config: Density, _evidence: Evidence | None) -> tuple[str, ...]:
    return (
        "Treat every tested image as possibly memorised before you share the model or images that it generates: the "
        "audit cannot tell which ones are.",
        _advise_retraining(config),
    )


def advise_search(config: Density, _evidence: Evidence | None) -> tuple[str, ...]:
    """Advise on near copies, which are found only in images that Engram holds."""
    setting = "" if is_about_records(config) else " (`question=duplicates`)"
    return (f"Check the data for near copies of images, which this audit cannot assess{setting}.",)


def _advise_retraining(config: Density) -> str:
    """Advise training differently. A program of the user has settings of its own for privacy."""
    question = config.question
    is_users_own = isinstance(question, Memorization) and isinstance(question.training, Program)
    return advise_retraining("" if is_users_own else "privacy.epsilon=8", "remove near copies from the data")


def name_models(config: Density) -> str:
    """Name the models that were examined."""
    question = config.question
    if not isinstance(question, Memorization):
        return "The audit examined no model."
    if question.leaves_out_rows:
        count = question.repetitions
        trained = f"The audit trained models with this training recipe, {count} with and {count} without each image."
        return f"{trained} {NOT_DEPLOYED}"
    models = question.repetitions * question.models
    return describe_trained(models, f", each without one of {question.models} random parts of the images")


def advise_more_repetitions(config: Density, _evidence: Evidence | None = None) -> tuple[str, ...]:
    """Advise on more trainings, for which trained models are reused."""
    if not isinstance(config.question, Memorization):
        return ("Audit trained models (`question=memorization`).",)
    repetitions = max(20, 2 * config.question.repetitions)
    return (
        f"Repeat the training at least {repetitions} times, and audit again; trained models are reused "
        f"(`repetitions={repetitions}`).",
    )


def explain_count(config: Memorization, evidence: Evidence) -> Iterator[str]:
    """State the number of memorised images, how strongly they are memorised, and the number of false alarms."""
    count = evidence.count
    n = evidence.identified_share["n"]
    if not count:
        yield f"The audit identified none of the {n:,} tested images as memorised."
        return
    yield f"{count:,} of the {n:,} tested images {'is' if count == 1 else 'are'} identified as memorised."
    if config.is_null:
        return
    typical = evidence.background.median_identified
    if typical is not None and typical["estimate"] is not None:
        yield (
            f"{PROBABILITY} For a typical one of them, it is {format_factor(typical['estimate'])} as large in "
            "models that trained on the image as in models that did not."
        )
    yield from explain_false_alarms(count)


def explain_false_alarms(count: int) -> Iterator[str]:
    """The expected number of false alarms; for fewer than one, the error rate of the audit says more."""
    expected = LEVEL * count
    if expected >= 1:
        yield f"On average, at most {expected:.0f} of them are false alarms."


def explain_all_together(config: Memorization, evidence: Evidence) -> Iterator[str]:
    n = evidence.identified_share["n"]
    if config.is_null:
        yield f"The audit identified none of the {n:,} tested images as memorised."
        yield "Taken together, however, the results of all images differ more than chance explains."
        return
    yield (
        f"At least {fewest_memorised(evidence):,} of the {n:,} tested images are memorised (95 % confidence). The "
        "results of all images together show this; no single image can be identified."
    )


def fewest_memorised(evidence: Evidence) -> int:
    """Return the lower 95 % limit of the number of memorised images."""
    assert evidence.excess is not None, "only images that are counted together have a lower limit"
    return round(float(evidence.excess["low"]) * int(evidence.identified_share["n"]))


def explain_detection_limit(evidence: Evidence) -> Iterator[str]:
    """State the weakest memorisation of a single image that the audit detects."""
    if evidence.detection_limit is not None and evidence.detection_limit["estimate"] is not None:
        yield (
            f"If training made the probability of a single image {format_factor(evidence.detection_limit['estimate'])} "
            f"as large, the audit would detect it in {100 * FOUND:.0f} of 100 repetitions of the audit."
        )
    if not evidence.would_find_one:
        yield "The audit could have missed a memorised image."


def explain_doubt(evidence: Evidence) -> Iterator[str]:
    """Why the answer is undecided, unless the detection limit has explained it."""
    if evidence.by_chance <= SIGNIFICANT:
        yield "More images stand out than chance explains, but not clearly enough to report memorisation."
    elif not evidence.gap_is_negligible:
        yield "The average effect of training may be large enough to matter, so memorisation cannot be ruled out."


def explain_gap(config: Memorization, evidence: Evidence) -> Iterator[str]:
    """State the generalisation gap as a change of the probability, with an interval."""
    if evidence.gap is None:
        gap = None
    else:
        gap = blank_weak_interval(evidence.gap)
    if gap is None or gap["low"] is None:
        return
    change = describe_change(gap["estimate"], gap["low"], gap["high"])
    interval = f"(95 % interval: {change.interval})"
    if config.is_null:
        yield (
            f"On average, an image that is counted as a training image is {change.words} {interval}, compared with "
            "another one."
        )
        return
    yield (
        f"On average, training on an image makes it {change.words} {interval}. This average does not describe any "
        "single image."
    )


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
    label = f"how many times as probable {subject}, on average"
    if is_large:
        label = f"powers of ten by which {subject} more probable, on average"

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
