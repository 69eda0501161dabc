"""The evidence in a summary: the rows and shares that the answer rests on.

The decisive row was chosen beforehand: relational m by exact match after the last epoch, where the first gold answer
alone counts on both parts. If digits are taken out of contexts, it is that of the questions with a numeric answer;
others can still be read in what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.relational.config import Answers, Relational
from tasks.audits.relational.evaded_answers import Evasion, read_evasions, upper_limit
from tasks.audits.relational.measures.evasions import ONE_TEXT, PARTS
from tasks.audits.relational.repeated_questions import Repeats, read_repeats
from tasks.contract.summaries import Name, Row, Rows, index_rows, row_name, select_rows


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
        parts = [evasion for evasion in self.evasions if evasion.has_few_right]
        return min(parts, key=lambda evasion: evasion.p_value, default=None)

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


def read_evidence(config: Relational, summary: pa.Table) -> Evidence | None:
    """The evidence in a summary; None if no question was answered on both parts."""
    rows = index_rows(summary)
    questions = decisive_questions(config, rows)
    if questions is None or not isinstance(config.question, Answers):
        return None
    name = decisive_name("relational m", questions)
    if rows[name]["estimate"] is None:
        return None
    r_rows = {split: rows[decisive_name("r", questions, split=split)] for split in PARTS}
    return Evidence(
        name=name,
        m=rows[name],
        numeric=questions == "numeric",
        r={split: row["estimate"] for split, row in r_rows.items()},
        s=rows[decisive_name("s", questions, split="train")]["estimate"],
        evasions=tuple(read_evasions(rows)),
        published=_published_m(rows, questions),
        repeats=read_repeats(rows),
        negligible=config.question.negligible,
        silence=_excess_silence(rows),
        corruption=config.question.corruption.tag,
        commonest=max((row["estimate"] for row in select_rows(rows, ONE_TEXT)), default=0.0),
    )


def _published_m(rows: Rows, questions: str) -> float | None:
    """m with all gold answers; None if it was not measured or does not differ from m with the first one."""
    row = rows.get(decisive_name("m", questions, golds="all"))
    if row is None or row["estimate"] == rows[decisive_name("m", questions)]["estimate"]:
        return None
    return None if row["estimate"] is None else float(row["estimate"])


def _excess_silence(rows: Rows) -> float:
    """The share of held-out questions without an answer on corrupted contexts, less that on whole ones."""
    unanswered = [rows.get(row_name("unanswered", contexts=contexts)) for contexts in ("corrupted", "whole")]
    shares = [row["estimate"] for row in unanswered if row is not None and row["estimate"] is not None]
    return float(shares[0] - shares[1]) if len(shares) == 2 else 0.0
