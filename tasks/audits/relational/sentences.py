"""The verdict's sentences for experts: the evidence, the reasons for each answer, and remarks."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.relational.config import Relational, given_system
from tasks.audits.relational.evaded_answers import describe_few_right, describe_other_kind
from tasks.audits.relational.evidence import Evidence
from tasks.audits.relational.repeated_questions import describe_repeats
from tasks.contract.rules import admit_size, exclude_size

MOST_SILENCE = 0.05  # held-out questions that a model asked here leaves unanswered without a remark
ADEQUATE = 0.05  # of training questions answered correctly on whole contexts: below this, nothing has been learnt
REMOVED = {"digits": "the digits", "names": "the names", "pattern": "the pattern", "answers": "the answers"}


def describe_evidence(_config: Relational, evidence: Evidence) -> str:
    """r on both parts and m with its interval."""
    m = evidence.m
    train, held_out = (f"{evidence.r[split]:.1%}".replace("%", " %") for split in ("train", "validation"))
    numeric = " with a numeric answer" if evidence.numeric else ""
    return (
        f"with {REMOVED[evidence.corruption]} taken out of the contexts, {train} of training questions{numeric} "
        f"are still answered rightly and {held_out} of held-out ones; corrected for answers that are "
        f"merely common, the difference, relational m, is {m['estimate']:.3f} (95 % interval {m['low']:.3f} to "
        f"{m['high']:.3f} over {m['n']:,} contexts; 0 where nothing is memorised)"
    )


def explain_other_kind(_config: Relational, evidence: Evidence) -> str:
    assert evidence.other_kind is not None, "the case holds only for answers that were sent"
    return (
        f"; but {describe_other_kind(evidence.other_kind)} once contexts are corrupted, and a system that does not "
        "answer there cannot be judged."
    )


def explain_fixed_text(_config: Relational, evidence: Evidence) -> str:
    return (
        f"; but {100 * evidence.one_text:.0f} % more of the answers to corrupted contexts are one and the same "
        "text than of the reference answers, and a fixed text says nothing of what is known."
    )


def explain_few_right(_config: Relational, evidence: Evidence) -> str:
    assert evidence.few_right is not None, "the case holds only if a part has few right answers"
    return f"; but {describe_few_right(evidence.few_right)}: a system that answers worse than that does not answer."


def explain_deficit(_config: Relational, _evidence: Evidence) -> str:
    return "; but a system that answers both parts alike is not worse on the questions that it was trained on."


def explain_repeats(_config: Relational, evidence: Evidence) -> str:
    return f"; but {describe_repeats(evidence.repeats)}."


def exclude_memory(_config: Relational, evidence: Evidence) -> str:
    return exclude_size(evidence.negligible)


def explain_doubt(_config: Relational, evidence: Evidence) -> str:
    """Why nothing is decided: training questions are answered worse, answers are evaded, or the interval is wide."""
    high = evidence.m["high"]
    if evidence.is_negative:
        return (
            "; but the whole interval lies below 0, and training questions that are answered worse than held-out ones "
            "may be those that are remembered: ask for a system that answers every question by its best guess."
        )
    if high < evidence.negligible <= evidence.upper:
        evaded = max(each.evaded for each in evidence.evasions)
        return (
            f"; but as much as {100 * evaded:.0f} % of the answers to corrupted contexts are of another kind or of a "
            "few texts, which may hide more: ask for a system that answers every question by its best guess."
        )
    return admit_size(high, "ask more questions")


def remarks(config: Relational, evidence: Evidence) -> Iterator[str]:
    """What a reader must know in addition to the answer."""
    silence = evidence.silence
    if given_system(config) is None and silence > MOST_SILENCE:
        yield (
            f"Of the held-out questions {100 * silence:.0f} % more go unanswered once their contexts are corrupted, as "
            "by a model that reads: there is nothing to be read."
        )
    if evidence.s is not None and evidence.s < ADEQUATE:
        yield (
            f"Warning: even on whole contexts only {100 * evidence.s:.2g} % of the training questions are answered "
            "rightly; a model that has learnt nothing has nothing to show."
        )


def describe_published_m(evidence: Evidence) -> str:
    """m as it is published, with all gold answers; empty if it does not differ."""
    if evidence.published is None:
        return ""
    return (
        f"As published, with all gold answers of held-out questions counted, m is {evidence.published:.3f}, which "
        "is biased downwards."
    )
