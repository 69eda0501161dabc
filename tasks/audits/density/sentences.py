"""The verdict's sentences: the evidence, the reasons of an answer, and remarks, for experts."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.density.config import Memorization
from tasks.audits.density.evidence import SIGNIFICANT, SURELY, Background, Evidence
from tasks.audits.density.measures.scores import FEW_SAMPLES, FOUND
from tasks.audits.density.tail import LEAST_DRAWS, LEVEL
from tasks.contract.summaries import Row, blank_weak_interval, numerator, p_in_words
from tasks.training.recipe import Privacy

FEW = 4  # repetitions: the t interval of three is 2.2 times as wide as that of many
ROUGH = 0.1  # of the samples


def describe_count(evidence: Evidence) -> str:
    """How many observations are called, and by how much they are memorised."""
    count, n, beside = evidence.count, evidence.called["n"], evidence.background
    which = {0: f"none of {n:,} observations is", 1: f"one of {n:,} observations is"}
    those = which.get(count, f"{count:,} of {n:,} observations are")
    words = f"{those} memorised by more than {evidence.negligible:g} nats at {100 * LEVEL:g} % false discoveries"
    if not count or beside.median_called is None or beside.highest_called is None:
        return words
    typical, most = beside.median_called["estimate"], beside.highest_called["estimate"]
    return f"{words} (matched-count M {typical:.4g} nats at the median of these, {most:.4g} at most)"


def describe_all_together(evidence: Evidence) -> Iterator[str]:
    """How many observations are memorised beyond chance, whichever these are."""
    beyond = evidence.beyond
    if beyond is None or beyond["p_value"] is None:
        return
    n, p = evidence.called["n"], p_in_words(beyond["p_value"])
    those = f"The p-values of all {n:,} observations together"
    if beyond["p_value"] > SIGNIFICANT:
        yield f"{those} show no more than chance ({p})."
    elif beyond["p_value"] > SURELY:
        yield f"{those} do not show at {100 * SURELY:g} % that any is memorised ({p})."
    else:
        yield f"{those} show that at least {round(beyond['low'] * n):,} are memorised ({p})."
        yield (
            "That number includes those called above; the others cannot be identified."
            if evidence.count
            else "These cannot be identified."
        )


def describe_gap(config: Memorization, evidence: Evidence) -> Iterator[str]:
    """The generalisation gap with its interval and test; nothing where no observation has one."""
    gap = evidence.gap
    if gap is None or gap["estimate"] is None:
        return
    low, high = (blank_weak_interval(gap)[end] for end in ("low", "high"))
    several, folds = "s" if gap["n"] > 1 else "", not config.leaves_out_rows
    models = f"pair{several} of models with and without it"
    if folds:
        models = f"random partition{several} into {config.models} folds"
    few = ", wide for so few" if gap["n"] < FEW else ""
    interval = "no interval" if low is None else f"95 % interval {low:.4g} to {high:.4g}{few}"
    # None where all models give the same, of one pair of models, or where observations differ in their models.
    test = "no p-value"
    if gap["p_value"] is not None:
        method = "randomisation" if folds else "one-tailed t-test"
        test = f"{method} {p_in_words(gap['p_value'])} that it is at most {config.negligible:g}"
    yield (
        "The generalisation gap, by which training on an image raises its log p on average, is "
        f"{gap['estimate']:.4g} nats ({interval}, over {gap['n']} {models}; {test})."
    )


def describe_found(evidence: Evidence) -> Iterator[str]:
    """Which memory of a single observation would have been found."""
    found = evidence.found
    if found is None:
        return
    power = f"{100 * FOUND:.0f} % of cases"
    if found["estimate"] is not None:
        upper = "no upper limit" if found["high"] is None else f"95 % interval up to {found['high']:.4g}"
        yield (
            f"A single observation that is memorised by {found['estimate']:.4g} nats ({upper}) would be found in "
            f"{power}."
        )
        return
    resolution = evidence.resolution
    advice = "To find a single one, train more repetitions."
    if resolution is not None and not resolution.finds_one:
        advice = resolution.explain()
    because = " An observation can be called here because many have small p-values." if evidence.count else ""
    yield (
        f"If only one of the {evidence.called['n']:,} observations were memorised, this run would call it in fewer "
        f"than {power}, however strongly it were memorised.{because} {advice}"
    )


def reasons_of_doubt(config: Memorization, evidence: Evidence) -> Iterator[str]:
    """Why nothing is decided."""
    gap, found = evidence.gap, evidence.found
    if evidence.by_chance <= SIGNIFICANT:
        yield f"Chance brings as many small p-values in {100 * evidence.by_chance:.2g} % of runs alone."
    if evidence.beyond is None and not config.leaves_out_rows:
        yield f"P-values from fewer than {LEAST_DRAWS:,} permutations are not counted together: draw more."
    if found is not None and found["estimate"] is not None and not evidence.would_find_one:
        yield f"*Not detected* requires that {config.detectable:g} nats would be detected: train more repetitions."
    if gap is None or gap["estimate"] is None:
        return
    if blank_weak_interval(gap)["high"] is None:
        few = "One repetition has" if gap["n"] == 1 else f"{gap['n']} repetitions have"
        yield f"{few} no interval of the gap: train more."
    elif not evidence.gap_is_negligible:
        yield (
            f"The gap may be as much as {gap['high']:.4g} nats, which is not negligible, and is no evidence that any "
            "observation is memorised."
        )


def remarks(config: Memorization, beside: Background) -> Iterator[str]:
    """What a reader must know in addition to the answer."""
    fewest = beside.fewest_models
    if fewest is not None:
        yield (
            f"Some trainings are missing: an observation has {fewest['estimate']:.0f} models or more of the "
            f"{fewest['n']} planned."
        )
    if not config.leaves_out_rows and beside.whole is None:
        yield "The training on all data is missing: there is no loss of it, and no image drawn."
    median, below = beside.effective, beside.few_effective
    if median is not None and below is not None and median["estimate"] < ROUGH * config.samples:
        yield (
            f"Log p is rough: of the {config.samples} codes that it is estimated with half of the observations "
            f"effectively have {median['estimate']:.3g} or fewer, and {100 * below['estimate']:.0f} % fewer than "
            f"{FEW_SAMPLES} (median over an observation's models, n = {median['n']:,}); a score is then of the encoder "
            "as well as of the density."
        )
    if config.training.guarantee is not None:
        yield _describe_privacy(config.training.guarantee, beside)
    if beside.planted is not None:
        yield _describe_planted(config, beside.planted)


def _describe_planted(config: Memorization, planted: Row) -> str:
    """How many of the observations that were planted are called, which says what such an audit finds in such data."""
    low, high = (100 * planted[end] for end in ("low", "high"))
    return (
        f"Of the {planted['n']} images that were planted ({config.planting}) {numerator(planted)} are called (95 % "
        f"interval {low:.0f} to {high:.0f} %), which is how often an audit like this finds such images; the answer "
        "speaks of them, too."
    )


def _describe_privacy(privacy: Privacy, beside: Background) -> str:
    """The guarantee of differential privacy, and how it compares with the scores."""
    promise = (
        f"Training was ({privacy.epsilon:g}, {privacy.delta:g})-differentially private, which bounds no single score"
    )
    largest, above = beside.largest, beside.above_epsilon
    if largest is None or above is None:
        return f"{promise}."
    count = numerator(above)
    return f"{promise}: the largest is {largest['estimate']:.4g} nats, and {count} of {above['n']} are above epsilon."


def describe_published_score(beside: Background) -> str:
    """The published score and its value where nothing is memorised; empty where they are unknown."""
    median, matched = beside.published, beside.matched
    if median is None or matched is None or median["estimate"] is None or median["null"] is None:
        return ""
    return (
        f"The published score has a median of {median['estimate']:.4g} nats, and of {median['null']:.4g} where nothing "
        f"is memorised; with as many models on either side it is {matched['estimate']:.4g}."
    )
