"""The audit's answer on all targets: `decision` judges each target, and the gravest answer is the answer of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from tasks.audits.forgetting import plain_words as plain
from tasks.audits.forgetting import sentences
from tasks.audits.forgetting.config import Examples, Forgetting
from tasks.audits.forgetting.evidence import Evidence, read_evidence
from tasks.audits.forgetting.measures.decisions import HELD
from tasks.contract.answering import Answering
from tasks.contract.certificate import Certificate
from tasks.contract.objectives import Objective
from tasks.contract.rules import Case, Rules
from tasks.contract.summaries import Name, Row, index_rows
from tasks.contract.verdict import NOT_ASSESSABLE, Answer, Meaning, Verdict, select_meanings

MEANINGS: Mapping[Answer, Meaning] = select_meanings(
    ("forgotten", "not forgotten"),
    {
        "not forgotten": "If the data had to be removed from the model, this has not been achieved.",
    },
)


def _is_answer(answer: Answer) -> Callable[[Evidence], bool]:
    return lambda evidence: evidence.answer == answer


# Rules over all targets. The first case that applies to any target decides.
RULES_OF_ALL = Rules[Evidence](
    (
        Case("not forgotten", "any target is not forgotten", _is_answer("not forgotten"), steps=plain.TO_THE_OWNER),
        Case(NOT_ASSESSABLE, "any target is not assessable", _is_answer(NOT_ASSESSABLE), steps=plain.list_remedies),
        Case("forgotten", "all targets are forgotten", _is_answer("forgotten"), steps=plain.KEEP_AND_CHECK),
        Case("undecided", "any target is undecided", _is_answer("undecided"), steps=plain.list_remedies),
    ),
    lambda _config: {},
)


def read(config: Forgetting, summary: pa.Table) -> Evidence | None:
    """Read the evidence from a summary. None if no target was judged."""
    evidence = read_evidence(config, index_rows(summary))
    return evidence if evidence.targets else None


def explain_absence(config: Forgetting) -> str:
    if isinstance(config.question, Examples):
        return "this run shows images only."
    return "nothing has been decided."


def rows_of(evidence: Evidence) -> tuple[Name, ...]:
    return tuple(name for target in evidence.by_weight for name in target.row_names)


ANSWERING = Answering[Evidence](
    asked=plain.ask_question,
    rules=RULES_OF_ALL,
    read=read,
    unread=explain_absence,
    limits=sentences.describe_limits,
    conditions=sentences.list_conditions,
    describe=sentences.describe_targets,
    rows=rows_of,
    items=sentences.list_targets,
    details=sentences.describe_details,
    remarks=sentences.remarks,
    published=sentences.describe_published_rule,
    findings=plain.list_findings,
    stated=plain.state_rules,
    examined=plain.name_models,
)


def verdict(config: Forgetting, summary: pa.Table) -> Verdict:
    return ANSWERING.verdict(config, summary)


def certificate(config: Forgetting, summary: pa.Table, verdict: Verdict) -> Certificate:
    return ANSWERING.certificate(config, summary, verdict)


def _largest_share(_config: Forgetting, summary: pa.Table) -> Row | None:
    """Return the row of the largest share that any target holds. None if no share is known."""
    shares = [row for row in summary.to_pylist() if row["metric"] == HELD and row["estimate"] is not None]
    return max(shares, key=lambda row: float(row["estimate"]), default=None)


# Of several targets, the one that holds most decides whether anything is left, as the answer does.
EFFECT = Objective(
    "largest share of D_Q held by a target", "share", "lower", _largest_share, "{} % of D_Q held by a target"
)
