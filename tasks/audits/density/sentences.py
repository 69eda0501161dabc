"""Verdict sentences for experts: evidence, reasons for an answer, and remarks."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.density.config import Memorization
from tasks.audits.density.evidence import SIGNIFICANT, SURELY, Background, Evidence
from tasks.audits.density.measures.scores import FEW_SAMPLES, FOUND
from tasks.audits.density.plain_words import format_factor
from tasks.audits.density.tail import LEAST_DRAWS, LEVEL
from tasks.contract.summaries import Row, blank_weak_interval, numerator, p_in_words
from tasks.programs.config import Program
from tasks.training.recipe import Privacy

FEW = 4  # repetitions; the t interval of three is 2.2 times as wide as with many
ROUGH = 0.1  # as a share of the samples


def describe_count(evidence: Evidence) -> str:
    """State the number of identified images and how strongly they are memorised."""
    count = evidence.count
    n = evidence.identified_share["n"]
    background = evidence.background
    subject = f"{count:,} of {n:,} images"
    if count == 0:
        subject = f"none of {n:,} images"
    elif count == 1:
        subject = f"one of {n:,} images"
    factor = format_factor(evidence.negligible).removeprefix("about ")
    finding = f"{subject} became more than {factor} as likely by training on {'it' if count < 2 else 'them'}"
    rate = f"false discovery rate {100 * LEVEL:g} %"
    if not count or background.median_identified is None or background.highest_identified is None:
        return f"{finding} ({rate})"
    median = background.median_identified["estimate"]
    highest = background.highest_identified["estimate"]
    return (
        f"{finding} ({rate}; median {format_factor(median)}, maximum {format_factor(highest)}: matched-count M of "
        f"{median:.4g} and {highest:.4g} nats)"
    )


def describe_all_together(evidence: Evidence) -> Iterator[str]:
    """State how many images are memorised beyond chance, without identifying them."""
    excess = evidence.excess
    if excess is None or excess["p_value"] is None:
        return
    n = evidence.identified_share["n"]
    p = p_in_words(excess["p_value"])
    subject = f"Taken together, the p-values of all {n:,} images"
    if excess["p_value"] > SIGNIFICANT:
        yield f"{subject} are consistent with no memorisation ({p})."
    elif excess["p_value"] > SURELY:
        yield f"{subject} do not show memorisation at the {100 * SURELY:g} % level ({p})."
    else:
        yield f"{subject} show that at least {round(excess['low'] * n):,} images are memorised ({p})."
        if evidence.count:
            yield "This number includes the images counted above; the others cannot be identified."
        else:
            yield "These images cannot be identified."


def describe_gap(config: Memorization, evidence: Evidence) -> Iterator[str]:
    """Describe the generalisation gap, its interval and its test. Yields nothing if no image has a gap."""
    gap = evidence.gap
    if gap is None or gap["estimate"] is None:
        return
    low = blank_weak_interval(gap)["low"]
    high = blank_weak_interval(gap)["high"]
    plural = "s" if gap["n"] > 1 else ""
    has_folds = not config.leaves_out_rows
    models = f"pair{plural} of models trained with and without the image"
    if has_folds:
        models = f"random partition{plural} into {config.models} folds"
    few = ", wide because of few repetitions" if gap["n"] < FEW else ""
    if low is None:
        interval = "no interval"
    else:
        interval = f"95 % interval {low:.4g} to {high:.4g}{few}"
    # There is no p-value if all models agree, if there is one pair of models, or if images have different models.
    test = "no p-value"
    if gap["p_value"] is not None:
        method = "randomisation test" if has_folds else "one-sided t-test"
        test = f"{method} of at most {config.negligible:g}: {p_in_words(gap['p_value'])}"
    yield (
        "Generalisation gap (mean rise in an image's log p by training on it): "
        f"{gap['estimate']:.4g} nats ({interval}; {gap['n']} {models}; {test})."
    )


def describe_found(evidence: Evidence) -> Iterator[str]:
    """State the weakest memorisation of a single image that the run detects."""
    limit = evidence.detection_limit
    if limit is None:
        return
    power = f"{100 * FOUND:.0f} % of cases"
    if limit["estimate"] is not None:
        if limit["high"] is None:
            upper = "no upper limit"
        else:
            upper = f"95 % interval up to {limit['high']:.4g}"
        yield (
            f"A single image that is memorised by {limit['estimate']:.4g} nats ({upper}) would be detected in {power}."
        )
        return
    resolution = evidence.resolution
    advice = "To detect a single image, train more repetitions."
    if resolution is not None and not resolution.finds_one:
        advice = resolution.explain()
    because = ""
    if evidence.count:
        because = " Images are detected here because many have small p-values."
    yield (
        f"If only one of the {evidence.identified_share['n']:,} images were memorised, this run would detect it in "
        f"fewer than {power}, however strong its memorisation.{because} {advice}"
    )


def reasons_of_doubt(config: Memorization, evidence: Evidence) -> Iterator[str]:
    """Yield the reasons why the answer is undecided."""
    gap = evidence.gap
    limit = evidence.detection_limit
    if evidence.by_chance <= SIGNIFICANT:
        yield f"By chance alone, {100 * evidence.by_chance:.2g} % of runs have at least this number of small p-values."
    if evidence.excess is None and not config.leaves_out_rows:
        yield f"P-values are counted together only with {LEAST_DRAWS:,} permutations or more: raise permutations."
    if limit is not None and limit["estimate"] is not None and not evidence.would_find_one:
        yield (
            f"*Not detected* requires a detection limit of at most {config.detectable:g} nats: train more repetitions."
        )
    if gap is None or gap["estimate"] is None:
        return
    if blank_weak_interval(gap)["high"] is None:
        few = f"{gap['n']} repetitions give"
        if gap["n"] == 1:
            few = "One repetition gives"
        yield f"{few} no interval of the gap: train more repetitions."
    elif not evidence.gap_is_negligible:
        yield (
            f"The gap may be up to {gap['high']:.4g} nats, which is not negligible. A gap alone does not show that any "
            "image is memorised."
        )


def remarks(config: Memorization, background: Background) -> Iterator[str]:
    """Yield caveats that a reader needs in addition to the answer."""
    fewest = background.fewest_models
    if fewest is not None:
        yield (
            f"Some trainings are missing: the image with the fewest models has {fewest['estimate']:.0f} of the "
            f"{fewest['n']} planned."
        )
    trains_full_model = not (config.leaves_out_rows or isinstance(config.training, Program))
    if trains_full_model and background.full_model_loss is None:
        yield "The model of all data is missing, so its loss and its samples are not reported."
    median = background.effective
    below = background.few_effective
    if median is not None and below is not None and median["estimate"] < ROUGH * config.samples:
        yield (
            f"Estimates of log p are rough: of {config.samples} codes, {median['estimate']:.3g} or fewer contribute "
            f"effectively for half of the images, and fewer than {FEW_SAMPLES} for {100 * below['estimate']:.0f} % of "
            f"the images (median over an image's models, n = {median['n']:,}). Scores therefore depend on the encoder "
            "as well as on the density."
        )
    if config.guarantee is not None:
        yield _describe_privacy(config.guarantee, isinstance(config.training, Program), background)
    if background.planted is not None:
        yield _describe_planted(config, background.planted)


def _describe_planted(config: Memorization, planted: Row) -> str:
    """Describe the detection rate of planted images, which estimates what this audit detects in these data."""
    low = 100 * planted["low"]
    high = 100 * planted["high"]
    return (
        f"Of the {planted['n']} planted images ({config.planting}), {numerator(planted)} are identified (95 % "
        f"interval {low:.0f} to {high:.0f} %). This estimates how often this audit identifies such images. The answer "
        "includes them."
    )


def _describe_privacy(privacy: Privacy, is_stated: bool, background: Background) -> str:
    """Compare the differential privacy guarantee, which a program only states, with the scores."""
    promise = (
        f"Training was {'stated to be ' if is_stated else ''}({privacy.epsilon:g}, {privacy.delta:g})-differentially "
        "private, which does not bound a single score"
    )
    largest = background.largest
    above = background.above_epsilon
    if largest is None or above is None:
        return f"{promise}."
    count = numerator(above)
    return f"{promise}: the largest is {largest['estimate']:.4g} nats, and {count} of {above['n']} are above epsilon."


def describe_published_score(background: Background) -> str:
    """Describe the published score and its value without memorisation. Empty if they are unknown."""
    median = background.published
    matched = background.matched
    if median is None or matched is None or median["estimate"] is None or median["null"] is None:
        return ""
    return (
        f"The published score has a median of {median['estimate']:.4g} nats ({median['null']:.4g} nats without "
        f"memorisation). With equal numbers of models on both sides, the median is {matched['estimate']:.4g} nats."
    )
