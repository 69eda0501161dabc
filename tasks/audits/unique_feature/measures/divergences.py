"""Outputs of a model for the same images clean, with the feature and with a random patch: one row per image.

    d_u = KL(f(x_c) || f(x_u)),  d_r = KL(f(x_c) || f(x_r)),  log P(y | x_u),  log P(y | x_r)

for a clean image x_c, the same image with the feature (x_u) and with a random patch (x_r); y is the canary's label. The
models evaluated are a canary model and its control model, or single models. M and M_w are means of differences of these
values; `canary_scores` computes them for pairs. For single models, the summary here contains

    M = mean KL(f(x_c) || f(x_u)) - mean KL(f(x_c) || f(x_r))      over the probe images

with its t-test and the number of probe images that the test needs. No single model is known never to have seen the
feature, so its M has no null and decides nothing.

Source. Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks", eq. 1 and sections
2.2 and 2.3.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.config import ProbeSplit
from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.evaluation import (
    MODELS,
    Evaluation,
    Predictor,
    Triples,
    check_label,
    network_predictor,
    probe_set_triples,
    probe_triples,
    training_set_triples,
)
from tasks.audits.unique_feature.pairs.canary_selection import canary_row
from tasks.audits.unique_feature.population import clean_images
from tasks.audits.unique_feature.presets import LEVEL
from tasks.audits.unique_feature.questions import Pairs
from tasks.audits.unique_feature.scores import black_box_score, divergence, probe_count_rows, spread
from tasks.audits.unique_feature.single_models.models import SingleModelConfig, burning, predictor, single_batch_key
from tasks.audits.unique_feature.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, row
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.numerics.statistics import mean, proportion, welch_greater

DIVERGENCES = pa.schema(
    [
        ("canary", pa.int64()),  # row of the training image that carries the feature
        ("label", pa.int32()),  # its label y
        ("seed", pa.int64()),  # training seed, the same for both models of a pair
        ("evaluation", pa.int32()),  # number of the draw of the random patches, from 0
        ("model", pa.string()),  # canary, or twin (its control model)
        ("images", pa.string()),  # probe, or train: training images with label y, without the canary
        ("image", pa.int64()),  # row in the probe set or in the training images
        ("d_u", pa.float32()),  # KL(f(x_c) || f(x_u)), nats
        ("d_r", pa.float32()),  # KL(f(x_c) || f(x_r)), nats
        ("log_p_u", pa.float32()),  # log P(y | x_u)
        ("log_p_r", pa.float32()),  # log P(y | x_r)
    ]
)


def batch_key(config: Evaluation) -> tuple[Dataset, Dataset, ProbeSplit, int]:
    """Return the settings shared by scores with similar run times."""
    return config.data, config.probe, config.probe_split, config.examples


@task(version=2, name="unique_feature.score", batch_key=batch_key)
def score(config: Evaluation, inputs: Inputs) -> pa.Table:
    """Score each image with the canary model and with its control model, which are the first two inputs.

    The table contains divergences and log-probabilities. If the canary is named by its rank, a third input, the table
    of chosen canaries, gives its row.
    """
    canary = canary_row(config.canary, inputs)
    data = load(config.data)
    sets = (probe_triples(config), training_set_triples(config.data, config.examples, canary, config.burning))
    label = int(data.train.labels[canary])
    about = {"canary": canary, "label": label, "evaluation": config.redraw}
    tables = []
    for model, table in zip(MODELS, inputs, strict=False):
        for triples in sets:
            tables.append(
                divergences(
                    network_predictor(table), triples, about | {"seed": table["seed"][0].as_py(), "model": model}
                )
            )
    return pa.concat_tables(tables).combine_chunks()


def divergences(predict: Predictor, triples: Triples, about: Mapping[str, Any]) -> pa.Table:
    """Return one model's rows (DIVERGENCES) for one set of images.

    `about` contains the canary, label, seed, evaluation and model. If the label is unknown, there are no
    log-probabilities.
    """
    clean = predict("clean", triples.clean)
    unique = predict("feature", triples.unique)
    random = predict("random", triples.random)
    label = about["label"]
    check_label(label, clean.shape[1])
    return make_table(
        DIVERGENCES,
        **about,
        images=triples.images,
        image=triples.rows,
        d_u=divergence(clean, unique),
        d_r=divergence(clean, random),
        log_p_u=None if label is None else unique[:, label],
        log_p_r=None if label is None else random[:, label],
    )


def evaluation_jobs(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    """Return the jobs that evaluate every pair, one for each draw of the random patches."""
    question = design.question
    drawings = range(question.evaluations if isinstance(question, Pairs) else 0)
    return tuple(
        Job(score, design.evaluation_of(pair.canary, pair.clean, redraw), pair.inputs)
        for pair in trainings.pairs
        for redraw in drawings
    )


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if design.asks_for("scores"):
        return evaluation_jobs(design, trainings)
    return ()


# Single models


@task(version=1, name="unique_feature.ask", batch_key=single_batch_key)
def ask(config: SingleModelConfig, inputs: Inputs) -> pa.Table:
    """Compute the divergences of a single model for each probe image (DIVERGENCES)."""
    triples = probe_set_triples(clean_images(config.relatives, config.shape), burning(config))
    about = {"canary": None, "label": config.label, "seed": config.number, "evaluation": 0, "model": "given"}
    return divergences(predictor(config, inputs), triples, about)


def plan_single(design: Design, trainings: Trainings) -> tuple[Job, ...]:  # noqa: ARG001
    return tuple(Job(ask, single.config, single.inputs) for single in trainings.single_models)


def single_rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """Yield M, the rate at which its t-test calls models memorised, and the number of probe images that it needs."""
    models = []
    for table in tables.select(DIVERGENCES):
        models.append({name: table[name].to_numpy().astype(np.float64) for name in ("d_u", "d_r")})
    if not models:
        return
    scores = [black_box_score(model["d_u"], model["d_r"]) for model in models]
    yield row("M", {"model": "given"}, mean([score for score in scores if score is not None]), "model")
    p_values = [welch_greater(model["d_u"], model["d_r"]).p_value for model in models]
    decisions = [p_value is not None and p_value < LEVEL for p_value in p_values]
    rate = proportion(sum(decisions), len(decisions))
    yield row("rate called memorised", {"model": "given", "test": "welch"}, rate, "model")
    spreads = [sd for model in models if (sd := spread(model["d_u"] - model["d_r"])) is not None]
    if spreads:
        yield from probe_count_rows(spreads, "model")


MEASURE = Measure("divergences", DIVERGENCES, plan)
SINGLE_MEASURE = Measure("divergences", DIVERGENCES, plan_single, single_rows)
