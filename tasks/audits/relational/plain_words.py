"""The audit's answer for readers without a machine-learning background, and its symbols explained."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.audits.relational.config import Relational, is_null
from tasks.audits.relational.evidence import Evidence
from tasks.contract.certificate import Boundary, NumberLine, line_of, number_per_hundred

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
ASKED = "Does a model that answers questions know answers by heart from its training texts, instead of reading them?"
NOTICE_OF_NULL = (
    "This is a null: in training every question had the answer of another, of another one in every epoch, so that no "
    "answer could be memorised. "
)

REMOVE_ANSWERS = (
    "Treat the answers in the training texts as disclosed to whoever can ask the model.",
    "Take them out of the texts, or train for fewer epochs or with differential privacy, and audit again.",
)
OTHER_QUESTIONS = ("Keep this page with the files that it names; ask other questions of the same texts, too.",)
MORE_QUESTIONS = ("Ask more questions (examples=0, held_out=0), or train more replicates.",)
BEST_GUESSES = (
    "Ask for a system that answers every question by its best guess, also where the text does not hold the answer: "
    "without instructions or filters that make it refuse.",
)
ONE_FILE = ("Ask for one file, of what one system says of every question, and audit that.",)


def explain_share(_config: Relational, evidence: Evidence) -> str:
    """m in words that need no statistics."""
    m = evidence.m
    share, low, high = (number_per_hundred(value) for value in (abs(m["estimate"]), m["low"], m["high"]))
    return (
        "With the answers taken out of the texts, the share of answers that the model still gives is "
        f"{share} percentage points {'higher' if m['estimate'] >= 0 else 'lower'} for texts that it was trained "
        f"on than for others (95 % interval {low} to {high} percentage points; 0 where nothing is memorised)."
    )


def draw_share(config: Relational, evidence: Evidence) -> NumberLine | None:
    """m on a line."""
    label = (
        "more hidden answers given of texts that were trained on"
        if is_null(config)
        else "hidden answers given from memory"
    )
    boundaries = (
        Boundary(0.0, "memorised if the whole interval lies above"),
        Boundary(evidence.negligible, "not detected only if the whole interval lies below", clears=True),
    )
    return line_of(evidence.m, f"{label}, as a share (relational m)", boundaries=boundaries)
