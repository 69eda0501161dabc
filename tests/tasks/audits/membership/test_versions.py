"""What each task computes, beside its version: neither may change without the other."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from tasks.audits.membership.config import About, GivenModel
from tasks.audits.membership.given import Ask, ask_given, handout_order, pictures
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.attacks import Matching, attacks
from tasks.audits.membership.measures.epsilon import AtDelta, epsilon
from tasks.audits.membership.measures.given import Ranking, kinship, ranks
from tasks.audits.membership.measures.records import ExactTest, records
from tasks.audits.membership.trainings import answers
from tasks.contract.job import marks
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import BalancedHalf, Part
from tasks.training.mixed import Mixture, train
from tasks.worker.files import File
from tests.support.fingerprint import TRAINED, total, version_test
from tests.tasks.audits.membership.made_up import make_answers, make_canaries, make_given


@cache
def of_records() -> pa.Table:
    return records(ExactTest(0.05, 99, 0), make_answers(8, 40, 2.0, 1))


@cache
def of_attacks() -> pa.Table:
    return attacks(Matching(0), make_answers(8, 40, 2.0, 1))


@cache
def of_epsilon() -> pa.Table:
    return epsilon(AtDelta(1e-5), make_canaries(1.5, 1.0, models=2, canaries=200))


def of_all() -> pa.Table:
    return summary(About(0.05), [of_records(), of_attacks()])


def of_ranks() -> pa.Table:
    return ranks(Ranking(0.05, 40), make_given(8, 40, 2.0, 1, knows=0.5))


def of_kinship() -> pa.Table:
    return kinship(Ranking(0.05, 40), make_given(8, 40, 2.0, 1, knows=0.5, repeats=3))


def of_predictions() -> pa.Table:
    data = pin(Dataset("digits"))
    asked = Ask(GivenModel(outputs=File("x.csv")), Part(data, 0, 20), Part(data, 20, 20), 1)
    handed = handout_order(asked)
    labels = [*pictures(asked)[2], *(pictures(asked)[2][number] for number in handed.repeats)]
    named = zip([*handed.ids, *handed.repeats.values()], labels, strict=True)
    lines = [f"{image},{(label + (place % 3 == 0)) % 10}" for place, (image, label) in enumerate(named)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.csv"
        path.write_text("\n".join(["image,predicted", *lines]) + "\n")
        return ask_given(replace(asked, given=GivenModel(outputs=File(str(path)))), [])


test_a_task_computes_what_its_version_says = version_test(
    [
        (records, 1, of_records, 40, 180.1366448),
        (attacks, 1, of_attacks, 56, 191.2075),
        (epsilon, 1, of_epsilon, 3, 27.0578740),
        (ranks, 1, of_ranks, 40, 231.5380864),
        (kinship, 1, of_kinship, 9, 6.625462963),
        (ask_given, 1, of_predictions, 40, 32.0),
        (summary, 1, of_all, 45, 146.1163913),
    ]
)


@pytest.mark.trained
def test_what_a_model_says_is_what_the_version_says() -> None:
    half = BalancedHalf(Part(Dataset("digits"), 0, 60), models=4, number=1, seed=3)
    model = train(Mixture((half,), Dataset("digits"), 10, epochs=2, batch=16), [])
    table = answers(half, [model])
    assert (1, 60) == (marks(answers).version, table.num_rows)
    assert pytest.approx(total(table), rel=TRAINED) == -121.0853
