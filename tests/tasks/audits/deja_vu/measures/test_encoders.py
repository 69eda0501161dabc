"""Facts about embeddings: the share of equal ones, and labels predicted from other public images, by hand and by
chance.
"""

from __future__ import annotations

import numpy as np
import pytest

from tasks.audits.deja_vu.config import About
from tasks.audits.deja_vu.embedding_facts import EqualRows, public_correct
from tasks.audits.deja_vu.measures.encoders import encoders, rows
from tasks.contract.job import NoSettings
from tasks.contract.learning import ACCURACY, is_at_chance
from tasks.contract.measure import Tables
from tasks.contract.summaries import read_setting
from tasks.contract.ties import TIED
from tests.tasks.audits.deja_vu import simulated_encoders


def test_equal_embeddings_are_counted_by_pairs() -> None:
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 1.0], [0.0, 2.0]], np.float32)
    in_shards = EqualRows()
    in_shards.add(rows[:1])
    assert in_shards.share() == 0.0
    in_shards.add(rows[3:])
    assert in_shards.share() == 0.0
    in_shards.add(rows[1:3])
    assert in_shards.share() == pytest.approx(3 / 6)


def test_public_image_has_no_vote_on_itself() -> None:
    public = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [9.0]], np.float32)
    labels = np.array([0, 0, 0, 1, 1, 1])
    assert public_correct(public, labels, np.arange(6), 1).tolist() == [True, True, True, True, True, True]
    assert public_correct(public, labels, np.array([5]), 2).tolist() == [True]
    assert public_correct(public, np.array([0, 0, 0, 1, 1, 2]), np.array([5]), 1).tolist() == [False]
    # With more equal images than neighbours, the image itself may not be among the nearest.
    equal_rows = np.zeros((6, 1), np.float32)
    assert public_correct(equal_rows, np.array([0, 0, 0, 0, 0, 1]), np.array([5]), 2).tolist() == [False]


@pytest.mark.parametrize(
    ("spread", "tied", "at_chance"), [(1.0, 0.0, False), (0.0, 1.0, True)], ids=["learnt", "constant"]
)
def test_constant_encoder_is_tied_and_at_chance(spread: float, tied: float, at_chance: bool) -> None:
    draws = np.random.default_rng(1)
    labels = np.arange(400) % 10
    public = (spread * (5 * np.eye(10)[labels] + draws.normal(size=(400, 10)))).astype(np.float32)
    facts = simulated_encoders.embedding_facts(public[:100], public, labels, 5)
    assert facts["tied"] == tied
    assert facts["public_asked"] == 400
    neighbour_table = simulated_encoders.tables(0)[0]
    for name, value in facts.items():
        index = neighbour_table.schema.get_field_index(name)
        neighbour_table = neighbour_table.set_column(
            index, neighbour_table.schema.field(name), [[value] * neighbour_table.num_rows]
        )
    rows_by_metric = {}
    for row in rows(Tables([encoders(NoSettings(), [neighbour_table])]), About(20, 3, 5, 5)):
        rows_by_metric[row["metric"]] = row
    assert rows_by_metric[TIED]["estimate"] == tied
    assert read_setting(rows_by_metric[ACCURACY])["of"] == "encoder A"
    assert is_at_chance(rows_by_metric[ACCURACY]) == at_chance
