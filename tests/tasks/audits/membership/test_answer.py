"""The answer on made-up models: right where records are exposed, silent where they are not, and by changed numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from tasks.audits.membership.answer import RULES, certificate, verdict
from tasks.audits.membership.config import About, Membership
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.attacks import Matching, attacks
from tasks.audits.membership.measures.records import ExactTest, records
from tests.tasks.audits.membership.made_up import make_answers

CONFIG = Membership(models=16, negligible=0.03, examples=400)
Array = NDArray[np.float64]
Change = Callable[[Array], Array]


def answered(tables: list[pa.Table], config: Membership = CONFIG) -> str:
    return answered_by([records(ExactTest(config.level, 999, 0), tables), attacks(Matching(0), tables)], config)


def accused(tables: list[pa.Table]) -> bool:
    """Whether a record is found, which no attack has a say in."""
    return answered_by([records(ExactTest(CONFIG.level, 999, 0), tables)], CONFIG) == "memorised"


def answered_by(measured: list[pa.Table], config: Membership) -> str:
    return verdict(config, summary(About(config.level), measured)).answer


def changed(tables: list[pa.Table], change: Change) -> list[pa.Table]:
    at = tables[0].column_names.index("log_odds")
    return [table.set_column(at, "log_odds", pa.array(change(table["log_odds"].to_numpy()))) for table in tables]


def test_few_exposed_records_among_many_are_found() -> None:
    assert ["memorised"] * 5 == [answered(make_answers(16, 400, 8.0, seed, exposed=20)) for seed in range(5)]


@pytest.mark.slow
def test_models_that_remember_nothing_are_accused_as_seldom_as_is_said_and_cleared_where_models_are_many() -> None:
    said = [answered(make_answers(16, 400, 0.0, seed)) for seed in range(100, 120)]
    assert said.count("memorised") <= 4  # of 20 at 5 %: more with a chance of 1 in 390
    assert said.count("not seen") >= 8


def test_so_few_models_clear_nobody() -> None:
    few = Membership(models=8, negligible=0.5, examples=100)  # p is no smaller than 1 of 70
    assert {"undecided"} == {answered(make_answers(8, 100, 0.0, seed), few) for seed in (0, 1)}


@pytest.mark.parametrize(
    "change",
    [
        lambda phi: phi / 10,
        lambda phi: phi.round(0),
        lambda phi: np.clip(phi, -4.6, 4.6),
        lambda phi: phi + np.random.default_rng(0).normal(0, 1, phi.shape),
    ],
    ids=["scaled", "rounded", "clipped", "noised"],
)
def test_changed_scores_accuse_no_innocent_and_hide_no_strong_memory(change: Change) -> None:
    exposed = [accused(changed(make_answers(16, 200, 6.0, seed), change)) for seed in range(3)]
    innocent = [accused(changed(make_answers(16, 200, 0.0, seed), change)) for seed in range(200, 220)]
    assert exposed == [True] * 3
    assert sum(innocent) <= 4  # of 20 at 5 %: more with a chance of 1 in 390


def test_a_null_is_called_one_and_its_certificate_has_the_rules() -> None:
    config = Membership(models=16, examples=400, unseen=True)
    tables = make_answers(16, 100, 0.0, 1)
    rows = summary(About(0.05), [records(ExactTest(0.05, 999, 0), tables), attacks(Matching(0), tables)])
    given = verdict(config, rows)
    assert given.sentence.endswith("This is a null: no model was trained on the records that were asked about.")
    page = certificate(config, rows, given)
    assert RULES.explain(config) == page.rule
    assert "at most 5 are called so" in page.error


def test_without_a_tested_record_nothing_is_decided() -> None:
    assert "undecided" == verdict(CONFIG, summary(About(0.05), [])).answer
