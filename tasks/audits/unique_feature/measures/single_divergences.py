"""The published score of single models: M, its t-test, and the number of probe images that it needs.

    M = mean KL(f(x_c) || f(x_u)) - mean KL(f(x_c) || f(x_r))      over the probe images

No model here is known never to have seen the feature, so M has no null and decides nothing.

Source. Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks", eq. 1 and section
2.3.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.feature_family import clean_images
from tasks.audits.unique_feature.measures.divergences import DIVERGENCES, divergences
from tasks.audits.unique_feature.power import probe_count_rows
from tasks.audits.unique_feature.probe_images import probe_set_triples
from tasks.audits.unique_feature.published import LEVEL
from tasks.audits.unique_feature.scores import black_box_score, spread
from tasks.audits.unique_feature.single_models import SingleModelConfig, batch_key, burning
from tasks.audits.unique_feature.single_predictors import predictor
from tasks.audits.unique_feature.trainings import Trainings
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.statistics import mean, proportion, welch_greater
from tasks.summaries import Row, row


@task(version=1, name="unique_feature.ask", batch_key=batch_key)
def ask(config: SingleModelConfig, inputs: Inputs) -> pa.Table:
    """Divergences per probe image (DIVERGENCES) of the one model."""
    triples = probe_set_triples(clean_images(config.relatives, config.shape), burning(config))
    about = {"canary": None, "label": config.label, "seed": config.number, "evaluation": 0, "model": "given"}
    return divergences(predictor(config, inputs), triples, about)


def plan(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:  # noqa: ARG001
    return tuple(Job(ask, single.config, single.inputs) for single in trainings.single_models)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    yield from published_score_rows(tables.select(DIVERGENCES))


def published_score_rows(tables: Sequence[pa.Table]) -> Iterator[Row]:
    """M, how many models its t-test calls memorised, and how many probe images that needs; a table is one model's."""
    if not tables:
        return
    models = [{name: table[name].to_numpy().astype(np.float64) for name in ("d_u", "d_r")} for table in tables]
    scores = [black_box_score(model["d_u"], model["d_r"]) for model in models]
    yield row("M", {"model": "given"}, mean([score for score in scores if score is not None]), "model")
    p_values = [welch_greater(model["d_u"], model["d_r"]).p_value for model in models]
    called = [p_value is not None and p_value < LEVEL for p_value in p_values]
    rate = proportion(sum(called), len(called))
    yield row("rate called memorised", {"model": "given", "test": "welch"}, rate, "model")
    spreads = [sd for model in models if (sd := spread(model["d_u"] - model["d_r"])) is not None]
    if spreads:
        yield from probe_count_rows(spreads, "model")


MEASURE = Measure("divergences", DIVERGENCES, plan, rows)
