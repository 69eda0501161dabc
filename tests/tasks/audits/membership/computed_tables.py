"""Tables of each task, whose fingerprints a test compares with the version of the task."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.audits.membership.coin_pairs import differences
from tasks.audits.membership.config import About
from tasks.audits.membership.given import Ask, ask_given, handout_order, pictures
from tasks.audits.membership.given_config import ReturnedTable
from tasks.audits.membership.loss_scores import score_example, score_job
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.attacks import Matching, attacks
from tasks.audits.membership.measures.calibrated import calibrate, calibrated_roc
from tasks.audits.membership.measures.curves import calls, histograms, references, roc
from tasks.audits.membership.measures.epsilon import AtDelta, epsilon
from tasks.audits.membership.measures.given import Ranking, kinship, ranks
from tasks.audits.membership.measures.loss import roc as roc_of_loss
from tasks.audits.membership.measures.pairs import SignTest, evidence, pair_records
from tasks.audits.membership.measures.records import ExactTest, Strongest, influences, records
from tasks.audits.membership.measures.shifted import Copies, shifted_answers, shifted_labels
from tasks.audits.membership.reference_models import fit_reference, reference_jobs, train_reference
from tasks.audits.membership.trainings import answers
from tasks.contract.job import NoSettings
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import BalancedHalf, CoinHalf, Part
from tasks.external.split_audit import SCORES
from tasks.models.catalog import Network
from tasks.training import estimators
from tasks.training.estimators import EstimatorTraining
from tasks.training.mixed import Mixture, train
from tasks.worker.files import File
from tests.support.fingerprint import TRAINED, Computed
from tests.tasks.audits.membership.made_up import make_answers, make_canaries, make_given, make_shifted
from tests.tasks.audits.membership.test_loss_references import TINY, simulate
from tests.tasks.audits.membership.test_pairs import make_pairs

TRAINED_HALF = BalancedHalf(Part(Dataset("digits"), 0, 60), models=4, number=1, seed=3)


@cache
def record_table() -> pa.Table:
    return records(ExactTest(0.05, 99, 0), make_answers(8, 40, 2.0, 1))


@cache
def attack_table() -> pa.Table:
    return attacks(Matching(0), make_answers(8, 40, 2.0, 1))


def roc_table() -> pa.Table:
    return roc(Matching(0), make_answers(8, 40, 2.0, 1))


def reference_table() -> pa.Table:
    return references(Matching(0), make_answers(8, 40, 2.0, 1))


def histogram_table() -> pa.Table:
    return histograms(Matching(0), make_answers(8, 40, 2.0, 1))


@cache
def call_table() -> pa.Table:
    return calls(Matching(0), make_answers(8, 40, 2.0, 1))


def counts_of_calls() -> pa.Table:
    return pa.table({name: call_table()[name].cast(pa.float64()) for name in call_table().column_names[1:]})


@cache
def epsilon_table() -> pa.Table:
    return epsilon(AtDelta(1e-5), make_canaries(1.5, 1.0, models=2, canaries=200))


def influence_table() -> pa.Table:
    return influences(Strongest(20), make_answers(8, 40, 2.0, 1))


def shifted_table() -> pa.Table:
    return shifted_labels(Matching(0), make_shifted(8, 40, 5, 2.0, 1))


def summary_table() -> pa.Table:
    return summary(About(0.05), [record_table(), attack_table(), call_table()])


def rank_table() -> pa.Table:
    return ranks(Ranking(0.05, 40), make_given(8, 40, 2.0, 1, knows=0.5))


def kinship_table() -> pa.Table:
    return kinship(Ranking(0.05, 40), make_given(8, 40, 2.0, 1, knows=0.5, repeats=3))


def prediction_table() -> pa.Table:
    data = pin(Dataset("digits"))
    question = Ask(Part(data, 0, 20), Part(data, 20, 20), 1, ReturnedTable())
    handout = handout_order(question)
    labels = [*pictures(question)[2], *(pictures(question)[2][number] for number in handout.repeats)]
    labelled_images = zip([*handout.ids, *handout.repeats.values()], labels, strict=True)
    lines = []
    for index, (image, label) in enumerate(labelled_images):
        lines.append(f"{image},{(label + (index % 3 == 0)) % 10}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.csv"
        path.write_text("\n".join(["image,predicted", *lines]) + "\n")
        return ask_given(replace(question, source=ReturnedTable(File(str(path)))), [])


@cache
def trained_model() -> pa.Table:
    return train(Mixture((TRAINED_HALF,), Dataset("digits"), 10, epochs=2, batch=16), [])


def answer_table() -> pa.Table:
    return answers(TRAINED_HALF, [trained_model()])


def difference_table() -> pa.Table:
    tree = Network("sklearn:sklearn.tree.DecisionTreeClassifier")
    models = []
    for is_complement in (False, True):
        half = CoinHalf(TRAINED_HALF.part, 0, 3, is_complement)
        models.append(estimators.train(EstimatorTraining(half, half.part, 10, tree, seed=1), []))
    return differences(CoinHalf(TRAINED_HALF.part, 0, 3), models)


def evidence_table() -> pa.Table:
    return evidence(SignTest(0.05), make_pairs(8, 40, 2.0, 1))


def pair_record_table() -> pa.Table:
    return pair_records(SignTest(0.05), make_pairs(8, 40, 2.0, 1))


def shifted_answer_table() -> pa.Table:
    return shifted_answers(Copies(TRAINED_HALF, 1), [trained_model()])


def estimator_table() -> pa.Table:
    tree = Network("sklearn:sklearn.tree.DecisionTreeClassifier")
    return estimators.train(EstimatorTraining(TRAINED_HALF, TRAINED_HALF.part, 10, tree, seed=1), [])


def sum_outputs(table: pa.Table) -> float:
    return float(np.sum(table["log_p"][0].as_py()))


def calibrated_table() -> pa.Table:
    return calibrate(NoSettings(), simulate(4.0))


def calibrated_curve_table() -> pa.Table:
    return calibrated_roc(NoSettings(), [calibrated_table()])


def reference_model_table() -> pa.Table:
    return train_reference(reference_jobs(TINY)[0].config, [])


def loss_curve_table() -> pa.Table:
    scores = next(table for table in simulate(4.0) if table.schema.equals(SCORES))
    return roc_of_loss(NoSettings(), [scores])


def example_table() -> pa.Table:
    job: Any = score_job(TINY)
    (training,) = job.inputs
    return score_example(job.config, [training.function(training.config, [])])


def estimator_reference_table() -> pa.Table:
    tree = Network("sklearn:sklearn.tree.DecisionTreeClassifier")
    job: Any = reference_jobs(replace(TINY, training=replace(TINY.training, network=tree)))[0]
    return fit_reference(job.config, [])


def count_correct(table: pa.Table) -> dict[str, float]:
    correct = np.stack(table["correct"].to_numpy())
    return {"copies": correct.shape[1], "correct": float(correct.sum())}


TABLES = [
    Computed(records, record_table),
    Computed(attacks, attack_table),
    Computed(influences, influence_table),
    Computed(shifted_labels, shifted_table),
    Computed(roc, roc_table),
    Computed(references, reference_table),
    Computed(calls, counts_of_calls),
    Computed(histograms, histogram_table),
    Computed(epsilon, epsilon_table),
    Computed(ranks, rank_table),
    Computed(kinship, kinship_table),
    Computed(ask_given, prediction_table),
    Computed(summary, summary_table),
    Computed(estimators.train, estimator_table, fingerprint=sum_outputs),
    Computed(roc_of_loss, loss_curve_table),
    Computed(score_example, example_table, tolerance=TRAINED),
    Computed(fit_reference, estimator_reference_table),
    Computed(calibrate, calibrated_table),
    Computed(calibrated_roc, calibrated_curve_table),
    Computed(differences, difference_table),
    Computed(evidence, evidence_table),
    Computed(pair_records, pair_record_table),
    Computed(answers, answer_table, tolerance=TRAINED),
    Computed(train_reference, reference_model_table, tolerance=TRAINED),
    # One of 300 labels is 2 % of the correct labels.
    Computed(shifted_answers, shifted_answer_table, fingerprint=count_correct, tolerance=0.057),
]
