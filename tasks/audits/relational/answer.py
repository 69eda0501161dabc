"""The audit's answer: the rules that decide, with their words, and what a search over training choices moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from tasks.audits.relational import plain_words as plain
from tasks.audits.relational import sentences
from tasks.audits.relational.config import Answers, Relational, given_system, is_null
from tasks.audits.relational.evaded_answers import FEW_RIGHT, MOST_FIXED, MOST_OTHER_KIND
from tasks.audits.relational.evidence import Evidence, decisive_name, decisive_questions, read_evidence
from tasks.audits.relational.repeated_questions import MOST_TWO_ANSWERS, describe_key
from tasks.contract.answering import Answering, Null
from tasks.contract.certificate import Certificate
from tasks.contract.objectives import Objective, Objectives
from tasks.contract.rules import Case, Rules, applies_always, undecided
from tasks.contract.summaries import Row, index_rows
from tasks.contract.verdict import ANSWERS, BELOW_RELEVANT_SIZE, NOT_ASSESSABLE, Answer, Meaning, Verdict

MEANINGS: Mapping[Answer, Meaning] = {
    "memorised": ANSWERS["memorised"],
    "not detected": ANSWERS["not detected"],
    BELOW_RELEVANT_SIZE: ANSWERS[BELOW_RELEVANT_SIZE],
    "undecided": ANSWERS["undecided"],
    NOT_ASSESSABLE: ANSWERS[NOT_ASSESSABLE],
}


def is_given(config: Relational) -> bool:
    return given_system(config) is not None


def is_blinded(config: Relational) -> bool:
    system = given_system(config)
    return system is not None and system.is_blinded


def thresholds(config: Relational) -> Mapping[str, str]:
    """The numbers in the rules' texts, in per cent; at their defaults if no answers are asked for."""
    question = config.question if isinstance(config.question, Answers) else Answers()
    return {
        "negligible": f"{100 * question.negligible:g}",
        "other_kind": f"{100 * MOST_OTHER_KIND:g}",
        "few_right": f"{100 * FEW_RIGHT:g}",
        "fixed": f"{100 * MOST_FIXED:g}",
        "two_answers": f"{100 * MOST_TWO_ANSWERS:g}",
    }


ERROR = "Of 100 models that do not hold which answer belongs to which context, at most 2 or 3 would be called so."
FEW_RIGHT_ERROR = "Of 100 systems that guess as well as the best constant, at most 5 are not assessable."
WORSE_ERROR = "Of 100 systems that answer both parts alike, at most 2 or 3 are not assessable for it."


def refuse(
    when: str,
    holds: Callable[[Evidence], bool],
    because: Callable[[Relational, Evidence], str],
    error: str = "",
    steps: tuple[str, ...] = plain.BEST_GUESSES,
    scope: str = "",
    applies: Callable[[Relational], bool] = applies_always,
) -> Case[Evidence]:
    """A case of *not assessable*. Silence and noise make m small, so that its certificate states no m."""
    return Case(NOT_ASSESSABLE, when, holds, error, scope, applies, because, steps=steps)


