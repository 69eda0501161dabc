"""Does a given model find texts likelier than others of another time or source, and would it show without the model?

The scores of a text: its loss, as mean log p of a token; Min-k %, the mean over the 20 % of its tokens that are least
likely (Shi et al. 2024, eq. 1); and log p by the bits that zlib needs for it (Carlini et al. 2021, section 5.2).

The others were not drawn as the texts were: they differ in their time, source or topic, and whatever shows that wins
(Duan et al. 2024; Das, Zhang and Tramer 2024, "Blind baselines beat membership inference attacks"). So a blind control
that never sees the model looks at a bag of words. Where it tells the sets apart, nothing is judged.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.text.blind_control import BLIND, bag_of_words
from tasks.audits.text.config import About, Text
from tasks.audits.text.given.model import ComparedTexts, both_sets, compared_texts, questions
from tasks.audits.text.given.table import handout_order, read_log_p
from tasks.audits.text.question import OtherTexts
from tasks.contract.job import Inputs, Job, Work, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, row
from tasks.external.split_audit import blind_areas, interval_of_area
from tasks.numerics.ranks import area_under_curve
from tasks.worker import hardware

Array = NDArray[np.float64]
LEAST_LIKELY = 0.2  # of a text's tokens: Min-20 %
AREA = "area under the curve"
ATTACKS = ("loss", "min-k", "zlib")
OTHER_TEXTS = pa.schema(
    [
        ("score", pa.string()),  # one of ATTACKS, or the blind control
        ("auc", pa.float64()),  # the chance that a text of data has a higher score than one of others
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("p_value", pa.float64()),  # that both sets were drawn alike, as far as the blind control sees; null of scores
        ("texts", pa.int64()),
        ("others", pa.int64()),
    ]
)


def plan(config: Text, trainings: tuple[Job, ...]) -> Job | tuple[()]:  # noqa: ARG001 - nothing is trained
    if not isinstance(config.question, OtherTexts):
        return ()
    asked = compared_texts(config.question, config.seed)
    both_sets(asked)
    return Job(other_texts, asked)


def work(config: ComparedTexts) -> Work:
    """What the questions compute."""
    asked = 0 if config.outputs is not None else sum(map(len, both_sets(config)))
    return Work({}, {f"score {config.model.name}": asked})


@task(version=2, name="text.other_texts", gpus=1.0, work=work)
def other_texts(config: ComparedTexts, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """How well each score tells the texts from the others, and how well a bag of words does (OTHER_TEXTS)."""
    texts, others = both_sets(config)
    sizes = {"texts": len(texts), "others": len(others)}
    rows: list[Row] = []
    score = score_texts_as_they_are if config.outputs is None else _score_returned_texts
    for name, scores in score(config, [*texts, *others]).items():
        area = area_under_curve(scores[: len(texts)], scores[len(texts) :])
        estimate = interval_of_area(area, len(texts), len(others))
        rows.append({"score": name, "auc": area, "low": estimate.low, "high": estimate.high, **sizes})
    blind, p_value = blind_areas(bag_of_words([*texts, *others]), len(texts), config.seed)
    limits = {"auc": blind.value, "low": blind.low, "high": blind.high, "p_value": p_value}
    return pa.Table.from_pylist([*rows, {"score": BLIND, **limits, **sizes}], OTHER_TEXTS)


def score_texts_as_they_are(config: ComparedTexts, texts: Sequence[str]) -> dict[str, Array]:
    """Each of ATTACKS, (texts,), higher where a text is rather known."""
    from tasks.language_models.fine_tuning import model_as_it_is
    from tasks.language_models.training import encode_texts, least_likely, score_targets

    place = hardware.device()
    with hardware.exactly(place), model_as_it_is(config, place) as model:
        examples = encode_texts(config, model, texts)
        log_p = score_targets(model, examples)
        lowest = score_targets(model, examples, least_likely(LEAST_LIKELY))
    loss, min_k, ratio = ATTACKS
    return {loss: log_p / np.array(examples.lengths), min_k: lowest, ratio: log_p / _zlib_bits(texts)}


def _score_returned_texts(config: ComparedTexts, texts: Sequence[str]) -> dict[str, Array]:
    """Those of ATTACKS that an owner's table tells, (texts,): it has no tokens, so its loss is by bytes."""
    assert config.outputs is not None
    log_p = read_log_p(config.outputs, handout_order(questions(config), config.seed)).log_p
    loss, _, ratio = ATTACKS
    return {loss: log_p / np.array([len(text.encode()) for text in texts]), ratio: log_p / _zlib_bits(texts)}


def _zlib_bits(texts: Sequence[str]) -> Array:
    return np.array([8.0 * len(zlib.compress(text.encode())) for text in texts])


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - an interval knows no level
    for each in tables.rows(OTHER_TEXTS):
        area = Estimate(each["auc"], each["low"], each["high"], each["texts"] + each["others"])
        yield row(AREA, {"score": each["score"]}, area, "text", 0.5, each["p_value"])


MEASURE = Measure("other_texts", OTHER_TEXTS, plan, rows)
