"""The answer about halves of the records: each model is trained on one half, and every record is tested."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.membership.config import Halves, Membership
from tasks.audits.membership.measures.attacks import AUC
from tasks.audits.membership.measures.records import FOUND, MEMORISED
from tasks.audits.membership.power import record_resolution
from tasks.audits.membership.thresholds import thresholds
from tasks.contract.answering import Answering, Null
from tasks.contract.certificate import STEPS, NumberLine, chances
from tasks.contract.power import SMALLEST, Resolution, single_item
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import Name, Row, first_row, index_rows, name_of, p_in_words, read_setting, select_rows
from tasks.contract.ties import TIED, tie_rule
from tasks.contract.verdict import BELOW_RELEVANT_SIZE


@dataclass(frozen=True)
class Evidence:
    """What the answer rests on.

    `found` is the summary row of how many records are found, whose p-value is that of any of them having an influence,
    and `memorised` that of those whose influence is above the smallest that matters. `attack` is the row of the attack
    whose area under the curve may be largest, `resolution` whether one record could be found, and `tied` the row of how
    many scores are equal; None if it is not known.
    """

    found: Row
    memorised: Row
    attack: Row | None
    resolution: Resolution
    level: float
    negligible: float
    tied: Row | None = None

    @property
    def attacks_fail(self) -> bool:
        return self.attack is not None and bool(self.attack["high"] < 0.5 + self.negligible)


def read_evidence(question: Halves, summary: pa.Table) -> Evidence | None:
    """The evidence in a summary; None if no record was tested."""
    rows = index_rows(summary)
    found = first_row(rows, FOUND)
    if found is None:
        return None
    areas = [row for row in select_rows(rows, AUC) if row["high"] is not None]
    return Evidence(
        found,
        first_row(rows, MEMORISED) or found,
        max(areas, key=lambda row: row["high"], default=None),
        record_resolution(question, found["n"]),
        question.level,
        question.negligible,
        first_row(rows, TIED),
    )


def _asks_halves(config: Membership) -> bool:
    return isinstance(config.question, Halves)


CASES: tuple[Case[Evidence], ...] = (
    Case(
        "memorised",
        "at least one record is memorised: the p-value of the exact test that its effect is at most {nats} nats, "
        "adjusted for the number of records, is at most {level} %",
        lambda evidence: evidence.memorised["p_value"] <= evidence.level,
        "Of 100 audits of models on which no record has an influence, at most {level} are called so; among the "
        "records that are found, at most {level} % are expected to be false.",
        steps=STEPS["accused"],
    ),
    tie_rule(),
    Case(
        BELOW_RELEVANT_SIZE,
        "at least one record is found, if the test is of an effect of 0, the 95 % interval of every attack's area "
        f"under the curve ends below {{auc}}, and {single_item('record')}",
        lambda evidence: (
            evidence.attacks_fail and evidence.found["p_value"] <= evidence.level and evidence.resolution.finds_one
        ),
    ),
    Case(
        "not detected",
        "the 95 % interval of every attack's area under the curve ends below {auc}, no record is found, and "
        f"{single_item('record')}",
        lambda evidence: (
            evidence.attacks_fail and evidence.found["p_value"] > evidence.level and evidence.resolution.finds_one
        ),
        steps=STEPS["cleared"],
    ),
    undecided(reasons=lambda _config, evidence: (evidence.resolution.explain(),)),
)
LIMITS = (
    "The audit speaks of models that were trained here, each on half of the records, and of what they say of a record "
    "itself. A record may help to recognise its near copies without being found. A record that is not found may still "
    "have an influence that so few models do not show. Two records of a pair have opposite halves, so that among few "
    "records one may be found because the training on its partner does harm."
)


def read(config: Membership, summary: pa.Table) -> Evidence | None:
    assert isinstance(config.question, Halves)
    return read_evidence(config.question, summary)


def rows_of(evidence: Evidence) -> tuple[Name, ...]:
    return tuple(name_of(row) for row in (evidence.found, evidence.attack) if row is not None)


def describe_evidence(_config: Membership, evidence: Evidence) -> str:
    """The records that were found and the strongest attack, in a sentence."""
    found = evidence.found
    words = (
        f"of {found['n']:,} records {found['estimate']:,.0f} are found to change what models say of them "
        f"(exact test, false discoveries at most {100 * evidence.level:g} %; that any does: "
        f"{p_in_words(found['p_value'])})"
    )
    if found["estimate"]:
        words += f", {evidence.memorised['estimate']:,.0f} of them by more than {SMALLEST:g} nats"
    if evidence.attack is None:
        return words
    row = evidence.attack
    return (
        f"{words}; the strongest attack, {read_setting(row)['attack']}, tells members from others with an area under "
        f"the curve of {row['estimate']:.3f} (95 % interval {row['low']:.3f} to {row['high']:.3f} over {row['n']} "
        "targets; .5 where nothing is told)"
    )


def draw_chances(_config: Membership, evidence: Evidence) -> NumberLine:
    return chances(evidence.found["p_value"], evidence.level)


HALVES = Answering[Evidence](
    scope="halves of the records",
    applies=_asks_halves,
    asked=lambda _config, _evidence: "Can it be told from a model whether a certain record was in its training data?",
    rules=Rules(CASES, thresholds),
    read=read,
    unread=lambda _config: "no record was tested.",
    limits=lambda _config, _evidence: LIMITS,
    describe=describe_evidence,
    rows=rows_of,
    line=draw_chances,
    null=Null(
        holds=lambda config: config.question.unseen,
        remark=lambda _config: "This is a null: no model was trained on the records that were asked about.",
        proper="unseen=false",
    ),
)