# Silence, fixed texts and noise can hide a memory, but cannot feign one: none is asked before the interval accuses.
RULES = Rules[Evidence](
    (
        Case(
            "memorised",
            "the whole 95 % interval of relational m (resampled over contexts) lies above {negligible} percentage "
            "points",
            lambda evidence: evidence.m["low"] > evidence.negligible,
            ERROR,
            because=lambda _config, _evidence: f". {ERROR}",
            steps=plain.REMOVE_ANSWERS,
        ),
        refuse(
            "more than {other_kind} % of the answers to the corrupted contexts of a part are not of the kind of the "
            "reference answers (empty, no number where these are numbers, or more words beside it than these have)",
            lambda evidence: any(each.other_kind > MOST_OTHER_KIND for each in evidence.evasions),
            sentences.explain_other_kind,
            scope="answers that were sent",
            applies=is_given,
        ),
        refuse(
            "the commonest answer to the corrupted contexts of a part has a share there that is more than {fixed} "
            "percentage points larger than among the reference answers",
            lambda evidence: evidence.one_text > MOST_FIXED,
            sentences.explain_fixed_text,
        ),
        refuse(
            "of the answers to the corrupted contexts of a part that are of the kind of the reference answers, fewer "
            "are right than the best constant would give (exact binomial test, p at most {few_right} % for each part; "
            "the constant is the commonest reference answer of the other part)",
            lambda evidence: evidence.few_right is not None,
            sentences.explain_few_right,
            FEW_RIGHT_ERROR,
            scope="answers that were sent",
            applies=is_given,
        ),
        refuse(
            "the whole interval of relational m lies below -{negligible} percentage points: training questions are "
            "answered worse than held-out ones",
            lambda evidence: evidence.m["high"] < -evidence.negligible,
            sentences.explain_deficit,
            WORSE_ERROR,
            scope="answers that were sent",
            applies=is_given,
        ),
        refuse(
            "more than {two_answers} % of the questions that were asked twice got two answers, or these could not be "
            "checked, since noise must not pass for innocence either",
            lambda evidence: evidence.repeats is None or not evidence.repeats.are_consistent,
            sentences.explain_repeats,
            steps=plain.ONE_FILE,
            scope="answers to questions that were handed out blinded",
            applies=is_blinded,
        ),
        Case(
            BELOW_RELEVANT_SIZE,
            "the whole interval lies above 0 and below {negligible} percentage points",
            lambda evidence: evidence.m["low"] > 0 and evidence.m["high"] < evidence.negligible,
            because=sentences.exclude_memory,
            steps=plain.MORE_QUESTIONS,
        ),
        Case(
            "not detected",
            "the whole interval lies below {negligible} percentage points; of answers that were sent, also once those "
            "of another kind and those of the ten commonest texts (above their share of the reference answers) are "
            "taken for evasions of what is known, and only if the interval does not lie below 0",
            lambda evidence: evidence.upper < evidence.negligible and not evidence.is_negative,
            because=sentences.exclude_memory,
            steps=plain.OTHER_QUESTIONS,
        ),
        undecided(because=sentences.explain_doubt, steps=plain.MORE_QUESTIONS),
    ),
    thresholds,
)

LIMITS = (
    "Relational m is an average over contexts, which clears no single one. The audit compares training questions with "
    "held-out ones, which must be drawn alike: where training questions are "
    "easier to guess, m is above 0 without memory. It speaks of the answers to these questions alone, asked as they "
    "are. A model that gives other answers to corrupted contexts than it could, by intent or by design, is cleared."
)
LINEAR_LIMITS = "The linear model shows how memorization comes and goes; it is no evidence on any model of one's own."


def describe_limits(config: Relational, evidence: Evidence | None) -> str:
    if not isinstance(config.question, Answers):
        return LINEAR_LIMITS
    if evidence is None:
        return LIMITS
    return " ".join([LIMITS, *describe_key(config, evidence.repeats)])


def explain_absence(config: Relational) -> str:
    """Why there is no evidence."""
    if isinstance(config.question, Answers):
        return "no questions have been answered on both parts."
    return "this run computes the paper's linear model only."


ANSWERING = Answering[Evidence](
    asked=lambda _config, _evidence: plain.ASKED,
    rules=RULES,
    read=read_evidence,
    unread=explain_absence,
    limits=describe_limits,
    describe=sentences.describe_evidence,
    rows=lambda evidence: (evidence.name,),
    remarks=sentences.remarks,
    published=sentences.describe_published_m,
    explain=plain.explain_share,
    line=plain.draw_share,
    null=Null(
        holds=is_null,
        remark=lambda _config: "Answers were drawn anew in every epoch of training: this is a null.",
        proper="relation=kept",
        notice=plain.NOTICE_OF_NULL,
    ),
)


def verdict(config: Relational, summary: pa.Table) -> Verdict:
    return ANSWERING.verdict(config, summary)


def certificate(config: Relational, summary: pa.Table, verdict: Verdict) -> Certificate:
    return ANSWERING.certificate(config, summary, verdict)


def memorization_row(config: Relational, summary: pa.Table) -> Row | None:
    """The row of relational m on which the answer rests."""
    rows = index_rows(summary)
    questions = decisive_questions(config, rows)
    return None if questions is None else rows[decisive_name("relational m", questions)]


def utility_row(config: Relational, summary: pa.Table) -> Row | None:
    """The row of s on held-out questions beside it: the share that is answered rightly from whole contexts."""
    rows = index_rows(summary)
    questions = decisive_questions(config, rows)
    return None if questions is None else rows.get(decisive_name("s", questions, split="validation"))


OBJECTIVES = Objectives(
    memorization=Objective("relational m", "share", "lower", memorization_row),
    utility=Objective("held-out accuracy", "share", "higher", utility_row),
    allowance=0.02,
)
