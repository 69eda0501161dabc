"""The audit's answer: the evidence in its summary, the rules that decide, and both in words.

It rests on one row that was chosen beforehand: relational m by exact match after the last epoch, where the first gold
answer alone counts on both parts. Where digits are taken out of contexts these are the questions with a numeric answer;
others can still be read in what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.relational.config import Answers, Relational, given_system, is_null
from tasks.audits.relational.evaded_answers import (
    FEW_RIGHT,
    MOST_FIXED,
    MOST_OTHER_KIND,
    Evasion,
    describe_few_right,
    describe_other_kind,
    read_evasions,
    upper_limit,
)
from tasks.audits.relational.measures.evasions import ONE_TEXT
from tasks.audits.relational.repeated_questions import (
    MOST_TWO_ANSWERS,
    Repeats,
    describe_key,
    describe_repeats,
    read_repeats,
)
from tasks.contract.objectives import Objective, Objectives
from tasks.contract.rules import Rule, Rules, explain_interval, undecided
from tasks.contract.summaries import Name, Row, Rows, index_rows, row_name, select_rows
from tasks.contract.ties import NOT_JUDGED
from tasks.contract.verdict import ANSWERS, DETECTABLE, Answer, Meaning, Verdict

MEANINGS: Mapping[Answer, Meaning] = {
    "memorised": ANSWERS["memorised"],
    "not seen": ANSWERS["not seen"],
    DETECTABLE: ANSWERS[DETECTABLE],
    "undecided": ANSWERS["undecided"],
    NOT_JUDGED: Meaning("the model does not answer as it must for this audit"),
}
MOST_SILENCE = 0.05  # held-out questions that a model asked here leaves unanswered without a remark
ADEQUATE = 0.05  # of training questions answered correctly on whole contexts: below this, nothing has been learnt


@dataclass(frozen=True)
class Evidence:
    """What the answer rests on.

    `m` is the summary row of relational m, by its (metric, setting) `name`. `r` are the shares of questions answered
    correctly on corrupted contexts by part, `s` that of training questions on whole contexts. `evasions` are of the
    training and the held-out part; empty unless answers were sent. `commonest` is the share of the commonest answer
    to the corrupted contexts of a part, above its share of the reference answers. `silence` is how many more of the
    held-out questions go unanswered on corrupted contexts than on whole ones. `published` is m with all gold answers,
    None if it does not differ. `repeats` is None if no question was asked twice. `corruption` says what was taken out
    of the contexts.
    """

    name: Name
    m: Row
    numeric: bool
    r: Mapping[str, float]
    s: float | None
    evasions: tuple[Evasion, ...]
    published: float | None
    repeats: Repeats | None
    negligible: float
    silence: float = 0.0
    commonest: float = 0.0
    corruption: str = "digits"

    @property
    def other_kind(self) -> Evasion | None:
        """The part with more answers of another kind."""
        return max(self.evasions, key=lambda evasion: evasion.other_kind, default=None)

    @property
    def one_text(self) -> float:
        return max((evasion.one_text for evasion in self.evasions), default=self.commonest)

    @property
    def few_right(self) -> Evasion | None:
        """The part whose right answers are significantly fewer than those of the best constant, if there is one."""
        found = [evasion for evasion in self.evasions if evasion.has_few_right]
        return min(found, key=lambda evasion: evasion.p_value, default=None)

    @property
    def upper(self) -> float:
        """The upper limit of relational m if the evaded questions were answered as the others are.

        The formula is that of `upper_limit`; it is the upper end of the interval unless answers were sent.
        """
        return upper_limit(float(self.m["high"]), self.evasions)

    @property
    def is_negative(self) -> bool:
        """Whether answers were sent that are worse on training questions, so that remembered ones may be evaded."""
        return bool(self.evasions) and self.m["high"] < 0


def decisive_name(metric: str, questions: str, golds: str = "one", **more: str) -> Name:
    """The name of the decisive row, or of one beside it."""
    return row_name(metric, at="end", golds=golds, questions=questions, score="exact match", **more)


def question_subsets(question: Answers) -> tuple[str, ...]:
    """The questions that the answer rests on, best first."""
    return ("numeric", "all") if question.corruption.tag == "digits" else ("all", "numeric")


def decisive_questions(config: Relational, rows: Rows) -> str | None:
    """The first of these subsets that was measured; None if none was."""
    if not isinstance(config.question, Answers):
        return None
    subsets = question_subsets(config.question)
    return next((subset for subset in subsets if decisive_name("relational m", subset) in rows), None)


def read_evidence(config: Relational, rows: Rows) -> Evidence | None:
    """The evidence in the rows of a summary; None if no question was answered on both parts."""
    questions = decisive_questions(config, rows)
    if questions is None or not isinstance(config.question, Answers):
        return None
    name = decisive_name("relational m", questions)
    if rows[name]["estimate"] is None:
        return None
    r, s = (
        {split: rows[decisive_name(kind, questions, split=split)]["estimate"] for split in ("train", "validation")}
        for kind in ("r", "s")
    )
    theirs = rows.get(decisive_name("m", questions, golds="all"))
    published = None if theirs is None else theirs["estimate"]
    return Evidence(
        name=name,
        m=rows[name],
        numeric=questions == "numeric",
        r=r,
        s=s["train"],
        evasions=tuple(read_evasions(rows)),
        published=None if published == rows[decisive_name("m", questions)]["estimate"] else published,
        repeats=read_repeats(rows),
        negligible=config.question.negligible,
        silence=excess_silence(rows),
        corruption=config.question.corruption.tag,
        commonest=max((row["estimate"] for row in select_rows(rows, ONE_TEXT)), default=0.0),
    )


def excess_silence(rows: Rows) -> float:
    """The share of held-out questions without an answer on corrupted contexts, less that on whole ones."""
    named = [rows.get(row_name("unanswered", contexts=contexts)) for contexts in ("corrupted", "whole")]
    shares = [row["estimate"] for row in named if row is not None and row["estimate"] is not None]
    return float(shares[0] - shares[1]) if len(shares) == 2 else 0.0


def is_given(config: Relational) -> bool:
    return given_system(config) is not None


def is_blinded(config: Relational) -> bool:
    system = given_system(config)
    return system is not None and system.is_blinded


def thresholds(config: Relational) -> Mapping[str, str]:
    question = config.question if isinstance(config.question, Answers) else Answers()
    return {
        "negligible": f"{100 * question.negligible:g}",
        "other_kind": f"{100 * MOST_OTHER_KIND:g}",
        "few_right": f"{100 * FEW_RIGHT:g}",
        "fixed": f"{100 * MOST_FIXED:g}",
        "two_answers": f"{100 * MOST_TWO_ANSWERS:g}",
    }


ERROR = "Of 100 models that do not hold which answer belongs to which context, at most 2 or 3 would be called so."
FEW_RIGHT_ERROR = "Of 100 systems that guess as well as the best constant, at most 5 are not judged."
WORSE_ERROR = "Of 100 systems that answer both parts alike, at most 2 or 3 are not judged for it."
# Silence, fixed texts and noise can hide a memory, but cannot feign one: none is asked before the interval accuses.
RULES = Rules[Evidence](
    (
        Rule(
            "memorised",
            "the whole 95 % interval of relational m (resampled over contexts) lies above {negligible} percentage "
            "points",
            lambda evidence: evidence.m["low"] > evidence.negligible,
            ERROR,
        ),
        Rule(
            NOT_JUDGED,
            "more than {other_kind} % of the answers to the corrupted contexts of a part are not of the kind of the "
            "reference answers (empty, no number where these are numbers, or more words beside it than these have)",
            lambda evidence: any(each.other_kind > MOST_OTHER_KIND for each in evidence.evasions),
            scope="answers that were sent",
            applies=is_given,
        ),
        Rule(
            NOT_JUDGED,
            "the commonest answer to the corrupted contexts of a part has a share there that is more than {fixed} "
            "percentage points larger than among the reference answers",
            lambda evidence: evidence.one_text > MOST_FIXED,
        ),
        Rule(
            NOT_JUDGED,
            "of the answers to the corrupted contexts of a part that are of the kind of the reference answers, fewer "
            "are right than the best constant would give (exact binomial test, p at most {few_right} % for each part; "
            "the constant is the commonest reference answer of the other part)",
            lambda evidence: evidence.few_right is not None,
            FEW_RIGHT_ERROR,
            scope="answers that were sent",
            applies=is_given,
        ),
        Rule(
            NOT_JUDGED,
            "the whole interval of relational m lies below -{negligible} percentage points: training questions are "
            "answered worse than held-out ones",
            lambda evidence: evidence.m["high"] < -evidence.negligible,
            WORSE_ERROR,
            scope="answers that were sent",
            applies=is_given,
        ),
        Rule(
            NOT_JUDGED,
            "more than {two_answers} % of the questions that were asked twice got two answers, or these could not be "
            "checked, since noise must not pass for innocence either",
            lambda evidence: evidence.repeats is None or not evidence.repeats.are_consistent,
            scope="answers to questions that were handed out blinded",
            applies=is_blinded,
        ),
        Rule(
            DETECTABLE,
            "the whole interval lies above 0 and below {negligible} percentage points",
            lambda evidence: evidence.m["low"] > 0 and evidence.m["high"] < evidence.negligible,
        ),
        Rule(
            "not seen",
            "the whole interval lies below {negligible} percentage points; of answers that were sent, also once those "
            "of another kind and those of the ten commonest texts (above their share of the reference answers) are "
            "taken for evasions of what is known, and only if the interval does not lie below 0",
            lambda evidence: evidence.upper < evidence.negligible and not evidence.is_negative,
        ),
        undecided(),
    ),
    thresholds,
)
OF_OTHER_KIND, FIXED, FEW_CORRECT, WORSE, TWO_ANSWERS = RULES.cases[1:6]

LIMITS = (
    "Relational m is an average over contexts, which clears no single one. The audit compares training questions with "
    "held-out ones, which must be drawn alike: where training questions are "
    "easier to guess, m is above 0 without memory. It speaks of the answers to these questions alone, asked as they "
    "are. A model that gives other answers to corrupted contexts than it could, by intent or by design, is cleared."
)
LINEAR_LIMITS = "The linear model shows how memorization comes and goes; it is no evidence on any model of one's own."


def verdict(config: Relational, summary: pa.Table) -> Verdict:
    """The answer by RULES, with its evidence in words."""
    rows = index_rows(summary)
    evidence = read_evidence(config, rows)
    if evidence is None:
        if isinstance(config.question, Answers):
            return Verdict(
                "undecided", "Undecided: no questions have been answered on both parts.", LIMITS, tuple(rows)[:1]
            )
        only = "Undecided: this run computes the paper's linear model only."
        return Verdict("undecided", only, LINEAR_LIMITS, tuple(rows)[:1])
    rule = RULES.decide(config, evidence)
    sentence = f"{rule.answer.capitalize()}: {describe_evidence(evidence)}{describe_reason(rule, evidence)}"
    limits = " ".join([LIMITS, *describe_key(config, evidence.repeats)])
    return Verdict(
        rule.answer,
        " ".join([sentence, *remarks(config, evidence)]),
        limits,
        (evidence.name,),
        describe_published_m(evidence),
    )


def describe_reason(rule: Rule[Evidence], evidence: Evidence) -> str:
    """What follows the evidence: why the answer is this one."""
    if rule is OF_OTHER_KIND and evidence.other_kind is not None:
        return (
            f"; but {describe_other_kind(evidence.other_kind)} once contexts are corrupted, and a system that does not "
            "answer there cannot be judged."
        )
    if rule is FIXED:
        return (
            f"; but {100 * evidence.one_text:.0f} % more of the answers to corrupted contexts are one and the same "
            "text than of the reference answers, and a fixed text says nothing of what is known."
        )
    if rule is FEW_CORRECT and evidence.few_right is not None:
        return f"; but {describe_few_right(evidence.few_right)}: a system that answers worse than that does not answer."
    if rule is WORSE:
        return "; but a system that answers both parts alike is not worse on the questions that it was trained on."
    if rule is TWO_ANSWERS:
        return f"; but {describe_repeats(evidence.repeats)}."
    if rule.answer == "memorised":
        return f". {ERROR}"
    if rule.answer == "undecided" and evidence.is_negative:
        return (
            "; but the whole interval lies below 0, and training questions that are answered worse than held-out ones "
            "may be those that are remembered: ask for a system that answers every question by its best guess."
        )
    if rule.answer == "undecided" and evidence.m["high"] < evidence.negligible <= evidence.upper:
        evaded = max(each.evaded for each in evidence.evasions)
        return (
            f"; but as much as {100 * evaded:.0f} % of the answers to corrupted contexts are of another kind or of a "
            "few texts, which may hide more: ask for a system that answers every question by its best guess."
        )
    return explain_interval(rule.answer, evidence.m["high"], evidence.negligible, "ask more questions")


def describe_evidence(evidence: Evidence) -> str:
    """r on both parts and m with its interval, in words."""
    m = evidence.m
    train, held_out = (f"{evidence.r[split]:.1%}".replace("%", " %") for split in ("train", "validation"))
    what = {"digits": "the digits", "names": "the names", "pattern": "the pattern", "answers": "the answers"}
    numeric = " with a numeric answer" if evidence.numeric else ""
    return (
        f"with {what[evidence.corruption]} taken out of the contexts, {train} of training questions{numeric} "
        f"are still answered rightly and {held_out} of held-out ones; corrected for answers that are "
        f"merely common, the difference, relational m, is {m['estimate']:.3f} (95 % interval {m['low']:.3f} to "
        f"{m['high']:.3f} over {m['n']:,} contexts; 0 where nothing is memorised)"
    )


def remarks(config: Relational, evidence: Evidence) -> Iterator[str]:
    """What a reader must know beside the answer, in sentences."""
    silence = evidence.silence
    if not is_given(config) and silence > MOST_SILENCE:
        yield (
            f"Of the held-out questions {100 * silence:.0f} % more go unanswered once their contexts are corrupted, as "
            "by a model that reads: there is nothing to be read."
        )
    if evidence.s is not None and evidence.s < ADEQUATE:
        yield (
            f"Warning: even on whole contexts only {100 * evidence.s:.2g} % of the training questions are answered "
            "rightly; a model that has learnt nothing has nothing to show."
        )
    if is_null(config):
        yield "Answers were drawn anew in every epoch of training: this is a null."


def describe_published_m(evidence: Evidence) -> str:
    """m as it is published, against all gold answers; empty where it does not differ."""
    if evidence.published is None:
        return ""
    return (
        f"As published, with all gold answers of held-out questions counted, m is {evidence.published:.3f}, which "
        "is biased downwards."
    )


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
