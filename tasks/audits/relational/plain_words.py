"""The audit's answer for somebody who knows no machine learning, and its symbols explained."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tasks.audits.relational.answer import RULES, TWO_ANSWERS, Evidence, read_evidence
from tasks.audits.relational.config import Relational, is_null
from tasks.contract.certificate import (
    Boundary,
    Certificate,
    Finding,
    NumberLine,
    line_of,
    number_per_hundred,
    steps_of_null,
)
from tasks.contract.summaries import index_rows
from tasks.contract.ties import NOT_JUDGED
from tasks.contract.verdict import Answer, Verdict

SYMBOLS: Mapping[str, str] = {
    "m": "relational memorization: the share of hidden answers that are given of training questions, minus that of "
    "held-out ones",
    "relational m": "m without what is answered because it is common",
    "r": "the share of questions answered rightly from contexts without the answer",
    "s": "the share of questions answered rightly from whole contexts",
    "mem": "m times the entropy of the answers, in nats",
    "golds": "against how many of the answers that count as right: the first one, or all",
    "H(X)": "the entropy of the hidden answers, in nats",
    "epsilon": "the bound of differential privacy",
}
NULL = (
    "This is a null: in training every question had the answer of another, of another one in every epoch, so that no "
    "answer could be memorised. "
)


def certificate(config: Relational, summary: pa.Table, verdict: Verdict) -> Certificate:
    """The answer for somebody who knows no machine learning."""
    evidence = read_evidence(config, index_rows(summary))
    told = f"{NULL if is_null(config) else ''}{describe_share(evidence, verdict)}"
    return RULES.certify(
        config,
        verdict,
        "Does a model that answers questions know answers by heart from its training texts, instead of reading them?",
        (Finding(verdict.answer, told, number_line(config, evidence, verdict)),),
        next_steps(config, verdict.answer, evidence),
    )


def number_line(config: Relational, evidence: Evidence | None, verdict: Verdict) -> NumberLine | None:
    """m; None where it is not judged, since silence makes it small."""
    if evidence is None or verdict.answer == NOT_JUDGED:
        return None
    what = (
        "more hidden answers given of texts that were trained on"
        if is_null(config)
        else "hidden answers given from memory"
    )
    boundaries = (
        Boundary(0.0, "memorised if the whole interval lies above"),
        Boundary(evidence.negligible, "not seen only if the whole interval lies below", clears=True),
    )
    return line_of(evidence.m, f"{what}, as a share (relational m)", boundaries=boundaries)


def describe_share(evidence: Evidence | None, verdict: Verdict) -> str:
    """m in words that need no statistics."""
    if evidence is None or evidence.m["low"] is None or verdict.answer == NOT_JUDGED:
        return verdict.sentence
    m = evidence.m
    share, low, high = (number_per_hundred(value) for value in (abs(m["estimate"]), m["low"], m["high"]))
    return (
        "With the answers taken out of the texts, the share of answers that the model still gives is "
        f"{share} percentage points {'higher' if m['estimate'] >= 0 else 'lower'} for texts that it was trained "
        f"on than for others (95 % interval {low} to {high} percentage points; 0 where nothing is memorised)."
    )


def next_steps(config: Relational, answer: Answer, evidence: Evidence | None) -> tuple[str, ...]:
    if is_null(config):
        return steps_of_null(answer, "relation=kept")
    if answer == "memorised":
        return (
            "Treat the answers in the training texts as disclosed to whoever can ask the model.",
            "Take them out of the texts, or train for fewer epochs or with differential privacy, and audit again.",
        )
    if answer == "not seen":
        return ("Keep this page with the files that it names; ask other questions of the same texts, too.",)
    if answer == NOT_JUDGED and evidence is not None:
        if RULES.decide(config, evidence) is TWO_ANSWERS:
            return ("Ask for one file, of what one system says of every question, and audit that.",)
        return (
            "Ask for a system that answers every question by its best guess, also where the text does not hold the "
            "answer: without instructions or filters that make it refuse.",
        )
    return ("Ask more questions (examples=0, held_out=0), or train more replicates.",)
