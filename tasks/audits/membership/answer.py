"""The audit's answer: how each question is answered, what the answers mean, and the number by which runs compare."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tasks.audits.membership.canary_answer import BROKEN, BROKEN_MEANING, CANARIES
from tasks.audits.membership.config import Canaries, Halves, Membership
from tasks.audits.membership.given_answer import GIVEN
from tasks.audits.membership.given_config import GivenModel
from tasks.audits.membership.halves_answer import HALVES
from tasks.audits.membership.measures.epsilon import EXPOSURE
from tasks.audits.membership.measures.given import FOUND_GIVEN
from tasks.audits.membership.measures.records import FOUND
from tasks.audits.membership.thresholds import thresholds
from tasks.contract import epsilon_rows
from tasks.contract.answering import AnsweringByQuestion
from tasks.contract.certificate import Certificate
from tasks.contract.objectives import Objective
from tasks.contract.summaries import Row, first_row, index_rows
from tasks.contract.verdict import ANSWERS, BELOW_RELEVANT_SIZE, NOT_ASSESSABLE, Answer, Meaning, Verdict

MEANINGS: Mapping[Answer, Meaning] = {
    **{name: ANSWERS[name] for name in ("memorised", "not detected", BELOW_RELEVANT_SIZE, "undecided")},
    NOT_ASSESSABLE: ANSWERS[NOT_ASSESSABLE],
    BROKEN: BROKEN_MEANING,
}

ANSWERING = AnsweringByQuestion((CANARIES, GIVEN, HALVES), thresholds)
RULES = ANSWERING.rules


def verdict(config: Membership, summary: pa.Table) -> Verdict:
    return ANSWERING.verdict(config, summary)


def certificate(config: Membership, summary: pa.Table, verdict: Verdict) -> Certificate:
    return ANSWERING.certificate(config, summary, verdict)


def effect(config: Membership, summary: pa.Table) -> Row | None:
    """The row of the records that are found; of a given model in it; of canaries that of the bound on epsilon."""
    metrics = {Halves: FOUND, Canaries: epsilon_rows.AT_LEAST, GivenModel: FOUND_GIVEN}
    return first_row(index_rows(summary), metrics[type(config.question)])


EFFECT = Objective("records found", "record", "lower", effect)
SYMBOLS: Mapping[str, str] = {
    "effect": "by how much a record's own log-odds rise when a model is trained on it, in nats",
    "mem": "by how much more often a record's label is told rightly by models that were trained on it",
    "AUC": "the chance that an attack scores a member higher than another record",
    "share of pairs won": "how often a record scores higher by the model trained on it than by its partner",
    **epsilon_rows.SYMBOLS,
    EXPOSURE: "by how much a canary's rank shortens the search for it among those left out",
    "nominal": "the false-positive rate at which the threshold was set, on other models",
}
