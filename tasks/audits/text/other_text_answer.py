"""The answer about texts beside others of another time or source: a warning, where words alone do not tell them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.text.config import Text
from tasks.audits.text.measures.other_texts import AREA, ATTACKS, BLIND
from tasks.contract.rules import Rule, Rules
from tasks.contract.summaries import Row, index_rows, name_of, p_in_words, row_name
from tasks.contract.verdict import Answer, Verdict
from tasks.external.split_audit import BLIND_LEVEL

DISTINGUISHED: Answer = "told apart"


@dataclass(frozen=True)
class OtherTextEvidence:
    """The summary rows of the areas under the curve of the loss, and of the blind control."""

    loss: Row
    blind: Row


def asks_other_texts(config: Text) -> bool:
    return config.others is not None


OTHER_TEXT_RULES: tuple[Rule[OtherTextEvidence], ...] = (
    Rule(
        "not judged",
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


def other_text_verdict(config: Text, summary: pa.Table, rules: Rules[OtherTextEvidence]) -> Verdict:
    """The answer by the rules, with its evidence in words."""
    found = index_rows(summary)
    names = {name: row_name(AREA, score=name) for name in (*ATTACKS, BLIND)}
    areas = {name: found[key] for name, key in names.items() if key in found}
    if not areas:
        return Verdict("undecided", "Undecided: no text was asked about.", LIMITS_OF_OTHERS, ())
    loss, blind = areas[ATTACKS[0]], areas[BLIND]
    answer = rules.decide(config, OtherTextEvidence(loss, blind)).answer
    scores = ", ".join(f"{name} {describe_area(areas[name])}" for name in ATTACKS)
    sentence = (
        f"{answer.capitalize()}: of a text and one of the others the model's scores are higher for the former so "
        f"often: {scores} (.5 where nothing is told); a bag of words, without the model, tells them apart by "
        f"{describe_area(blind)}, {p_in_words(blind['p_value'])} that both were drawn alike."
    )
    return Verdict(answer, sentence, LIMITS_OF_OTHERS, (name_of(loss), name_of(blind)))


def describe_area(row: Row) -> str:
    return f"{row['estimate']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
