"""The answer about texts that are compared with others: a warning, beside a bag of words."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.text.blind_control import BLIND, describe_area
from tasks.audits.text.config import Text
from tasks.audits.text.given.other_texts import AREA, ATTACKS
from tasks.audits.text.given.returned import DIFFERING, answers_questions
from tasks.audits.text.given.returned import TIED as TABLE_TIED
from tasks.audits.text.question import OtherTexts
from tasks.contract.rules import Rule, Rules
from tasks.contract.summaries import (
    Row,
    first_row,
    index_rows,
    name_of,
    p_in_words,
    row_name,
)
from tasks.contract.ties import NOT_JUDGED
from tasks.contract.verdict import Answer, Verdict
from tasks.external.split_audit import BLIND_LEVEL

DISTINGUISHED: Answer = "told apart"


@dataclass(frozen=True)
class OtherTextEvidence:
    """The summary rows of the areas under the curve of the loss, and of the blind control.

    `returned` are those of how far an owner's table answers; empty where the model is asked here.
    """

    loss: Row
    blind: Row
    returned: tuple[Row, ...] = ()

    @property
    def is_answered(self) -> bool:
        return answers_questions(self.returned)


def asks_other_texts(config: Text) -> bool:
    return isinstance(config.question, OtherTexts)


OTHER_TEXT_RULES: tuple[Rule[OtherTextEvidence], ...] = (
    Rule(
        NOT_JUDGED,
        f"a bag of words tells the texts from the others without the model (p at most {100 * BLIND_LEVEL:g} %)",
        lambda evidence: evidence.blind["p_value"] <= BLIND_LEVEL,
        scope="texts beside others",
        applies=asks_other_texts,
    ),
    Rule(
        DISTINGUISHED,
        "the 95 % interval of the area under the curve of the model's loss lies above .5, and above that of the bag of "
        "words",
        lambda evidence: evidence.loss["low"] > max(0.5, evidence.blind["high"]),
        scope="texts beside others",
        applies=asks_other_texts,
    ),
)
LIMITS_OF_OTHERS = (
    "This is a warning and no evidence. The two sets were not drawn alike by the audit, and a language model may see "
    "what a bag of words does not: evidence takes texts that were left out of the training by chance (documents), "
    "secrets that were drawn, or identifiers that are random. Nobody is cleared by it."
)


def limits_of_others(config: Text) -> str:
    """What the answer does not say, and of a returned table who chose its order."""
    return f"{LIMITS_OF_OTHERS} {config.describe_draw()}".strip()


def other_text_verdict(config: Text, summary: pa.Table, rules: Rules[OtherTextEvidence]) -> Verdict:
    """The answer by the rules, with its evidence in words."""
    found = index_rows(summary)
    names = {name: row_name(AREA, score=name) for name in (*ATTACKS, BLIND)}
    areas = {name: found[key] for name, key in names.items() if key in found}
    returned = tuple(each for each in (first_row(found, TABLE_TIED), first_row(found, DIFFERING)) if each is not None)
    if not areas:
        return Verdict("undecided", "Undecided: no text was asked about.", limits_of_others(config), ())
    loss, blind = areas[ATTACKS[0]], areas[BLIND]
    answer = rules.decide(config, OtherTextEvidence(loss, blind, returned)).answer
    scores = ", ".join(f"{name} {describe_area(areas[name])}" for name in ATTACKS if name in areas)
    sentence = (
        f"{answer.capitalize()}: of a text and one of the others the model's scores are higher for the former so "
        f"often: {scores} (.5 where nothing is told); a bag of words, without the model, tells them apart by "
        f"{describe_area(blind)}, {p_in_words(blind['p_value'])} that both were drawn alike."
    )
    return Verdict(
        answer, sentence, limits_of_others(config), tuple(name_of(each) for each in (loss, blind, *returned))
    )
