"""The audit's answer: the evidence in its summary, the rules that decide, and both in words.

It rests on one row that was chosen beforehand: relational m by exact match after the last epoch, where the first gold
answer alone counts on both parts. Where digits are taken out of contexts these are the questions with a numeric answer;
others can still be read in what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.relational.config import Relational
from tasks.audits.relational.measures.evasions import KINDS
from tasks.audits.relational.measures.repeats import TWICE
from tasks.contract.objectives import Objective, Objectives
from tasks.contract.rules import Rule, Rules, explain_interval, undecided
from tasks.contract.summaries import Name, Row, Rows, index_rows, numerator, read_setting, row_name, select_rows
from tasks.contract.verdict import ANSWERS, DETECTABLE, Answer, Meaning, Verdict
from tasks.external.causes import ALTERED, list_causes

NOT_JUDGED = "not judged"
MEANINGS: Mapping[Answer, Meaning] = {
    "memorised": ANSWERS["memorised"],
    "not seen": ANSWERS["not seen"],
    DETECTABLE: ANSWERS[DETECTABLE],
    "undecided": ANSWERS["undecided"],
    NOT_JUDGED: Meaning("the model does not answer as it must for this audit"),
}
MOST_TWO_ANSWERS = 0.05  # of the questions that were asked twice
# Of a part's questions, how many more may be answered so once their contexts are corrupted:
MOST_SILENCE = 0.05  # with nothing or a refusal
MOST_FIXED = 0.5  # with one and the same text: trained readers gave their commonest guess to as much as 0.39 more
ADEQUATE = 0.05  # of training questions answered correctly on whole contexts: below this, nothing has been learnt


@dataclass(frozen=True)
class Repeats:
    """Of `n` questions that were handed out twice, how many got two answers; `key` begins the SHA-256 of their key."""

    differing: int
    n: int
    key: str

    @property
    def are_consistent(self) -> bool:
        return self.differing <= MOST_TWO_ANSWERS * self.n


@dataclass(frozen=True)
class Evasion:
    """By how much larger shares of a part's questions are on corrupted contexts than on whole ones.

    The shares are those of questions without an answer, of refusals, and of the commonest answer to corrupted contexts.
    """

    unanswered: float
    refused: float = 0.0
    fixed: float = 0.0

    @property
    def silence(self) -> float:
        return self.unanswered + self.refused


@dataclass(frozen=True)
class Evidence:
    """What the answer rests on.

    `m` is the summary row of relational m, by its (metric, setting) `name`. `r` are the shares of questions answered
    correctly on corrupted contexts by part, `s` that of training questions on whole contexts. `evasions` are of both
    parts; of held-out questions and without texts where answers were not sent. `published` is m with all gold answers,
    None where it does not differ. `repeats` is None where no question was asked twice.
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

    @property
    def silent(self) -> Evasion:
        """Of the part with more of them: the questions that are left without an answer, or refused."""
        return max(self.evasions, key=lambda evasion: evasion.silence)

    @property
    def fixed(self) -> float:
        return max(evasion.fixed for evasion in self.evasions)


def decisive_name(metric: str, questions: str, golds: str = "one", **more: str) -> Name:
    """The name of the decisive row, or of one beside it."""
    return row_name(metric, at="end", golds=golds, questions=questions, score="exact match", **more)


def question_subsets(config: Relational) -> tuple[str, ...]:
    """The questions that the answer rests on, best first."""
    return ("numeric", "all") if config.corruption.kind == "digits" else ("all", "numeric")


def decisive_questions(config: Relational, rows: Rows) -> str | None:
    """The first of these subsets that was measured; None where none was."""
    subsets = question_subsets(config)
    return next((subset for subset in subsets if decisive_name("relational m", subset) in rows), None)


def read_evidence(config: Relational, rows: Rows) -> Evidence | None:
    """The evidence in the rows of a summary; None where no question was answered on both parts."""
    questions = decisive_questions(config, rows)
    if questions is None:
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
        negligible=config.negligible,
    )


def read_evasions(rows: Rows) -> Iterator[Evasion]:
    """The evasions of both parts, or of held-out questions alone where no more was stored."""
    if any("split" in read_setting(row) for row in select_rows(rows, "unanswered")):
        for split in ("train", "validation"):
            yield Evasion(*(excess_share(rows, kind, split=split) for kind in KINDS))
    else:
        yield Evasion(excess_share(rows, "unanswered"))


def excess_share(rows: Rows, kind: str, **setting: str) -> float:
    """A share of the questions on corrupted contexts, less the same share on whole ones; 0 where it is not known."""
    named = [rows.get(row_name(kind, contexts=contexts, **setting)) for contexts in ("corrupted", "whole")]
    shares = [row["estimate"] for row in named if row is not None and row["estimate"] is not None]
    return float(shares[0] - shares[1]) if len(shares) == 2 else 0.0


def read_repeats(rows: Rows) -> Repeats | None:
    for row in select_rows(rows, TWICE):
        if row["estimate"] is not None:
            return Repeats(numerator(row), row["n"], read_setting(row)["key"])
    return None


def is_given(config: Relational) -> bool:
    return config.given is not None


def is_blinded(config: Relational) -> bool:
    return config.given is not None and config.given.is_blinded


def thresholds(config: Relational) -> Mapping[str, str]:
    return {
        "negligible": f"{100 * config.negligible:g}",
        "silence": f"{100 * MOST_SILENCE:g}",
        "fixed": f"{100 * MOST_FIXED:g}",
        "two_answers": f"{100 * MOST_TWO_ANSWERS:g}",
    }


