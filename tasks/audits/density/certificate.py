"""The answer for somebody who knows no machine learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tasks.audits.density.config import Density
from tasks.audits.density.measures.scores import BEYOND_CHANCE, FOUND, LEAST_FOUND
from tasks.audits.density.tail import LEAST_DRAWS, LEVEL
from tasks.audits.density.verdict import ROWS, SIGNIFICANT, SURELY
from tasks.certificate import ELSE, Boundary, Certificate, Finding, NumberLine, chances, line_of, steps_of_null
from tasks.summaries import blank_weak_interval, index_rows
from tasks.verdict import Verdict

Row = Mapping[str, Any]
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


def certificate(config: Density, summary: pa.Table, verdict: Verdict) -> Certificate:
    rows = index_rows(summary)
    return Certificate(
        asked="Does a generative model that is trained in this way keep single images of its training data?",
        findings=(Finding(verdict.answer, in_plain_words(config, rows, verdict), line(config, rows, verdict)),),
        rule=rule(config),
        error=(
            f"Of 100 audits of models that keep nothing, {often(config)} {100 * LEVEL:.0f} say memorised; of the "
            f"images that are called, {often(config)} {100 * LEVEL:.0f} in 100 are called wrongly."
        ),
        beyond=verdict.limits,
        steps=steps(config, verdict.answer),
    )


def often(config: Density) -> str:
    """Whether the error is near its bound: with rows left out one by one the test holds whatever they share."""
    return "about" if config.estimator == "kfold" else "at most"


def rule(config: Density) -> str:
    """By which tests; that of all images together is made with folds alone."""
    counted = config.estimator == "kfold"
    together = (
        f", or where so many p-values are small that chance brings as many in at most {1000 * SURELY:g} of "
        f"1,000 audits "
        f"(counted where every p-value is of at least {LEAST_DRAWS:,} permutations, or of all there are)"
    )
    by_chance = (
        f", p-values were counted and chance brings as many small ones in over {100 * SIGNIFICANT:g} of 100 audits"
    )
    return (
        f"The answer is “memorised” where images are called at {100 * LEVEL:g} % false discoveries (one side "
        f"of a randomisation test of "
        f"each, that training raises its log probability by no more than {config.negligible:g} nats)"
        f"{together if counted else ''}. The answer is “not seen” where no image is "
        f"called{by_chance if counted else ''}, "
        f"the whole 95 % interval of how much training raises it on average lies below {config.negligible:g} nats, and "
        "a single image "
        f"that is memorised by {config.detectable:g} nats would be found in {100 * FOUND:.0f} % of cases, by the upper "
        f"limit of what is needed for that. {ELSE}"
    )


def in_plain_words(config: Density, rows: Mapping[tuple[str, str], Row], verdict: Verdict) -> str:
    null = "This is a null: no model was trained on the images that are asked about. " if config.is_null else ""
    return f"{null}{told(config, rows, verdict)}"


def told(config: Density, rows: Mapping[tuple[str, str], Row], verdict: Verdict) -> str:
    """What was found, in words."""
    called, gap = rows.get(ROWS[0]), rows.get(ROWS[1])
    if called is None or called["estimate"] is None:
        return verdict.sentence
    of_metric = {metric: row for (metric, _), row in rows.items()}
    count, n = round(called["estimate"] * called["n"]), called["n"]
    by = f"memorised by more than {config.negligible:g} nats, at {100 * LEVEL:g} % false discoveries"
    sentences = [
        f"Of {n:,} images {count:,} {'is' if count == 1 else 'are'} called, one by one, {by}."
        if count
        else f"Of {n:,} images none is called {by}."
    ]
    beyond = of_metric.get(BEYOND_CHANCE)
    if not count and beyond is not None and (beyond["p_value"] or 1.0) <= SURELY:
        some = "" if config.is_null else " Some images are therefore memorised, but they cannot be identified."
        sentences.append(f"The p-values of all images together show more than chance.{some}")
    found = of_metric.get(LEAST_FOUND)
    if verdict.answer != "memorised" and found is not None and found["estimate"] is not None:
        sentences.append(
            f"A single image would have been found from about {found['estimate']:.3g} nats on, as many as make it "
            "more probable by that power of e."
        )
    gap = None if gap is None else blank_weak_interval(gap)
    if gap is not None and gap["low"] is not None:
        by_how_much = f"{gap['estimate']:.3g} nats (95 % interval {gap['low']:.3g} to {gap['high']:.3g})"
        sentences.append(
            f"On average the log probability of an image that is counted as trained on is higher by {by_how_much}."
            if config.is_null
            else f"On average training on an image raises its log probability by {by_how_much}, which says nothing of "
            "any single one."
        )
    return " ".join(sentences)


def line(config: Density, rows: Mapping[tuple[str, str], Row], verdict: Verdict) -> NumberLine | None:
    """The row that decided: how many are called; p of all together; else the average gap."""
    first = next((rows[name] for name in verdict.rows if name in rows), None)
    if first is None or first["estimate"] is None:
        return None
    if verdict.answer == "memorised" and first["metric"] == BEYOND_CHANCE:
        return chances(first["p_value"], SURELY)
    if verdict.answer == "memorised":
        n = first["n"]
        one = (Boundary(1.0, "memorised from one on"),)
        return NumberLine(f"images, of {n:,}, that are called memorised", first["estimate"] * n, null=0.0,
                          boundaries=one)  # fmt: skip
    limit = Boundary(config.negligible, "not seen only if the whole interval lies below", clears=True)
    return line_of(
        rows.get(ROWS[1]),
        "how much higher the log probability is of images that are counted as trained on, on average, in nats"
        if config.is_null
        else "how much training on an image raises its log probability on average, in nats",
        boundaries=(limit,),
    )


def steps(config: Density, answer: str) -> tuple[str, ...]:
    if config.is_null:
        return steps_of_null(answer, "asked=train")
    if answer == "memorised":
        return (
            "Look at the images that are called (the table scores) before the model, or what it draws, is given away.",
            "Train with fewer epochs, without near copies, or with differential privacy, and audit again.",
        )
    if answer == "not seen":
        return ("Look for near copies (measures=duplicates): of those this audit says nothing.",)
    return ("Train more repetitions (repetitions=20): what is stored is not trained again.",)
