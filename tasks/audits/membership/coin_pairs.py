"""Train pairs of models on the two halves into which fair coins divide the records, and compare their scores.

Each record has its own coin in each pair. The first model of a pair is trained on the records with heads, the second
model, with the same seed, on all others. A record's difference is the score of the model that was trained on it minus
the score of the other model. If training on a record does not change its score, then the coin only decides the sign of
its difference, given the coins of all other records. The pairs of a short run are the first pairs of a longer one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tasks.audits.membership.config import ModelPairs
from tasks.audits.membership.image_parts import unseen_part
from tasks.audits.membership.trainings import model_job, score_rows
from tasks.contract.job import Inputs, Job, task
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import load
from tasks.datasets.copies import distinct_rows, groups_of
from tasks.datasets.dataset import DatasetError
from tasks.datasets.mixtures import CoinHalf, Part
from tasks.numerics import seeds
from tasks.numerics.ranks import check_finite
from tasks.programs.config import Program
from tasks.training.classifier_config import ClassifierTraining

MIN_COINS = 20  # with fewer coins, a half may be empty
PAIR = pa.schema(
    [
        ("row", pa.int64()),  # row of the training split
        ("difference", pa.float64()),  # in nats
        ("correct", pa.bool_()),  # of the model trained on the record; null if it returned only a number per record
    ]
)


def pair_jobs(question: ModelPairs, training: ClassifierTraining | Program, seed: int) -> tuple[Job, ...]:
    """Plan the differences of each pair of a run with this seed. Raises DatasetError if there are too few records.

    In a control run, non-members that follow the records are scored, and coins of their own decide which model counts
    as trained on them.
    """
    records = Part(question.data, 0, question.examples)
    images = load(records.data)
    coins = len(np.unique(groups_of(images, records.rows(images))))
    if coins < MIN_COINS:
        raise DatasetError(
            f"{records.data.name} has {coins} records or groups of records; question=pairs needs at least {MIN_COINS}, "
            "since a coin decides about each"
        )
    scored = records
    coin_seed = scored_seed = seeds.derive(seed, "coins of records")
    if question.is_null:
        scored = unseen_part(records, question.examples)
        scored_seed = seeds.derive(seed, "coins of non-members")
    jobs = []
    for number in range(question.pairs):
        models = []
        for is_complement in (False, True):
            half = CoinHalf(records, number, coin_seed, is_complement)
            models.append(model_job(training, half, seed, number, scored))
        jobs.append(Job(differences, CoinHalf(scored, number, scored_seed), tuple(models)))
    return tuple(jobs)


@task(version=1, name="membership.pair")
def differences(config: CoinHalf, inputs: Inputs) -> pa.Table:
    """Compare the scores of each record by both models of a pair (PAIR). Exact copies count once.

    The first input is the model trained on the half.
    """
    images = load(config.part.data)
    rows = distinct_rows(images, config.part.rows(images))
    first, second = (score_rows(model, images, rows) for model in inputs)
    is_heads = np.isin(rows, config.rows(images))
    difference = np.where(is_heads, first.score - second.score, second.score - first.score)
    check_finite(difference, "differences of the models' scores")
    correct = None
    if first.correct is not None and second.correct is not None:
        correct = np.where(is_heads, first.correct, second.correct)
    return make_table(PAIR, row=rows, difference=difference, correct=correct)
