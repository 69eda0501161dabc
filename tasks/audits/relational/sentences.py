"""The sentences of the verdict for experts: the evidence, the reason for each answer, and remarks."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.relational.config import Relational, given_system
from tasks.audits.relational.evaded_answers import describe_few_right, describe_other_kind
from tasks.audits.relational.evidence import Evidence
from tasks.audits.relational.repeated_questions import describe_repeats
from tasks.contract.rules import admit_size, exclude_size

MOST_SILENCE = 0.05  # share of unanswered held-out questions above which the verdict has a remark
ADEQUATE = 0.05  # share of correct answers on whole training contexts below which the model counts as untrained
REMOVED = {"digits": "digits", "names": "names", "pattern": "the pattern", "answers": "answers"}


def describe_evidence(_config: Relational, evidence: Evidence) -> str:
    """Describe r on both parts, and m with its interval."""
    m = evidence.m
    train, held_out = (f"{evidence.r[split]:.1%}".replace("%", " %") for split in ("train", "validation"))
    numeric = " with a numeric answer" if evidence.numeric else ""
    return (
        f"with {REMOVED[evidence.corruption]} removed from the contexts, relational m, corrected for common "
        f"answers, is {m['estimate']:.3f} (95 % interval {m['low']:.3f} to {m['high']:.3f}, {m['n']:,} contexts; 0 if "
        "nothing is memorised); the model "
        f"answers {train} of training questions{numeric} correctly, and {held_out} of held-out ones"
    )


def explain_other_kind(_config: Relational, evidence: Evidence) -> str:
    assert evidence.other_kind is not None, "the case holds only for answers that were sent"
    return (
        f"; however, on corrupted contexts {describe_other_kind(evidence.other_kind)}: a system that does not answer "
        "them cannot be assessed."
    )


def explain_fixed_text(_config: Relational, evidence: Evidence) -> str:
    return (
        f"; however, the most common answer to corrupted contexts exceeds its share of the reference answers by "
        f"{100 * evidence.one_text:.0f} percentage points: a fixed answer carries no information about memory."
    )


def explain_few_right(_config: Relational, evidence: Evidence) -> str:
    assert evidence.few_right is not None, "the case holds only if a part has few right answers"
    return f"; however, {describe_few_right(evidence.few_right)}: such a system does not attempt the questions."


def explain_deficit(_config: Relational, _evidence: Evidence) -> str:
    return "; however, a system that treats both parts equally is not worse on its training questions."


def explain_repeats(_config: Relational, evidence: Evidence) -> str:
    return f"; however, {describe_repeats(evidence.repeats)}."


def exclude_memory(_config: Relational, evidence: Evidence) -> str:
    return exclude_size(evidence.negligible)


def explain_doubt(_config: Relational, evidence: Evidence) -> str:
    """Explain an undecided verdict: training questions answered worse, evaded answers, or a wide interval."""
    high = evidence.m["high"]
    if evidence.is_negative:
        return (
            "; however, the interval is entirely below 0, so the system may evade training questions that it "
            "remembers. Ask for a system that gives its best guess for every question."
        )
    if high < evidence.negligible <= evidence.upper:
        evaded = max(evasion.evaded for evasion in evidence.evasions)
        return (
            f"; however, {100 * evaded:.0f} % of the answers to corrupted contexts are of another kind or among a few "
            "texts, which may hide more memory. Ask for a system that gives its best guess for every question."
        )
    return admit_size(high, "audit with more questions")


def remarks(config: Relational, evidence: Evidence) -> Iterator[str]:
    """Yield remarks on unanswered questions and on models that have learnt nothing."""
    silence = evidence.silence
    if given_system(config) is None and silence > MOST_SILENCE:
        yield (
            f"On corrupted contexts, {100 * silence:.0f} % more of the held-out questions are unanswered, as expected "
            "of a model that reads: the answer is not in the context."
        )
    if evidence.s is not None and evidence.s < ADEQUATE:
        yield (
            f"Warning: on whole contexts, only {100 * evidence.s:.2g} % of the training questions are answered "
            "correctly. The model has learnt too little to memorise anything."
        )


def describe_published_m(evidence: Evidence) -> str:
    """Describe m as published, with all gold answers. Returns an empty string if it does not differ."""
    if evidence.published is None:
        return ""
    return (
        f"As published, with all gold answers of held-out questions, m is {evidence.published:.3f}, which is biased "
        "downwards."
    )
