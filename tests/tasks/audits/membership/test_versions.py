"""What each task computes, beside its version: neither may change without the other."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

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
from tasks.contract.job import marks
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import BalancedHalf, Part
from tasks.models.catalog import Network
from tasks.training.mixed import Mixture, train
from tasks.worker.files import File
from tests.support.fingerprint import TRAINED, total, version_test
from tests.tasks.audits.membership.made_up import make_answers, make_canaries, make_given, make_shifted


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


test_a_task_computes_what_its_version_says = version_test(
    [
        (records, 2, of_records, 40, 519.652330253566),
        (attacks, 2, of_attacks, 72, 901.4947927),
        (influences, 1, of_influences, 60, 542.5211570),
        (shifted_labels, 1, of_shifted, 8, 86.9161206),
        (roc, 1, of_roc, 1296, 2367.5093227),
        (references, 1, of_references, 216, 208.21875),
        (calls, 1, counts_of_calls, 360, 16159.0),
        (histograms, 1, of_histograms, 720, -255656.2097389),
        (epsilon, 4, of_epsilon, 3, 192.7465723),
        (ranks, 2, of_ranks, 40, 231.5380864),
        (kinship, 1, of_kinship, 9, 6.625462963),
        (ask_given, 3, of_predictions, 40, 32.0),
        (summary, 3, of_all, 105, 257.78235544406806),
    ]
)


@pytest.mark.trained
def test_what_a_model_says_is_what_the_version_says() -> None:
    half = BalancedHalf(Part(Dataset("digits"), 0, 60), models=4, number=1, seed=3)
    model = train(Mixture((half,), Dataset("digits"), 10, epochs=2, batch=16), [])
    table = answers(half, [model])
    assert (marks(answers).version, table.num_rows) == (2, 60)
    assert pytest.approx(total(table), rel=TRAINED) == -121.0853
    copies = shifted_answers(Copies(half, 1), [model])
    right = np.stack(copies["correct"].to_numpy())
    assert (marks(shifted_answers).version, right.shape) == (2, (60, 5))
    assert np.array_equal(table["correct"].to_numpy(zero_copy_only=False), right[:, 0])
    assert pytest.approx(right.sum(), abs=3) == 53


def test_models_are_asked_once_about_each_record_and_in_evaluation_mode() -> None:
    trained = BalancedHalf(Part(Dataset("digits"), 0, 40), models=4, number=1, seed=3)
    mixture = Mixture((trained,), Dataset("digits"), 10, Network("mlp1"), True, True, True, epochs=1, batch=20)
    model = train(mixture, [])  # with dropout, batch norm and augmentation
    once, again = (answers(trained, [model]) for _ in range(2))
    few = answers(replace(trained, part=Part(Dataset("digits"), 0, 10)), [model])  # another batch
    assert once.equals(again)
    assert list(range(40)) == once["row"].to_pylist()
    assert few["log_odds"].to_numpy() == pytest.approx(once["log_odds"].to_numpy()[:10], abs=1e-4)
