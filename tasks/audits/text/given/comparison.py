"""Does a given model rate texts as more probable than texts of another time or source, beyond a blind control?

Scores of a text: its loss, as the mean log p per token; Min-k %, the mean log p over its least likely 20 % of tokens
(Shi et al. 2024, eq. 1); and log p divided by its size in bits after compression by zlib (Carlini et al. 2021, section
5.2).

The comparison texts do not come from the same distribution: they differ in time, source or topic, and any score that
picks up such a difference succeeds (Duan et al. 2024; Das, Zhang and Tramer 2024, "Blind baselines beat membership
inference attacks"). A blind control therefore classifies the two sets by a bag of words, without the model. If it
succeeds, the answer is *not assessable*.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.text.blind_control import BLIND, bag_of_words
from tasks.audits.text.config import About, Text
from tasks.audits.text.given.model import ComparedTexts, both_sets, compared_texts, questions, scoring_work
from tasks.audits.text.given.table import handout_order, read_log_p
from tasks.audits.text.question import TextComparison
from tasks.contract.job import Inputs, Job, Work, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, row
from tasks.external.split_audit import blind_areas, interval_of_area
from tasks.numerics.ranks import area_under_curve
from tasks.worker import hardware

Array = NDArray[np.float64]
LEAST_LIKELY = 0.2  # share of a text's tokens: Min-20 %
AREA = "area under the curve"
ATTACKS = ("loss", "min-k", "zlib")
COMPARISON = pa.schema(
    [
        ("score", pa.string()),  # one of ATTACKS, or the blind control
        ("auc", pa.float64()),  # probability that a text has a higher score than a comparison text
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("p_value", pa.float64()),  # of the blind control, if both sets come from one distribution; null for scores
        ("texts", pa.int64()),
        ("comparison_texts", pa.int64()),
    ]
)


def plan(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:  # noqa: ARG001 - nothing is trained
    if not isinstance(config.question, TextComparison):
        return ()
    compared = compared_texts(config.question, config.seed)
    both_sets(compared)
    return Job(comparison, compared)


def work(config: ComparedTexts) -> Work:
    """Return the amount of work for scoring."""
    if config.outputs is not None:
        return Work()
    texts = [text for part in both_sets(config) for text in part]
    return scoring_work(config, texts, len(texts))


@task(version=3, name="text.comparison", gpus=1.0, work=work)
def comparison(config: ComparedTexts, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """Compute the area under the curve of each score and of a bag-of-words classifier (COMPARISON)."""
    texts, comparison_texts = both_sets(config)
    sizes = {"texts": len(texts), "comparison_texts": len(comparison_texts)}
    rows: list[Row] = []
    if config.outputs is None:
        score = score_given_model
    else:
        score = _score_returned_texts
    for name, scores in score(config, [*texts, *comparison_texts]).items():
        area = area_under_curve(scores[: len(texts)], scores[len(texts) :])
        estimate = interval_of_area(area, len(texts), len(comparison_texts))
        rows.append({"score": name, "auc": area, "low": estimate.low, "high": estimate.high, **sizes})
    blind, p_value = blind_areas(bag_of_words([*texts, *comparison_texts]), len(texts), config.seed)
    limits = {"auc": blind.value, "low": blind.low, "high": blind.high, "p_value": p_value}
    return pa.Table.from_pylist([*rows, {"score": BLIND, **limits, **sizes}], COMPARISON)


def score_given_model(config: ComparedTexts, texts: Sequence[str]) -> dict[str, Array]:
    """Return each score of ATTACKS, shape (texts,). A higher score suggests membership."""
    from tasks.language_models.fine_tuning import model_as_it_is
    from tasks.language_models.training import encode_texts, least_likely, score_targets

    device = hardware.device()
    with hardware.exactly(device), model_as_it_is(config, device) as model:
        examples = encode_texts(config, model, texts)
        log_p = score_targets(model, examples)
        lowest = score_targets(model, examples, least_likely(LEAST_LIKELY))
    loss, min_k, ratio = ATTACKS
    return {loss: log_p / np.array(examples.lengths), min_k: lowest, ratio: log_p / _zlib_bits(texts)}


def _score_returned_texts(config: ComparedTexts, texts: Sequence[str]) -> dict[str, Array]:
    """Return the scores that a returned table permits, shape (texts,).

    The table contains no tokens, so the loss is per byte.
    """
    assert config.outputs is not None
    log_p = read_log_p(config.outputs, handout_order(questions(config), config.seed)).log_p
    loss, _, ratio = ATTACKS
    return {loss: log_p / np.array([len(text.encode()) for text in texts]), ratio: log_p / _zlib_bits(texts)}


def _zlib_bits(texts: Sequence[str]) -> Array:
    return np.array([8.0 * len(zlib.compress(text.encode())) for text in texts])


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the level is not used
    for score in tables.rows(COMPARISON):
        area = Estimate(score["auc"], score["low"], score["high"], score["texts"] + score["comparison_texts"])
        yield row(AREA, {"score": score["score"]}, area, "text", 0.5, score["p_value"])


MEASURE = Measure("comparison", COMPARISON, plan, rows)
