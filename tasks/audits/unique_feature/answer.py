"""The audit's answer: verdict and certificate by the question, its rules, and the symbols explained.

Where pairs were trained, the effect of the canaries and their ranks decide (`pairs`); where models are asked
alone, the rank of the feature among its family or beside references does (`single_models`).
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.measures.family import PUSH
from tasks.audits.unique_feature.pairs import answer as pairs
from tasks.audits.unique_feature.pairs.canary_scores import EFFECT as EFFECT_ROW
from tasks.audits.unique_feature.single_models import answer as single_models
from tasks.audits.unique_feature.single_models.answer import PARTLY
from tasks.contract.answering import AnsweringByQuestion
from tasks.contract.certificate import Certificate
from tasks.contract.objectives import Objective, Objectives, row_reader
from tasks.contract.summaries import Row, first_row, index_rows, row_name
from tasks.contract.verdict import ANSWERS, BELOW_RELEVANT_SIZE, NOT_ASSESSABLE, Answer, Meaning, Verdict

MEANINGS: Mapping[Answer, Meaning] = {
    **{answer: ANSWERS[answer] for answer in ("memorised", "not detected", BELOW_RELEVANT_SIZE, "undecided")},
    PARTLY: Meaning("the model knows this feature or one that shares a part with it; the evidence does not tell which"),
    NOT_ASSESSABLE: ANSWERS[NOT_ASSESSABLE],
}


def thresholds(config: UniqueFeature) -> Mapping[str, str]:
    """The numbers in the rules' texts."""
    return {**pairs.thresholds(config), **single_models.thresholds(config)}


ANSWERING = AnsweringByQuestion((pairs.ANSWERING, single_models.ANSWERING), thresholds)
RULES = ANSWERING.rules


def verdict(config: UniqueFeature, summary: pa.Table) -> Verdict:
    return ANSWERING.verdict(config, summary)


def certificate(config: UniqueFeature, summary: pa.Table, verdict: Verdict) -> Certificate:
    return ANSWERING.certificate(config, summary, verdict)


SYMBOLS: Mapping[str, str] = {
    "M": "how much more a model’s answer changes with the feature than with a random patch in its place, in nats; the "
    "paper’s score, which decides nothing here",
    "M_w": "how much more probable the label of the canary is with the feature than with a random patch: the "
    "difference of two logarithms, in nats",
    "effect": "the score of a model that saw the feature in one image, minus that of its twin, which did not",
    "canary": "a training image with the feature, and the model that was trained with it",
    "twin": "the model of the same seed that was trained without the feature",
    "evidence": "what a stake grows to that is bet on the ranks of drawn features, pair after pair; where nothing is "
    "memorised it stays at 1 on average, whenever one looks",
    "P_u": "the probability of the canary’s label with the feature in the image",
    "P_r": "the probability of the canary’s label with a random patch in the image",
    "push": "how much more the feature raises the log odds of a label than the others of its family do, in nats",
    "family": "other features of the same kind, ink and place, none of which was trained on",
    "look-alike": "a feature that differs from the one asked about in one part alone: a word of a name, a half of a "
    "glyph or a picture",
    "rank": "the place of the feature among its family, 1 for the one that the model answers to most",
    "KL": "the Kullback–Leibler divergence, how far two answers of a model are apart, in nats",
    "probe": "images that no model was trained on, with which the models are asked",
    "Welch": "a t-test for samples of different spread",
    "welch": "a t-test for samples of different spread",
}


# What a search over training choices moves, and the number by which runs are compared


def effect(config: UniqueFeature, summary: pa.Table) -> Row | None:
    """The row of the effect on M_w of pairs of trainings; of models that are asked alone that of their push."""
    rows = index_rows(summary)
    return rows.get(EFFECT_ROW) if config.single_models is None else first_row(rows, PUSH)


OBJECTIVES = Objectives(
    memorization=Objective("M_w effect", "nats", "lower", row_reader(*EFFECT_ROW)),
    utility=Objective(
        "validation accuracy", "share", "higher", row_reader(*row_name("validation accuracy", model="canary"))
    ),
    allowance=0.01,
)
EFFECT = Objective("effect of the feature", "nats", "lower", effect)