ERROR = "Of 100 models that do not hold which answer belongs to which context, at most 2 or 3 would be called so."
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
            "more than {silence} percentage points more of the questions of a part go unanswered or are refused "
            "(“unknown”, “not stated”) once the answer is taken out of their contexts, since silence must not pass for "
            "innocence",
            lambda evidence: evidence.silent.silence > MOST_SILENCE,
            scope="answers that were sent",
            applies=is_given,
        ),
        Rule(
            NOT_JUDGED,
            "the commonest answer to corrupted contexts has a share there that is more than {fixed} percentage points "
            "larger than on whole contexts, since a fixed text says nothing of what is known",
            lambda evidence: evidence.fixed > MOST_FIXED,
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
            "the whole interval lies below {negligible} percentage points",
            lambda evidence: evidence.m["high"] < evidence.negligible,
        ),
        undecided(),
    ),
    thresholds,
)
SILENT, FIXED, TWO_ANSWERS = RULES.cases[1:4]

LIMITS = (
    "Relational m is an average over contexts, which clears no single one. The audit compares training questions with "
    "held-out ones, which must be drawn alike: where training questions are "
    "easier to guess, m is above 0 without memory. It speaks of the answers to these questions alone, asked as they "
    "are. A model that gives other answers to corrupted contexts than it could, by intent or by design, is cleared."
)
LINEAR_LIMITS = "The linear model shows how memorization comes and goes; it is no evidence on any model of one's own."
GUESSED = (
    "The order of the questions follows from the run's seed (secret is empty), so an owner who tries seeds could have "
    "told which ones matter."
)


def verdict(config: Relational, summary: pa.Table) -> Verdict:
    """The answer by RULES, with its evidence in words."""
    rows = index_rows(summary)
    evidence = read_evidence(config, rows)
    if evidence is None:
        if config.asks:
            return Verdict(
                "undecided", "Undecided: no questions have been answered on both parts.", LIMITS, tuple(rows)[:1]
            )
        only = "Undecided: this run computes the paper's linear model only."
        return Verdict("undecided", only, LINEAR_LIMITS, tuple(rows)[:1])
    rule = RULES.decide(config, evidence)
    sentence = f"{rule.answer.capitalize()}: {describe_evidence(config, evidence)}{describe_reason(rule, evidence)}"
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
    if rule is SILENT:
        return (
            f"; but {describe_silence(evidence)} once contexts are corrupted, and a model that is silent where the "
            "answer cannot be read cannot be judged."
        )
    if rule is FIXED:
        return (
            f"; but one and the same answer is given to {100 * evidence.fixed:.0f} % more of the questions once their "
            "contexts are corrupted, and a fixed text says nothing of what is known."
        )
    if rule is TWO_ANSWERS:
        return f"; but {describe_repeats(evidence.repeats)}."
    if rule.answer == "memorised":
        return f". {ERROR}"
    return explain_interval(rule.answer, evidence.m["high"], evidence.negligible, "ask more questions")


def describe_silence(evidence: Evidence) -> str:
    """How many more questions are left without an answer, and how many of them by refusals."""
    silent = evidence.silent
    some = f"{100 * silent.silence:.0f} % more of the questions"
    if silent.refused <= 0:
        return f"{some} go unanswered"
    if silent.unanswered <= 0:
        return f"{some} are refused (“unknown”, “not stated”)"
    return f"{some} go unanswered or are refused (“unknown”, “not stated”: {100 * silent.refused:.0f} %)"


QUESTION_CAUSES = list_causes(
    "the system samples its answers (its temperature is above 0)", "it remembers earlier questions", ALTERED
)


def describe_repeats(repeats: Repeats | None) -> str:
    """Why the file is not what one system says."""
    if repeats is None:
        return "the questions that were handed out twice could not be checked"
    return (
        f"{repeats.differing} of {repeats.n} questions that were handed out twice got two answers ({QUESTION_CAUSES})"
    )


def describe_evidence(config: Relational, evidence: Evidence) -> str:
    """r on both parts and m with its interval, in words."""
    m = evidence.m
    train, held_out = (f"{evidence.r[split]:.1%}".replace("%", " %") for split in ("train", "validation"))
    what = {"digits": "the digits", "names": "the names", "pattern": "the pattern", "answers": "the answers"}
    numeric = " with a numeric answer" if evidence.numeric else ""
    return (
        f"with {what[config.corruption.kind]} taken out of the contexts, {train} of training questions{numeric} "
        f"are still answered rightly and {held_out} of held-out ones; corrected for answers that are "
        f"merely common, the difference, relational m, is {m['estimate']:.3f} (95 % interval {m['low']:.3f} to "
        f"{m['high']:.3f} over {m['n']:,} contexts; 0 where nothing is memorised)"
    )


def remarks(config: Relational, evidence: Evidence) -> Iterator[str]:
    """What a reader must know beside the answer, in sentences."""
    silence = evidence.silent.silence
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
    if config.is_null:
        yield "Answers were drawn anew in every epoch of training: this is a null."


def describe_key(config: Relational, repeats: Repeats | None) -> Iterator[str]:
    """The key of the questions that were handed out, as their owner was told it."""
    if config.is_guessable:
        yield GUESSED
    elif repeats is not None:
        yield f"The key of the questions that were handed out has a SHA-256 that begins with {repeats.key}."
        yield config.describe_draw()


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
