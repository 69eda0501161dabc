"""The audit's answer in words, read off its summary.

It rests on one row that was chosen beforehand: relational m by exact match after the last epoch, where the first gold
answer alone counts on both parts. Where digits are taken out of contexts these are the questions with a numeric answer;
others can still be read in what is left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tasks.audits.relational.config import Relational
from tasks.verdict import ANSWERS, Answer, Meaning, Verdict

Row = Mapping[str, Any]
Rows = Mapping[tuple[str, str], Row]
NOT_JUDGED = "not judged"
MEANINGS: Mapping[Answer, Meaning] = {
    "memorised": ANSWERS["memorised"],
    "not seen": ANSWERS["not seen"],
    "undecided": ANSWERS["undecided"],
    NOT_JUDGED: Meaning("the model does not answer as it must for this audit"),
}
TWICE = "repeated questions with two answers"
TOUCHED = 0.05  # of the questions that were asked twice: how many may have two answers
REFUSES = 0.05  # of held-out questions: how many more may go unanswered once their contexts are corrupted
ADEQUATE = 0.05  # of training questions answered rightly on whole contexts: below this, nothing has been learnt
LIMITS = (
    "The audit compares training questions with held-out ones, which must be drawn alike: where training questions are "
    "easier to guess, m is above 0 without memory. It speaks of the answers to these questions alone, asked as they "
    "are. A model that gives other answers to corrupted contexts than it could, by intent or by design, is cleared."
)
ERROR = "Of 100 models that do not hold which answer belongs to which context, at most 2 or 3 would be called so"

GUESSED = (
    "The order of the questions follows from the run's seed (secret is empty), so an owner who tries seeds could have "
    "told which ones matter."
)


def key(questions: str) -> tuple[str, str]:
    """The name of the decisive row."""
    setting = {"at": "end", "golds": "one", "questions": questions, "score": "exact match"}
    return "relational m", json.dumps(setting, sort_keys=True)


def verdict(config: Relational, summary: pa.Table) -> Verdict:
    """Memorised: the 95 % interval of relational m lies above 0, as for at most 2.5 % of models that memorise nothing.
    Not seen: it lies below `negligible`. Undecided: neither. Not judged: of predictions that somebody sent, held-out
    questions go unanswered once their contexts are corrupted, so that silence would pass for innocence. A model that is
    asked here is silent where there is nothing that it could read. Nor, unless memorised, where of questions that were
    handed out twice more than TOUCHED have two answers: noise can hide a memory, but not feign one.
    """
    rows = {(row["metric"], row["setting"]): row for row in summary.to_pylist()}
    decisive = next((name for name in map(key, subsets(config)) if name in rows), None)
    if decisive is None or rows[decisive]["estimate"] is None:
        return without_answers(config, rows)
    m = rows[decisive]
    answer, reason = answered(config, rows, m)
    sentence = f"{answer.capitalize()}: {evidence(config, rows, m)}{reason}."
    more = [*silent(config, rows), *unlearnt(rows, m), *of_null(config)]
    limits = " ".join([LIMITS, *of_key(config, rows)])
    return Verdict(answer, " ".join([sentence, *more]), limits, (decisive,), " ".join(published(rows, m)))


def subsets(config: Relational) -> tuple[str, ...]:
    """The questions that the answer rests on, best first."""
    return ("numeric", "all") if config.corruption.kind == "digits" else ("all", "numeric")


def answered(config: Relational, rows: Rows, m: Row) -> tuple[Answer, str]:
    """The answer, and what is added to the evidence."""
    if config.given is not None and refused(rows) > REFUSES:
        return NOT_JUDGED, (
            f"; but {100 * refused(rows):.0f} % more of the held-out questions go unanswered once their contexts are "
            "corrupted, and a model that is silent cannot be judged"
        )
    if m["low"] > 0:
        return "memorised", f". {ERROR}"
    if touched := two_answers(config, rows):
        return NOT_JUDGED, f"; but {touched}"
    if m["high"] < config.negligible:
        return "not seen", f"; {config.negligible:g} or more is unlikely"
    return "undecided", f"; as much as {m['high']:.2g} cannot be excluded: ask more questions"


def two_answers(config: Relational, rows: Rows) -> str:
    """Why the file is not what one system says; no text where nothing speaks for that."""
    if config.given is None or not config.given.is_blinded:
        return ""
    row = of_repeats(rows)
    if row is None:
        return "the questions that were handed out twice could not be checked"
    if row["estimate"] <= TOUCHED:
        return ""
    return f"{round(row['estimate'] * row['n'])} of {row['n']} questions that were handed out twice got two answers"


def of_repeats(rows: Rows) -> Row | None:
    return next((row for (metric, _), row in rows.items() if metric == TWICE and row["estimate"] is not None), None)


def of_key(config: Relational, rows: Rows) -> Iterator[str]:
    """The key of the questions that were handed out, as their owner was told it."""
    row = of_repeats(rows)
    if row is not None and not config.is_guessable:
        begins = json.loads(row["setting"])["key"]
        yield f"The key of the questions that were handed out has a SHA-256 that begins with {begins}."
    if config.is_guessable:
        yield GUESSED


def refused(rows: Rows) -> float:
    """By how much more often held-out questions go unanswered on corrupted contexts than on whole ones."""
    shares = [rows.get(("unanswered", json.dumps({"contexts": name}))) for name in ("corrupted", "whole")]
    values = [row["estimate"] for row in shares if row is not None and row["estimate"] is not None]
    return float(values[0] - values[1]) if len(values) == 2 else 0.0


def evidence(config: Relational, rows: Rows, m: Row) -> str:
    """r on both parts and m with its interval, in words."""
    setting = json.loads(m["setting"])
    r = {split: success(rows, setting, "r", split) for split in ("train", "validation")}
    shares = [f"{r[split]['estimate']:.1%}".replace("%", " %") for split in r]
    what = {"digits": "the digits", "names": "the names", "pattern": "the pattern", "answers": "the answers"}
    numeric = " with a numeric answer" if setting["questions"] == "numeric" else ""
    return (
        f"with {what[config.corruption.kind]} taken out of the contexts, {shares[0]} of training questions{numeric} "
        f"are still answered rightly and {shares[1]} of held-out ones; corrected for answers that are "
        f"merely common, the difference, relational m, is {m['estimate']:.3f} (95 % interval {m['low']:.3f} to "
        f"{m['high']:.3f} over {m['n']:,} contexts; 0 where nothing is memorised)"
    )


def success(rows: Rows, setting: Mapping[str, Any], kind: str, split: str) -> Row:
    """The row of r or s of one part beside the row of m with this setting."""
    return rows[kind, json.dumps({**setting, "split": split}, sort_keys=True)]


def silent(config: Relational, rows: Rows) -> Iterator[str]:
    """How much more often a model that is asked here is silent where contexts are corrupted."""
    if config.given is None and refused(rows) > REFUSES:
        yield (
            f"Of the held-out questions {100 * refused(rows):.0f} % more go unanswered once their contexts are "
            "corrupted, as by a model that reads: there is nothing to be read."
        )


def unlearnt(rows: Rows, m: Row) -> Iterator[str]:
    """A warning where the model cannot answer even with the whole context."""
    whole = success(rows, json.loads(m["setting"]), "s", "train")["estimate"]
    if whole is not None and whole < ADEQUATE:
        yield (
            f"Warning: even on whole contexts only {100 * whole:.2g} % of the training questions are answered rightly; "
            "a model that has learnt nothing has nothing to show."
        )


def of_null(config: Relational) -> Iterator[str]:
    if config.is_null:
        yield "Answers were drawn anew in every epoch of training: this is a null."


def published(rows: Rows, m: Row) -> Iterator[str]:
    """m as it is published, against all gold answers."""
    setting = {**json.loads(m["setting"]), "golds": "all"}
    theirs = rows.get(("m", json.dumps(setting, sort_keys=True)))
    ours = rows[("m", m["setting"])]
    if theirs is not None and theirs["estimate"] is not None and theirs["estimate"] != ours["estimate"]:
        yield (
            f"As published, with all gold answers of held-out questions counted, m is {theirs['estimate']:.3f}, which "
            "is biased downwards."
        )


def without_answers(config: Relational, rows: Rows) -> Verdict:
    """The answer where no model was asked, or none answered."""
    limits = "The linear model shows how memorization comes and goes; it is no evidence on any model of one's own."
    if not config.asks:
        only = "Undecided: this run computes the paper's linear model only."
        return Verdict("undecided", only, limits, tuple(rows)[:1])
    return Verdict("undecided", "Undecided: no questions have been answered on both parts.", LIMITS, tuple(rows)[:1])
