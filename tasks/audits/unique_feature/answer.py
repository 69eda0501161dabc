"""The audit's answer: the rules that decide it, and its verdict and certificate in words.

Where pairs were trained, the effect of the canaries and their ranks decide (`pair_answer`); where models are asked
alone, the rank of the feature among its family or beside references does (`panel_answer`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tasks.audits.unique_feature import pair_answer, panel_answer
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.measures.canary_scores import EFFECT as EFFECT_ROW
from tasks.audits.unique_feature.measures.family import PUSH
from tasks.audits.unique_feature.pair_answer import read_pair_evidence
from tasks.audits.unique_feature.panel_answer import NOT_JUDGED, read_panel_evidence
from tasks.contract.certificate import Certificate, Finding
from tasks.contract.objectives import Objective, Objectives, row_reader
from tasks.contract.rules import Rules, undecided
from tasks.contract.summaries import Row, index_rows
from tasks.contract.verdict import ANSWERS, Answer, Meaning, Verdict

MEANINGS: Mapping[Answer, Meaning] = {
    **{answer: ANSWERS[answer] for answer in ("memorised", "not seen", "undecided")},
    NOT_JUDGED: Meaning("what was sent back is not what the model that was described says of these pictures"),
}


def thresholds(config: UniqueFeature) -> Mapping[str, str]:
    return {**pair_answer.THRESHOLDS, **panel_answer.thresholds(config)}


RULES = Rules[Any]((*pair_answer.RULES, *panel_answer.RULES, undecided()), thresholds)


def verdict(config: UniqueFeature, summary: pa.Table) -> Verdict:
    """The answer by RULES, with its evidence in words."""
    rows = index_rows(summary)
    if not config.asks_models:
        pairs = read_pair_evidence(rows)
        return pair_answer.pair_verdict(config, RULES.decide(config, pairs), pairs)
    panel = read_panel_evidence(config, rows)
    if panel is None:
        return Verdict("undecided", "Undecided: no model has been asked yet.", panel_answer.LIMITS, ())
    return panel_answer.panel_verdict(config, RULES.decide(config, panel), panel)


SYMBOLS: Mapping[str, str] = {
    "M": "how much more a model’s answer changes with the feature than with a random patch in its place, in nats; the "
    "paper’s score, which decides nothing here",
    "M_w": "how much more probable the label of the canary is with the feature than with a random patch: the "
    "difference of two logarithms, in nats",
    "effect": "the score of a model that saw the feature in one image, minus that of its twin, which did not",
    "canary": "a training image with the feature, and the model that was trained with it",
    "twin": "the model of the same seed that was trained without the feature",
    "P_u": "the probability of the canary’s label with the feature in the image",
    "P_r": "the probability of the canary’s label with a random patch in the image",
    "push": "how much more the feature raises the log odds of a label than the others of its family do, in nats",
    "family": "other features of the same kind, ink and place, none of which was trained on",
    "rank": "the place of the feature among its family, 1 for the one that the model answers to most",
    "KL": "the Kullback–Leibler divergence, how far two answers of a model are apart, in nats",
    "probe": "images that no model was trained on, with which the models are asked",
    "Welch": "a t-test for samples of different spread",
    "welch": "a t-test for samples of different spread",
}


def certificate(config: UniqueFeature, summary: pa.Table, verdict: Verdict) -> Certificate:
    """The answer for somebody who knows no machine learning."""
    rows = index_rows(summary)
    if config.asks_models:
        asked, steps = panel_answer.panel_question(config), panel_answer.panel_steps(config, verdict.answer)
        finding = panel_finding(config, verdict, rows)
    else:
        pairs = read_pair_evidence(rows)
        rule = RULES.decide(config, pairs)
        asked, steps = pair_answer.pair_question(config), pair_answer.pair_steps(config, verdict.answer, pairs)
        told, line = pair_answer.describe_pairs(config, rule, pairs), pair_answer.pair_line(rule, pairs)
        finding = Finding(verdict.answer, told, line)
    return Certificate(
        asked=asked,
        findings=(finding,),
        rule=RULES.explain(config),
        error=RULES.explain_errors(config),
        beyond=verdict.limits,
        steps=steps,
    )


def panel_finding(config: UniqueFeature, verdict: Verdict, rows: Mapping[tuple[str, str], Row]) -> Finding:
    """The place of the feature by the rank that decides."""
    evidence = read_panel_evidence(config, rows)
    if evidence is None:
        return Finding(verdict.answer, "No model has been asked yet.")
    rank = evidence.deciding_rank
    told, line = panel_answer.describe_place(config, verdict.answer, rank), panel_answer.panel_line(config, rank)
    return Finding(verdict.answer, told, line, config.given.describe)


# What a search over training choices moves, and the number by which runs are compared


def effect(config: UniqueFeature, summary: pa.Table) -> Row | None:
    """The row of the effect on M_w of pairs of trainings; of models that are asked alone that of their push."""
    if not config.asks_models:
        return index_rows(summary).get(EFFECT_ROW)
    return next((row for row in summary.to_pylist() if row["metric"] == PUSH), None)


OBJECTIVES = Objectives(
    memorization=Objective("M_w effect", "nats", "lower", row_reader(*EFFECT_ROW)),
    utility=Objective(
        "validation accuracy", "share", "higher", row_reader("validation accuracy", json.dumps({"model": "canary"}))
    ),
    allowance=0.01,
)
EFFECT = Objective("effect of the feature", "nats", "lower", effect)
