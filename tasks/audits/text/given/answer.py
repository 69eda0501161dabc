"""Verdict on texts that are compared with texts of another time or source: a warning, with a blind control."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.text.blind_control import BLIND
from tasks.audits.text.config import Text
from tasks.audits.text.given.comparison import AREA, ATTACKS
from tasks.audits.text.given.returned import DIFFERING, TIED, has_table, table_rule
from tasks.audits.text.plain_words import interval_per_hundred, name_given_model, share_line
from tasks.audits.text.question import TextComparison
from tasks.audits.text.thresholds import thresholds
from tasks.contract.answering import Answering
from tasks.contract.certificate import NO_CONCLUSION_YET, NumberLine, number_per_hundred
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import (
    Name,
    Row,
    area_with_interval,
    first_row,
    index_rows,
    names_of,
    p_in_words,
    row_name,
)
from tasks.contract.ties import tie_rule
from tasks.contract.verdict import DISTINGUISHABLE, NOT_ASSESSABLE
from tasks.external.split_audit import BLIND_LEVEL

FURTHER_AUDITS = "To obtain evidence, audit secrets, identifiers or documents."


@dataclass(frozen=True)
class ComparisonEvidence:
    """Summary rows of the areas under the curve, by score, and table rows that report defects of a returned table.

    `areas` contains the scores of the model and the blind control. `tied` is the row on tied numbers, and `differing`
    is the row on texts that were returned with two different numbers; both are None if the audit evaluates the model.
    """

    areas: Mapping[str, Row]
    tied: Row | None = None
    differing: Row | None = None

    @property
    def loss(self) -> Row:
        return self.areas[ATTACKS[0]]

    @property
    def blind(self) -> Row:
        return self.areas[BLIND]


def _explain_difference_of_words(_config: Text, _evidence: ComparisonEvidence) -> str:
    return (
        "The two sets of texts differ by their words alone. A difference in the model's scores may come from the topic "
        "or time of the texts, so it shows nothing."
    )


RULES = Rules[ComparisonEvidence](
    (
        Case(
            NOT_ASSESSABLE,
            "a bag of words distinguishes the texts from the comparison texts without the model (p at most "
            f"{100 * BLIND_LEVEL:g} %)",
            lambda evidence: evidence.blind["p_value"] <= BLIND_LEVEL,
            explain=_explain_difference_of_words,
            steps=(NO_CONCLUSION_YET, FURTHER_AUDITS),
        ),
        Case(
            DISTINGUISHABLE,
            "the 95 % interval of the area under the curve of the model's loss is above 0.5 and above that of the bag "
            "of words",
            lambda evidence: evidence.loss["low"] > max(0.5, evidence.blind["high"]),
            steps=("Treat this as a warning, not as evidence.", FURTHER_AUDITS),
        ),
        tie_rule("returned tables about compared texts", has_table),
        table_rule(),
        undecided(steps=(NO_CONCLUSION_YET, FURTHER_AUDITS)),
    ),
    thresholds,
)
QUESTION = "Does a language model rate these texts as more probable than texts on which it was not trained?"
LIMITS = (
    "This is a warning, not evidence. The audit did not assign the texts to the two sets at random, and a language "
    "model may see differences that a bag of words does not. Evidence requires documents that were left out of the "
    "training at random, secrets that were drawn, or random identifiers. This comparison clears no model."
)


def read_evidence(_config: Text, summary: pa.Table) -> ComparisonEvidence | None:
    """Read the evidence from a summary. Returns None if no text has a score."""
    rows = index_rows(summary)
    areas = {}
    for score in (*ATTACKS, BLIND):
        name = row_name(AREA, score=score)
        if name in rows:
            areas[score] = rows[name]
    if not areas:
        return None
    return ComparisonEvidence(areas, first_row(rows, TIED), first_row(rows, DIFFERING))


def _describe_areas(_config: Text, evidence: ComparisonEvidence) -> str:
    areas = evidence.areas
    blind = evidence.blind
    scores = ", ".join(f"{score} {area_with_interval(areas[score])}" for score in ATTACKS if score in areas)
    return (
        f"the scores of the model distinguish the texts from the comparison texts with an area under the curve of "
        f"{scores} (95 % intervals, 0.5 without information); a bag of words, without the model, has "
        f"{area_with_interval(blind)} ({p_in_words(blind['p_value'])})"
    )


def _explain_areas(_config: Text, evidence: ComparisonEvidence) -> str:
    loss = evidence.loss
    blind = evidence.blind
    return (
        "Of a text and a comparison text, the model rates the text as more probable in "
        f"{number_per_hundred(loss['estimate'])} % of the pairs{interval_per_hundred(loss)}; 50 % means no difference. "
        f"A count of words, without the model, reaches {number_per_hundred(blind['estimate'])} %."
    )


def _draw_area(_config: Text, evidence: ComparisonEvidence) -> NumberLine | None:
    label = "pairs in which the model rates the text as more probable than the comparison text, in %"
    return share_line(evidence.loss, label, "no difference")


def _name_rows(evidence: ComparisonEvidence) -> tuple[Name, ...]:
    return names_of(evidence.loss, evidence.blind, evidence.tied, evidence.differing)


def describe_limits(config: Text, _evidence: ComparisonEvidence | None) -> str:
    """State the limits of the verdict and, for a returned table, who chose the order of its texts."""
    return f"{LIMITS} {config.describe_draw()}".strip()


def _name_model(config: Text) -> str:
    assert isinstance(config.question, TextComparison)
    return name_given_model(config.question.source)


COMPARISON_ANSWERING = Answering[ComparisonEvidence](
    asked=lambda _config, _evidence: QUESTION,
    rules=RULES,
    read=read_evidence,
    unread=lambda _config: "no text was scored.",
    limits=describe_limits,
    describe=_describe_areas,
    rows=_name_rows,
    explain=_explain_areas,
    line=_draw_area,
    examined=_name_model,
    scope="compared texts",
    applies=lambda config: isinstance(config.question, TextComparison),
)
