"""Canaries for one run: records that a fair coin puts into a model's training data, and what the model says of them."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.membership.config import Membership
from tasks.audits.membership.trainings import log_odds, training
from tasks.contract.job import Inputs, Job, task
from tasks.datasets.catalog import load
from tasks.datasets.mixtures import CoinedCanaries, Part
from tasks.numerics import seeds
from tasks.training.mixed import logits

CANARIES = pa.schema(
    [
        ("model", pa.int64()),
        ("row", pa.int64()),  # of the training split
        ("label", pa.int64()),  # which a model that is trained on the canary is taught
        ("inside", pa.bool_()),  # whether the model is trained on it
        ("log_odds", pa.float64()),  # of that label, in nats
        ("spent", pa.float64()),  # epsilon by the accountant; null where training was not private
    ]
)


def canary_jobs(config: Membership) -> tuple[Job, ...]:
    """The table of canaries of each model; a DatasetError where the data have too few records."""
    part, seed, jobs = Part(config.data, 0, config.examples), seeds.derive(config.seed, "canaries"), []
    for number in range(config.models):
        coined = CoinedCanaries(part, config.canaries, number, seed, config.mislabelled)
        coined.canary_rows(load(config.data))
        jobs.append(Job(canary_answers, coined, (training(config, coined, number),)))
    return tuple(jobs)


@task(version=1, name="membership.canaries")
def canary_answers(config: CoinedCanaries, inputs: Inputs) -> pa.Table:
    """What a model says of each canary, in evaluation mode, and whether it was trained on it (CANARIES)."""
    from tasks.models.networks import architecture_of, weights_of_model

    (model,) = inputs
    images = load(config.part.data)
    rows = config.canary_rows(images)
    labels = config.labels(images)[rows]
    scores = logits(architecture_of(model), weights_of_model(model), images.train_images[rows])
    spent = max(model["epsilons"][0].as_py()) if "epsilons" in model.column_names else None
    number, accounted = (
        pa.array([value] * len(rows), kind) for value, kind in ((config.number, pa.int64()), (spent, pa.float64()))
    )
    return pa.table([number, rows, labels, config.is_inside(), log_odds(scores, labels), accounted], schema=CANARIES)
