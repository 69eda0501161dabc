"""The evidence in a summary: the rows and shares that decide the verdict.

The decisive row is fixed in advance: relational m by exact match after the last epoch, with only the first gold answer
on both parts. If digits are removed from contexts, only questions with a numeric answer count, because other answers
remain in the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tasks.audits.relational.config import Answers, Relational
from tasks.audits.relational.evaded_answers import Evasion, read_evasions, upper_limit
from tasks.audits.relational.measures.evasions import ONE_TEXT, PARTS
from tasks.audits.relational.repeated_questions import Repeats, read_repeats
from tasks.contract.summaries import Name, Row, Rows, index_rows, read_setting, row_name, select_rows


@dataclass(frozen=True)
class Evidence:
    """Evidence for the verdict.

    name, m: Identifier (metric, setting) and summary row of relational m.
    r, s: Shares of correct answers: r on corrupted contexts, by part; s on whole contexts of training questions.
    evasions: Evasions of the training and the held-out part. Empty unless answers were returned.
    commonest: Share of the most common answer to the corrupted contexts of a part, minus its share of the reference
    answers.
    silence: Increase in the share of unanswered held-out questions when contexts are corrupted.
    published: m with all gold answers. None if it does not differ.
    repeats: None if no question was repeated.
    questions: Number of questions by part. Empty if the run has not counted its answers.
    corruption: What was removed from the contexts.
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
    questions: Mapping[str, int] = field(default_factory=dict)

    @property
    def other_kind(self) -> Evasion | None:
        """The part with the larger share of answers of another kind."""
        return max(self.evasions, key=lambda evasion: evasion.other_kind, default=None)

    @property
    def one_text(self) -> float:
        return max((evasion.one_text for evasion in self.evasions), default=self.commonest)

    @property
    def few_right(self) -> Evasion | None:
        """The part with significantly fewer correct answers than the best constant answer, or None if there is none."""
        parts = [evasion for evasion in self.evasions if evasion.has_few_right]
        return min(parts, key=lambda evasion: evasion.p_value, default=None)

    @property
    def upper(self) -> float:
        """Upper limit of relational m if evaded questions had been answered like the others (see `upper_limit`).

        It equals the upper end of the interval unless answers were returned.
        """
        return upper_limit(float(self.m["high"]), self.evasions)

    @property
    def is_negative(self) -> bool:
        """Whether the returned answers are worse on training questions, which may be due to evasion."""
        return bool(self.evasions) and self.m["high"] < 0


def decisive_name(metric: str, questions: str, golds: str = "one", **more: str) -> Name:
    """Return the name of the decisive row, or of another metric with the same setting."""
    return row_name(metric, at="end", golds=golds, questions=questions, score="exact match", **more)


def question_subsets(question: Answers) -> tuple[str, ...]:
    """Return the question subsets that may decide the verdict, in order of preference."""
    if question.corruption.tag == "digits":
        return ("numeric", "all")
    return ("all", "numeric")


def decisive_questions(config: Relational, rows: Rows) -> str | None:
    """Return the first subset that was measured, or None if none was."""
    if not isinstance(config.question, Answers):
        return None
    subsets = question_subsets(config.question)
    return next((subset for subset in subsets if decisive_name("relational m", subset) in rows), None)


def read_evidence(config: Relational, summary: pa.Table) -> Evidence | None:
    """Read the evidence from a summary. Returns None unless questions of both parts were answered."""
    rows = index_rows(summary)
    questions = decisive_questions(config, rows)
    if questions is None or not isinstance(config.question, Answers):
        return None
    name = decisive_name("relational m", questions)
    if rows[name]["estimate"] is None:
        return None
    commonest = select_rows(rows, ONE_TEXT)
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
        commonest=max((row["estimate"] for row in commonest), default=0.0),
        questions={read_setting(row)["split"]: row["n"] for row in commonest},
    )


def _published_m(rows: Rows, questions: str) -> float | None:
    """Return m with all gold answers, or None if it is missing or equals m with the first gold answer."""
    row = rows.get(decisive_name("m", questions, golds="all"))
    if row is None or row["estimate"] is None:
        return None
    if row["estimate"] == rows[decisive_name("m", questions)]["estimate"]:
        return None
    return float(row["estimate"])


def _excess_silence(rows: Rows) -> float:
    """Return the share of unanswered held-out questions on corrupted contexts, minus that on whole contexts."""
    unanswered = []
    for contexts in ("corrupted", "whole"):
        unanswered.append(rows.get(row_name("unanswered", contexts=contexts)))
    shares = []
    for row in unanswered:
        if row is not None and row["estimate"] is not None:
            shares.append(row["estimate"])
    if len(shares) < 2:
        return 0.0
    return float(shares[0] - shares[1])
