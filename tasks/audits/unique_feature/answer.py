"""The verdict of the audit: verdict and certificate for each question, the rules, and explanations of symbols.

For pairs of training runs, the effect of the canaries and their ranks decide (`pairs`). For single models, the rank of
the feature in its family, or compared with references, decides (`single_models`).
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.measures.family import PUSH
from tasks.audits.unique_feature.pairs import answer as pairs
from tasks.audits.unique_feature.pairs.canary_scores import EFFECT as EFFECT_ROW
from tasks.audits.unique_feature.single_models import answer as single_models
from tasks.audits.unique_feature.single_models.sentences import PARTLY
from tasks.contract.answering import AnsweringByQuestion
from tasks.contract.certificate import Certificate
from tasks.contract.objectives import Objective, Objectives, row_reader
from tasks.contract.summaries import Row, first_row, index_rows, row_name
from tasks.contract.verdict import BELOW_RELEVANT_SIZE, Answer, Meaning, Verdict, select_meanings

MEANINGS: Mapping[Answer, Meaning] = {
    **select_meanings(
        ("memorised", "not detected", BELOW_RELEVANT_SIZE),
        {
            "memorised": "Others can test whether a feature such as this one was in its training images.",
        },
    ),
    PARTLY: Meaning(
        "the model knows this feature or one that shares a part with it, such as one word of a name; the evidence does "
        "not show which"
    ),
}


def thresholds(config: UniqueFeature) -> Mapping[str, str]:
    """Return the numbers that appear in the rule text."""
    return {**pairs.thresholds(config), **single_models.thresholds(config)}


ANSWERING = AnsweringByQuestion((pairs.ANSWERING, single_models.ANSWERING), thresholds)
RULES = ANSWERING.rules


def verdict(config: UniqueFeature, summary: pa.Table) -> Verdict:
    return ANSWERING.verdict(config, summary)


def certificate(config: UniqueFeature, summary: pa.Table, verdict: Verdict) -> Certificate:
    return ANSWERING.certificate(config, summary, verdict)


SYMBOLS: Mapping[str, str] = {
    "M": "how much more a model’s output changes with the feature than with a random patch in its place, in nats; the "
    "paper’s score, which decides nothing here",
    "M_w": "how much more probable the canary’s label is with the feature than with a random patch: the difference of "
    "two logarithms, in nats",
    "effect": "the score of a canary model minus that of its control model",
    "canary": "a training image with the feature, and the model that was trained with it",
    "twin": "the control model: same seed, trained without the feature",
    "evidence": "the product of bets on the ranks of drawn features, pair after pair; if nothing is memorised, it is 1 "
    "on average at any time",
    "P_u": "the probability of the canary’s label with the feature in the image",
    "P_r": "the probability of the canary’s label with a random patch in the image",
    "push": "how much more the feature raises the log odds of a label than the others of its family do, in nats",
    "family": "other features of the same kind, ink and position, none of which was trained on",
    "look-alike": "a feature that differs from the audited one in a single part: a word of a name, or one half of a "
    "glyph or a picture",
    "rank": "the place of the feature in its family; 1 is the strongest response",
    "KL": "the Kullback–Leibler divergence between two outputs of a model, in nats",
    "probe": "images on which models are evaluated and that no model was trained on",
    "Welch": "a t-test for samples of different variance",
    "welch": "a t-test for samples of different variance",
}


# Objectives for searches, and the number that compares runs


def effect(config: UniqueFeature, summary: pa.Table) -> Row | None:
    """Return the row with the effect on M_w for pairs of training runs, or with the push for single models."""
    rows = index_rows(summary)
    if config.single_models is None:
        return rows.get(EFFECT_ROW)
    return first_row(rows, PUSH)


OBJECTIVES = Objectives(
    memorization=Objective("M_w effect", "nats", "lower", row_reader(*EFFECT_ROW)),
    utility=Objective(
        "validation accuracy", "share", "higher", row_reader(*row_name("validation accuracy", model="canary"))
    ),
    allowance=0.01,
)
EFFECT = Objective("effect of the feature", "nats", "lower", effect)
