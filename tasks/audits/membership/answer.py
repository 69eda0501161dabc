"""Decision rules of the audit for each question, the meanings of the answers, and the number to compare runs by."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from tasks.audits.membership.canary_answer import CANARIES
from tasks.audits.membership.config import Canaries, Halves, Membership, ModelPairs
from tasks.audits.membership.given_answer import GIVEN
from tasks.audits.membership.given_config import GivenModel
from tasks.audits.membership.halves_answer import HALVES
from tasks.audits.membership.loss_answer import LOSS
from tasks.audits.membership.loss_config import LossAttack
from tasks.audits.membership.measures.attacks import AUC
from tasks.audits.membership.measures.epsilon import EXPOSURE
from tasks.audits.membership.measures.given import FOUND_GIVEN
from tasks.audits.membership.measures.pairs import LARGEST
from tasks.audits.membership.measures.records import FOUND
from tasks.audits.membership.pairs_answer import PAIRS
from tasks.audits.membership.thresholds import thresholds
from tasks.contract import epsilon_rows
from tasks.contract.answering import AnsweringByQuestion
from tasks.contract.certificate import Certificate
from tasks.contract.objectives import Objective
from tasks.contract.summaries import Row, first_row, index_rows
from tasks.contract.verdict import BELOW_RELEVANT_SIZE, DISTINGUISHABLE, Answer, Meaning, Verdict, select_meanings

MEANINGS: Mapping[Answer, Meaning] = {
    **select_meanings(
        ("memorised", "not detected", BELOW_RELEVANT_SIZE),
        {
            "memorised": "Anyone who can query such a model can find out that these records were in its training data.",
        },
    ),
    epsilon_rows.BROKEN: epsilon_rows.BROKEN_MEANING,
    DISTINGUISHABLE: Meaning(
        "the model predicts its training data better than other data of the same kind",
        "accused",
        "Anyone who can query the model with a record can guess better than by chance whether it was trained on it.",
    ),
}

ANSWERING = AnsweringByQuestion((CANARIES, PAIRS, GIVEN, LOSS, HALVES), thresholds)
RULES = ANSWERING.rules


def verdict(config: Membership, summary: pa.Table) -> Verdict:
    return ANSWERING.verdict(config, summary)


def certificate(config: Membership, summary: pa.Table, verdict: Verdict) -> Certificate:
    return ANSWERING.certificate(config, summary, verdict)


def first_metric(metric: str) -> Callable[[Membership, pa.Table], Row | None]:
    """Return a function that finds the first row with this metric."""
    return lambda _config, summary: first_row(index_rows(summary), metric)


# The number that compares runs. The exact test identifies records, so their count is the result; the best of seven
# attacks is another attack in each run, and its area under the curve would compare attacks.
EFFECTS: Mapping[type, Objective] = {
    Halves: Objective("records found", "record", "lower", first_metric(FOUND), "{} of {n} records"),
    GivenModel: Objective(
        "records found in the given model", "record", "lower", first_metric(FOUND_GIVEN), "{} of {n} records"
    ),
    ModelPairs: Objective("records found", "record", "lower", first_metric(FOUND), "{} of {n} records"),
    Canaries: Objective(
        "lower bound on epsilon", "epsilon", "lower", first_metric(epsilon_rows.AT_LEAST), "epsilon at least {}"
    ),
    LossAttack: Objective("area under the curve of the loss", "AUC", "lower", first_metric(AUC), "AUC {}"),
}


def effect(config: Membership) -> Objective:
    """Return the number by which runs that answer this question are compared."""
    return EFFECTS[type(config.question)]


SYMBOLS: Mapping[str, str] = {
    "effect": "increase of a record's log-odds if a model is trained on the record, in nats",
    "mem": "increase of the share of models that label a record correctly, if they are trained on the record",
    "AUC": "probability that an attack scores a member higher than a non-member",
    "share of pairs won": "share of pairs of models in which the one trained on the record scores it higher",
    **epsilon_rows.SYMBOLS,
    EXPOSURE: "reduction of the search for a canary by its rank among the canaries left out, in bits",
    LARGEST: "mean over records of the growth of a bet that the model trained on a record scores it higher",
    "nominal": "false-positive rate at which the threshold was set, on other models or on other non-members",
}
