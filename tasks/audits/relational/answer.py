"""The verdict of the audit: its rules, their wording, and the objectives for a search over training choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from tasks.audits.relational import plain_words as plain
from tasks.audits.relational import sentences
from tasks.audits.relational.config import Answers, Relational, Trained, given_system, is_null
from tasks.audits.relational.evaded_answers import FEW_RIGHT, MOST_FIXED, MOST_OTHER_KIND
from tasks.audits.relational.evidence import Evidence, decisive_name, decisive_questions, read_evidence
from tasks.audits.relational.repeated_questions import MOST_TWO_ANSWERS, describe_key
from tasks.contract.answering import Answering, Null
from tasks.contract.certificate import Certificate
from tasks.contract.conditions import Condition, ensure, require
from tasks.contract.objectives import Objective, Objectives
from tasks.contract.rules import Case, Rules, applies_always, undecided
from tasks.contract.summaries import Row, index_rows
from tasks.contract.verdict import BELOW_RELEVANT_SIZE, NOT_ASSESSABLE, Answer, Meaning, Verdict, select_meanings

MEANINGS: Mapping[Answer, Meaning] = select_meanings(
    ("memorised", "not detected", BELOW_RELEVANT_SIZE),
    {
        "memorised": "Anyone who can query the model can obtain answers that are not in the text shown to it, but in "
        "its training texts.",
    },
)


def is_given(config: Relational) -> bool:
    return given_system(config) is not None


def is_blinded(config: Relational) -> bool:
    system = given_system(config)
    return system is not None and system.is_blinded


def thresholds(config: Relational) -> Mapping[str, str]:
    """Return the thresholds that appear in the rule text, as percentages."""
    if isinstance(config.question, Answers):
        question = config.question
    else:
        question = Answers()
    return {
        "negligible": f"{100 * question.negligible:g}",
        "other_kind": f"{100 * MOST_OTHER_KIND:g}",
        "few_right": f"{100 * FEW_RIGHT:g}",
        "fixed": f"{100 * MOST_FIXED:g}",
        "two_answers": f"{100 * MOST_TWO_ANSWERS:g}",
    }


ERROR = (
    "If the model does not know which answer belongs to which text, at most 2 or 3 of 100 audits answer “memorised”."
)
FEW_RIGHT_ERROR = "Of 100 systems that guess as well as the best constant answer, at most 5 are “not assessable”."
WORSE_ERROR = "Of 100 systems that answer both parts equally well, at most 2 or 3 are “not assessable” for this reason."


def refuse(
    condition: str,
    holds: Callable[[Evidence], bool],
    because: Callable[[Relational, Evidence], str],
    explain: Callable[[Relational, Evidence], str],
    error: str = "",
    steps: tuple[str, ...] | Callable[[Relational, Evidence | None], tuple[str, ...]] = plain.advise_best_guesses,
    scope: str = "",
    applies: Callable[[Relational], bool] = applies_always,
) -> Case[Evidence]:
    """Return a *not assessable* case. Its certificate states no m, because silence and noise make m small."""
    return Case(NOT_ASSESSABLE, condition, holds, error, scope, applies, because, steps=steps, explain=explain)


# Silence, fixed texts and noise can hide memory but cannot fake it, so these cases are checked after "memorised".
RULES = Rules[Evidence](
    (
        Case(
            "memorised",
            "the 95 % interval of relational m (resampled over contexts) is entirely above {negligible} percentage "
            "points",
            lambda evidence: evidence.m["low"] > evidence.negligible,
            ERROR,
            because=lambda _config, _evidence: f". {ERROR}",
            steps=plain.REMOVE_ANSWERS,
        ),
        refuse(
            "on the corrupted contexts of one part, more than {other_kind} % of the answers are not of the kind of the "
            "reference answers (empty, without a number if these are numbers, or with more words than these)",
            lambda evidence: any(each.other_kind > MOST_OTHER_KIND for each in evidence.evasions),
            sentences.explain_other_kind,
            plain.explain_refusals,
            scope="returned answers",
            applies=is_given,
        ),
        refuse(
            "on the corrupted contexts of one part, the share of the most common answer exceeds its share of the "
            "reference answers by more than {fixed} percentage points",
            lambda evidence: evidence.one_text > MOST_FIXED,
            sentences.explain_fixed_text,
            plain.explain_one_text,
        ),
        refuse(
            "on the corrupted contexts of one part, fewer answers of the kind of the reference answers are correct "
            "than the best constant answer would give (exact binomial test, p at most {few_right} % for each part; the "
            "constant is the most common reference answer of the other part)",
            lambda evidence: evidence.few_right is not None,
            sentences.explain_few_right,
            plain.explain_poor_guesses,
            FEW_RIGHT_ERROR,
            scope="returned answers",
            applies=is_given,
        ),
        refuse(
            "the interval of relational m is entirely below -{negligible} percentage points: training questions are "
            "answered worse than held-out ones",
            lambda evidence: evidence.m["high"] < -evidence.negligible,
            sentences.explain_deficit,
            plain.explain_negative_share,
            WORSE_ERROR,
            scope="returned answers",
            applies=is_given,
        ),
        refuse(
            "more than {two_answers} % of the repeated questions received two different answers, or repeated questions "
            "could not be checked: noise can hide memory",
            lambda evidence: evidence.repeats is None or not evidence.repeats.are_consistent,
            sentences.explain_repeats,
            plain.explain_two_answers,
            steps=plain.ONE_FILE,
            scope="returned answers to blinded questions",
            applies=is_blinded,
        ),
        Case(
            BELOW_RELEVANT_SIZE,
            "the interval is entirely above 0 and below {negligible} percentage points",
            lambda evidence: evidence.m["low"] > 0 and evidence.m["high"] < evidence.negligible,
            because=sentences.exclude_memory,
            steps=plain.MORE_QUESTIONS,
            explain=plain.explain_small_share,
        ),
        Case(
            "not detected",
            "the interval is entirely below {negligible} percentage points; for returned answers, this must also hold "
            "if all answers of another kind, and the excess of the ten most common texts over their share of the "
            "reference answers, count as evasions, and the interval must not be entirely below 0",
            lambda evidence: evidence.upper < evidence.negligible and not evidence.is_negative,
            because=sentences.exclude_memory,
            steps=plain.OTHER_QUESTIONS,
            explain=plain.explain_limit,
        ),
        undecided(because=sentences.explain_doubt, steps=plain.MORE_QUESTIONS, explain=plain.explain_open_share),
    ),
    thresholds,
)

LIMITS = (
    "The result is an average over texts: a single text may be memorised even if the audit finds nothing. It applies "
    "only to these questions, in this wording. The audit cannot detect memory if the model withholds its answers."
)
SAME_SOURCE = (
    "the training texts and the other texts come from the same source at random; if questions about training texts are "
    "easier to guess, the result is above 0 without memory"
)
UNSEEN_TEXTS = require(
    "the model was trained on the training texts, and not on the other texts", "the owner of the model"
)
LINEAR_LIMITS = "The linear model illustrates how memorisation develops. It is no evidence about any other model."


def describe_limits(config: Relational, evidence: Evidence | None) -> str:
    if not isinstance(config.question, Answers):
        return LINEAR_LIMITS
    limits = [LIMITS]
    if evidence is not None:
        limits.extend(describe_key(config, evidence.repeats))
    return " ".join(limits)


def list_conditions(config: Relational, _evidence: Evidence | None) -> Iterator[Condition]:
    question = config.question
    if not isinstance(question, Answers):
        return
    if isinstance(question.system, Trained) and question.system.split == "drawn":
        yield ensure(SAME_SOURCE)
    else:
        yield require(SAME_SOURCE, "the owner of the data")
    if not isinstance(question.system, Trained):
        yield UNSEEN_TEXTS


def explain_absence(config: Relational) -> str:
    """Return a sentence that explains why there is no evidence."""
    if isinstance(config.question, Answers):
        return "no question of both parts has been answered."
    return "this run computes only the paper's linear model."


ANSWERING = Answering[Evidence](
    asked=lambda _config, _evidence: plain.ASKED,
    rules=RULES,
    read=read_evidence,
    unread=explain_absence,
    limits=describe_limits,
    conditions=list_conditions,
    describe=sentences.describe_evidence,
    rows=lambda evidence: (evidence.name,),
    remarks=sentences.remarks,
    published=sentences.describe_published_m,
    explain=plain.explain_share,
    line=plain.draw_share,
    examined=plain.name_models,
    null=Null(
        holds=is_null,
        remark=lambda _config: "This is a control run: training drew new answers in every epoch.",
        proper="relation=kept",
        notice=plain.NOTICE_OF_NULL,
    ),
)


def verdict(config: Relational, summary: pa.Table) -> Verdict:
    return ANSWERING.verdict(config, summary)


def certificate(config: Relational, summary: pa.Table, verdict: Verdict) -> Certificate:
    return ANSWERING.certificate(config, summary, verdict)


def memorization_row(config: Relational, summary: pa.Table) -> Row | None:
    """Return the row of relational m that decides the verdict."""
    rows = index_rows(summary)
    questions = decisive_questions(config, rows)
    if questions is None:
        return None
    return rows[decisive_name("relational m", questions)]


def utility_row(config: Relational, summary: pa.Table) -> Row | None:
    """Return the row of s on held-out questions: the share of correct answers on whole contexts."""
    rows = index_rows(summary)
    questions = decisive_questions(config, rows)
    if questions is None:
        return None
    return rows.get(decisive_name("s", questions, split="validation"))


OBJECTIVES = Objectives(
    memorization=Objective("relational m", "share", "lower", memorization_row, "relational m {} %"),
    utility=Objective("held-out accuracy", "share", "higher", utility_row),
    allowance=0.02,
)
