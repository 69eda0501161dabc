"""The audit's answer for somebody who knows no machine learning, and its symbols explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from tasks.audits.density.answer import RULES, SURELY, TOGETHER
from tasks.audits.density.config import Density, Memorization
from tasks.audits.density.evidence import Evidence, read_evidence
from tasks.audits.density.tail import LEVEL
from tasks.contract.certificate import Boundary, Certificate, Finding, NumberLine, chances, line_of, steps_of_null
from tasks.contract.rules import Rule
from tasks.contract.summaries import blank_weak_interval
from tasks.contract.verdict import Answer, Verdict

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
NULL = "This is a null: no model was trained on the images that are asked about. "


def certificate(config: Density, summary: pa.Table, verdict: Verdict) -> Certificate:
    """The answer for a reader without a machine-learning background."""
    question = config.question if isinstance(config.question, Memorization) else None
    evidence = None if question is None else read_evidence(question, summary)
    sentence, line, is_null = verdict.sentence, None, question is not None and question.is_null
    if question is not None and evidence is not None:
        rule = RULES.decide(config, evidence)
        sentence = " ".join(describe_plainly(question, rule, evidence))
        line = number_line(question, rule, evidence)
    return RULES.certify(
        config,
        verdict,
        "Does a generative model that is trained in this way keep single images of its training data?",
        (Finding(verdict.answer, f"{NULL if is_null else ''}{sentence}", line),),
        next_steps(verdict.answer, is_null),
    )


def describe_plainly(config: Memorization, rule: Rule[Evidence], evidence: Evidence) -> Iterator[str]:
    """What was found, in words that need no statistics."""
    count, n = evidence.count, evidence.called["n"]
    called = f"memorised by more than {config.negligible:g} nats, at {100 * LEVEL:g} % false discoveries"
    if count:
        yield f"Of {n:,} images {count:,} {'is' if count == 1 else 'are'} called, one by one, {called}."
    else:
        yield f"Of {n:,} images none is called {called}."
    if rule is TOGETHER:
        yield "The p-values of all images together show more than chance."
        if not config.is_null:
            yield "Some images are therefore memorised, but they cannot be identified."
    if rule.answer != "memorised" and evidence.found is not None and evidence.found["estimate"] is not None:
        yield (
            f"A single image would have been found from about {evidence.found['estimate']:.3g} nats on, as many as "
            "make it more probable by that power of e."
        )
    gap = None if evidence.gap is None else blank_weak_interval(evidence.gap)
    if gap is not None and gap["low"] is not None:
        nats = f"{gap['estimate']:.3g} nats (95 % interval {gap['low']:.3g} to {gap['high']:.3g})"
        yield (
            f"On average the log probability of an image that is counted as trained on is higher by {nats}."
            if config.is_null
            else f"On average training on an image raises its log probability by {nats}, which says nothing of any "
            "single one."
        )


def number_line(config: Memorization, rule: Rule[Evidence], evidence: Evidence) -> NumberLine | None:
    """What decided: the number of images that are called, p of all together, or else the gap."""
    if rule is TOGETHER:
        return chances(evidence.by_chance, SURELY)
    if rule.answer == "memorised":
        n, one = evidence.called["n"], Boundary(1.0, "memorised from one on")
        what = f"images, of {n:,}, that are called memorised"
        return NumberLine(what, evidence.called["estimate"] * n, null=0.0, boundaries=(one,))
    limit = Boundary(config.negligible, "not seen only if the whole interval lies below", clears=True)
    what = (
        "how much higher the log probability is of images that are counted as trained on, on average, in nats"
        if config.is_null
        else "how much training on an image raises its log probability on average, in nats"
    )
    return line_of(evidence.gap, what, boundaries=(limit,))


def next_steps(answer: Answer, is_null: bool) -> tuple[str, ...]:
    if is_null:
        return steps_of_null(answer, "asked=train")
    if answer == "memorised":
        return (
            "Look at the images that are called (the table scores) before the model, or what it draws, is given away.",
            "Train with fewer epochs, without near copies, or with differential privacy, and audit again.",
        )
    if answer == "not seen":
        return ("Look for near copies (question=duplicates): of those this audit says nothing.",)
    return ("Train more repetitions (repetitions=20): what is stored is not trained again.",)
