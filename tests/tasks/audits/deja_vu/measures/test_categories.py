"""The four categories of made-up inferences."""

from __future__ import annotations

import pytest

from tasks.audits.deja_vu.config import About
from tasks.audits.deja_vu.measures.categories import NAMES, Nothing, categories, rows
from tasks.audits.deja_vu.measures.inferences import Voting, inferences
from tasks.measure import Tables
from tests.tasks.audits.deja_vu import made_up


def test_pictures_are_of_the_category_that_the_two_models_say() -> None:
    table = categories(Nothing(), [inferences(Voting((4,)), [made_up.neighbours(made_up.FEW)])])
    found = {row["way"]: row for row in table.to_pylist()}
    # a1 memorised, a2 correlated, a3 misrepresented; b1 memorised, b2 correlated.
    shares = {way: [row[name] for name in NAMES] for way, row in found.items()}
    assert {"both": [0.4, 0.4, 0.2, 0], "A": [1 / 3, 1 / 3, 1 / 3, 0], "B": [0.5, 0.5, 0, 0]} == shares
    assert (5, 3, 2) == tuple(found[way]["pictures"] for way in ("both", "A", "B"))
    assert 0.5 == found["both"]["p_value"]  # at least two heads of three throws
    assert (0.0, 1.0) < (found["both"]["memorised_low"], found["both"]["memorised_high"]) < (0.4, 1.0)


def test_pictures_that_no_model_names_are_unassociated_and_p_is_1() -> None:
    made = {(model, name): [(f"{name}{at}", 1, (0, 0)) for at in range(4)] for model in "AB" for name in "AB"}
    (both, *_) = categories(Nothing(), [inferences(Voting((2,)), [made_up.neighbours(made)])]).to_pylist()
    assert ([0, 0, 0, 1], 1.0) == ([both[name] for name in NAMES], both["p_value"])


def test_the_summary_has_the_shares_of_the_decisive_cell() -> None:
    table = categories(Nothing(), [inferences(Voting((4, 2)), [made_up.neighbours(made_up.FEW)])])
    found = {row["metric"]: row for row in rows(Tables([table]), About(20, 3, 4, 5))}
    assert ["share memorised", "share misrepresented", "share correlated", "share unassociated"] == list(found)
    assert found["share memorised"]["estimate"] == pytest.approx(0.4)
    assert (0.5, None) == (found["share memorised"]["p_value"], found["share correlated"]["p_value"])
    assert [] == list(rows(Tables([table]), About(20, 3, 4, 6)))
