"""Tables of each task, whose fingerprints a test compares with the version of the task."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from tasks.audits.membership.config import About
from tasks.audits.membership.given import Ask, ask_given, handout_order, pictures
from tasks.audits.membership.given_config import ReturnedTable
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.attacks import Matching, attacks
from tasks.audits.membership.measures.curves import calls, histograms, references, roc
from tasks.audits.membership.measures.epsilon import AtDelta, epsilon
from tasks.audits.membership.measures.given import Ranking, kinship, ranks
from tasks.audits.membership.measures.records import ExactTest, Strongest, influences, records
from tasks.audits.membership.measures.shifted import Copies, shifted_answers, shifted_labels
from tasks.audits.membership.trainings import answers
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import BalancedHalf, Part
from tasks.training.mixed import Mixture, train
from tasks.worker.files import File
from tests.support.fingerprint import TRAINED, Computed
from tests.tasks.audits.membership.made_up import make_answers, make_canaries, make_given, make_shifted

TRAINED_HALF = BalancedHalf(Part(Dataset("digits"), 0, 60), models=4, number=1, seed=3)


@cache
def of_records() -> pa.Table:
    return records(ExactTest(0.05, 99, 0), make_answers(8, 40, 2.0, 1))


@cache
def of_attacks() -> pa.Table:
    return attacks(Matching(0), make_answers(8, 40, 2.0, 1))


def of_roc() -> pa.Table:
    return roc(Matching(0), make_answers(8, 40, 2.0, 1))


def of_references() -> pa.Table:
    return references(Matching(0), make_answers(8, 40, 2.0, 1))


def of_histograms() -> pa.Table:
    return histograms(Matching(0), make_answers(8, 40, 2.0, 1))


@cache
def of_calls() -> pa.Table:
    return calls(Matching(0), make_answers(8, 40, 2.0, 1))


def counts_of_calls() -> pa.Table:
    return pa.table({name: of_calls()[name].cast(pa.float64()) for name in of_calls().column_names[1:]})


@cache
def of_epsilon() -> pa.Table:
    return epsilon(AtDelta(1e-5), make_canaries(1.5, 1.0, models=2, canaries=200))


def of_influences() -> pa.Table:
    return influences(Strongest(20), make_answers(8, 40, 2.0, 1))


def of_shifted() -> pa.Table:
    return shifted_labels(Matching(0), make_shifted(8, 40, 5, 2.0, 1))


def of_all() -> pa.Table:
    return summary(About(0.05), [of_records(), of_attacks(), of_calls()])


def of_ranks() -> pa.Table:
    return ranks(Ranking(0.05, 40), make_given(8, 40, 2.0, 1, knows=0.5))


def of_kinship() -> pa.Table:
    return kinship(Ranking(0.05, 40), make_given(8, 40, 2.0, 1, knows=0.5, repeats=3))


def of_predictions() -> pa.Table:
    data = pin(Dataset("digits"))
    asked = Ask(Part(data, 0, 20), Part(data, 20, 20), 1, ReturnedTable())
    handed = handout_order(asked)
    labels = [*pictures(asked)[2], *(pictures(asked)[2][number] for number in handed.repeats)]
    named = zip([*handed.ids, *handed.repeats.values()], labels, strict=True)
    lines = [f"{image},{(label + (place % 3 == 0)) % 10}" for place, (image, label) in enumerate(named)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.csv"
        path.write_text("\n".join(["image,predicted", *lines]) + "\n")
        return ask_given(replace(asked, source=ReturnedTable(File(str(path)))), [])


@cache
def trained_model() -> pa.Table:
    return train(Mixture((TRAINED_HALF,), Dataset("digits"), 10, epochs=2, batch=16), [])


def of_answers() -> pa.Table:
    return answers(TRAINED_HALF, [trained_model()])


def of_shifted_answers() -> pa.Table:
    return shifted_answers(Copies(TRAINED_HALF, 1), [trained_model()])


def count_correct(table: pa.Table) -> dict[str, float]:
    correct = np.stack(table["correct"].to_numpy())
    return {"copies": correct.shape[1], "correct": float(correct.sum())}


TABLES = [
    Computed(records, of_records),
    Computed(attacks, of_attacks),
    Computed(influences, of_influences),
    Computed(shifted_labels, of_shifted),
    Computed(roc, of_roc),
    Computed(references, of_references),
    Computed(calls, counts_of_calls),
    Computed(histograms, of_histograms),
    Computed(epsilon, of_epsilon),
    Computed(ranks, of_ranks),
    Computed(kinship, of_kinship),
    Computed(ask_given, of_predictions),
    Computed(summary, of_all),
    Computed(answers, of_answers, tolerance=TRAINED),
    # One of 300 labels is 2 % of those that are right.
    Computed(shifted_answers, of_shifted_answers, fingerprint=count_correct, tolerance=0.057),
]
