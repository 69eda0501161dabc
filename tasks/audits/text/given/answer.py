"""The answer about texts that are compared with others: a warning, next to a bag of words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.text.blind_control import BLIND, describe_area
from tasks.audits.text.config import Text
from tasks.audits.text.given.other_texts import AREA, ATTACKS
from tasks.audits.text.given.returned import DIFFERING, TIED, has_table, table_rule
from tasks.audits.text.question import OtherTexts
from tasks.audits.text.thresholds import thresholds
from tasks.contract.answering import Answering
from tasks.contract.certificate import STEPS
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import Name, Row, first_row, index_rows, name_of, p_in_words, row_name
from tasks.contract.ties import tie_rule
from tasks.contract.verdict import NOT_ASSESSABLE, Answer
from tasks.external.split_audit import BLIND_LEVEL

DISTINGUISHABLE: Answer = "distinguishable"


@dataclass(frozen=True)
class OtherTextEvidence:
    """The summary rows of the areas under the curve, by score, and of how well an owner's table answers.

    `areas` holds the scores of the model and the blind control. `tied` is the row of equal numbers, and `differing`
    that of texts with two; None if the model is evaluated here.
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


RULES = Rules[OtherTextEvidence](
    (
        Case(
            NOT_ASSESSABLE,
            f"a bag of words tells the texts from the others without the model (p at most {100 * BLIND_LEVEL:g} %)",
            lambda evidence: evidence.blind["p_value"] <= BLIND_LEVEL,
        ),
        Case(
            DISTINGUISHABLE,
            "the 95 % interval of the area under the curve of the model's loss lies above .5, and above that of the "
            "bag of words",
            lambda evidence: evidence.loss["low"] > max(0.5, evidence.blind["high"]),
            steps=STEPS["accused"],
        ),
        tie_rule("tables about texts beside others", has_table),
        table_rule(),
        undecided(),
    ),
    thresholds,
)
ASKED = "Does a language model find these texts likelier than others on which it was not trained?"
LIMITS = (
    "This is a warning and no evidence. The two sets were not drawn alike by the audit, and a language model may see "
    "what a bag of words does not: evidence takes texts that were left out of the training by chance (documents), "
    "secrets that were drawn, or identifiers that are random. Nobody is cleared by it."
)


def read_evidence(_config: Text, summary: pa.Table) -> OtherTextEvidence | None:
    """The evidence in a summary; None if no text has a score."""
    rows = index_rows(summary)
    areas = {}
    for score in (*ATTACKS, BLIND):
        name = row_name(AREA, score=score)
        if name in rows:
            areas[score] = rows[name]
    if not areas:
        return None
    return OtherTextEvidence(areas, first_row(rows, TIED), first_row(rows, DIFFERING))


def _describe_areas(_config: Text, evidence: OtherTextEvidence) -> str:
    """The area under the curve of each score, and that of the bag of words."""
    areas, blind = evidence.areas, evidence.blind
    scores = ", ".join(f"{score} {describe_area(areas[score])}" for score in ATTACKS if score in areas)
    return (
        f"of a text and one of the others the model's scores are higher for the former so often: {scores} (.5 where "
        f"nothing is told); a bag of words, without the model, tells them apart by {describe_area(blind)}, "
        f"{p_in_words(blind['p_value'])} that both were drawn alike"
    )


def _name_rows(evidence: OtherTextEvidence) -> tuple[Name, ...]:
    rows = (evidence.loss, evidence.blind, evidence.tied, evidence.differing)
    return tuple(name_of(row) for row in rows if row is not None)


def describe_limits(config: Text, _evidence: OtherTextEvidence | None) -> str:
    """What the answer does not say, and of a returned table who chose its order."""
    return f"{LIMITS} {config.describe_draw()}".strip()


OTHER_TEXT_ANSWERING = Answering[OtherTextEvidence](
    asked=lambda _config, _evidence: ASKED,
    rules=RULES,
    read=read_evidence,
    unread=lambda _config: "no text was asked about.",
    limits=describe_limits,
    describe=_describe_areas,
    rows=_name_rows,
    scope="texts beside others",
    applies=lambda config: isinstance(config.question, OtherTexts),
)
