"""The answer for somebody who knows no machine learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tasks.audits.relational.config import Relational
from tasks.audits.relational.verdict import ERROR, NOT_JUDGED, REFUSES, TOUCHED, two_answers
from tasks.certificate import ELSE, Boundary, Certificate, Finding, NumberLine, line_of, of_hundred, steps_of_null
from tasks.verdict import Verdict

Row = Mapping[str, Any]
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
    rows = {(row["metric"], row["setting"]): row for row in summary.to_pylist()}
    m = next((rows[name] for name in verdict.rows if name in rows), None) if config.asks else None
    return Certificate(
        asked=(
            "Does a model that answers questions know answers by heart from its training texts, instead of reading "
            "them?"
        ),
        findings=(
            Finding(
                verdict.answer,
                f"{NULL if config.is_null else ''}{in_plain_words(m, verdict)}",
                line(config, m, verdict),
            ),
        ),
        rule=rule(config),
        error=f"{ERROR}.",
        beyond=verdict.limits,
        steps=steps(config, verdict.answer, bool(two_answers(config, rows))),
    )


def rule(config: Relational) -> str:
    """When which answer is given, in the order in which the conditions are asked."""
    sentences = []
    if config.given is not None:
        sentences.append(
            f"The answer is “not judged” where more than {100 * REFUSES:.0f} percentage points more of the held-out "
            "questions go unanswered once the answer is taken out. Where that is not so, the other answers are given."
        )
    sentences.append(
        "The answer is “memorised” where the whole 95 % interval of the share lies above 0 (resampled over contexts)."
    )
    if config.given is not None and config.given.is_blinded:
        sentences.append(
            f"The answer is “not judged” where it does not, and more than {100 * TOUCHED:.0f} % of the "
            f"questions that were asked twice got "
            "two answers, or these could not be checked."
        )
    sentences.append(
        "The answer is “not seen” where none of these conditions holds and the whole interval lies below "
        f"{100 * config.negligible:g} percentage points. {ELSE}"
    )
    return " ".join(sentences)


def line(config: Relational, m: Row | None, verdict: Verdict) -> NumberLine | None:
    """m; None where it is not judged, since silence makes it small."""
    if verdict.answer == NOT_JUDGED:
        return None
    what = (
        "more hidden answers given of texts that were trained on"
        if config.is_null
        else "hidden answers given from memory"
    )
    boundaries = (
        Boundary(0.0, "memorised if the whole interval lies above"),
        Boundary(config.negligible, "not seen only if the whole interval lies below", clears=True),
    )
    return line_of(m, f"{what}, as a share (relational m)", boundaries=boundaries)


def in_plain_words(m: Row | None, verdict: Verdict) -> str:
    if m is None or m["estimate"] is None or m["low"] is None or verdict.answer == NOT_JUDGED:
        return verdict.sentence
    share, low, high = (of_hundred(of) for of in (abs(m["estimate"]), m["low"], m["high"]))
    return (
        "With the answers taken out of the texts, the share of answers that the model still gives is "
        f"{share} percentage points {'higher' if m['estimate'] >= 0 else 'lower'} for texts that it was trained "
        f"on than for others (95 % interval {low} to {high} percentage points; 0 where nothing is memorised)."
    )


def steps(config: Relational, answer: str, is_touched: bool = False) -> tuple[str, ...]:
    if config.is_null:
        return steps_of_null(answer, "relation=kept")
    if answer == "memorised":
        return (
            "Treat the answers in the training texts as disclosed to whoever can ask the model.",
            "Take them out of the texts, or train for fewer epochs or with differential privacy, and audit again.",
        )
    if answer == "not seen":
        return ("Keep this page with the files that it names; ask other questions of the same texts, too.",)
    if answer == NOT_JUDGED and is_touched:
        return ("Ask for one file, of what one system says of every question, and audit that.",)
    if answer == NOT_JUDGED:
        return ("Ask for a system that answers every question, also where the text does not hold the answer.",)
    return ("Ask more questions (examples=0, held_out=0), or train more replicates.",)
