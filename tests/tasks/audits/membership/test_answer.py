"""The answer on simulated models: with and without exposed records, and with altered scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from tasks.audits.membership.answer import ANSWERING, certificate, effect, verdict
from tasks.audits.membership.config import About, Halves, Membership
from tasks.audits.membership.halves_evidence import HalvesEvidence
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.attacks import AUC, Matching, attacks
from tasks.audits.membership.measures.records import FOUND, ExactTest, records
from tasks.contract.certificate import STEPS, NumberLine
from tasks.contract.power import Resolution
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Estimate, Row, row
from tasks.contract.ties import tied_row
from tests.support.golden import Golden
from tests.tasks.audits.membership.made_up import make_answers

HALVES = Halves(models=18, negligible=0.03, examples=400)
CONFIG = Membership(HALVES)
Array = NDArray[np.float64]
Change = Callable[[Array], Array]


def answer_of(tables: list[pa.Table], config: Membership = CONFIG) -> str:
    return answer_of_tables([records(ExactTest(HALVES.level, 999, 0), tables), attacks(Matching(0), tables)], config)


def is_accused(tables: list[pa.Table]) -> bool:
    """Return whether a record is found, without any attack."""
    return answer_of_tables([records(ExactTest(HALVES.level, 999, 0), tables)], CONFIG) == "memorised"


def answer_of_tables(measured: list[pa.Table], config: Membership) -> str:
    return verdict(config, summary(About(HALVES.level), measured)).answer


def change_scores(tables: list[pa.Table], change: Change) -> list[pa.Table]:
    index = tables[0].column_names.index("log_odds")
    scores = []
    for table in tables:
        scores.append(table.set_column(index, "log_odds", pa.array(change(table["log_odds"].to_numpy()))))
    return scores


def test_few_exposed_records_among_many_are_found() -> None:
    assert [answer_of(make_answers(16, 400, 8.0, seed, exposed=20)) for seed in range(5)] == ["memorised"] * 5


@pytest.mark.slow
def test_innocent_models_are_rarely_accused_and_often_cleared() -> None:
    answers = [answer_of(make_answers(16, 400, 0.0, seed)) for seed in range(100, 120)]
    assert answers.count("memorised") <= 4  # of 20 at 5 %: more with a chance of 1 in 390
    assert answers.count("not detected") >= 8


def test_few_models_clear_no_audit() -> None:
    few_models = Membership(Halves(models=8, negligible=0.5, examples=100))  # p is no smaller than 1 of 70
    assert {answer_of(make_answers(8, 100, 0.0, seed), few_models) for seed in (0, 1)} == {"undecided"}


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
def test_altered_scores_neither_accuse_innocents_nor_hide_memory(change: Change) -> None:
    exposed = []
    for seed in range(3):
        exposed.append(is_accused(change_scores(make_answers(16, 200, 6.0, seed), change)))
    innocent = []
    for seed in range(200, 220):
        innocent.append(is_accused(change_scores(make_answers(16, 200, 0.0, seed), change)))
    assert exposed == [True] * 3
    assert sum(innocent) <= 4  # of 20 at 5 %: more with a chance of 1 in 390


def row_of_found(p_value: float, count: int = 0) -> Row:
    return row(FOUND, {"level": 0.05}, Estimate(count, None, None, 1200), "record", 0.0, p_value)


def attack_row(name: str, area: float, low: float | None, high: float | None) -> Row:
    return row(AUC, {"attack": name}, Estimate(area, low, high, 30), "target", 0.5)


@pytest.mark.parametrize(
    ("p_found", "p_memorised", "high", "smallest", "tied", "answer"),
    [
        (0.01, 0.05, 0.9, 0.01, 0.0, "memorised"),
        (0.01, 0.05, 0.9, 0.01, 0.9, "memorised"),
        (0.051, 0.6, 0.529, 0.00004, 0.051, "not assessable"),
        (0.05, 0.051, 0.529, 0.00004, 0.05, "below the relevant size"),
        (0.05, 0.051, 0.53, 0.00004, 0.05, "undecided"),
        (0.051, 0.6, 0.9, 0.00004, 0.0, "undecided"),
        (0.051, 0.6, 0.529, 0.00004, 0.0, "not detected"),
        (0.051, 0.6, 0.53, 0.00004, 0.0, "undecided"),
        (0.051, 0.6, None, 0.00004, 0.0, "undecided"),
        (0.051, 0.6, 0.529, 0.000042, 0.0, "undecided"),
    ],
)
def test_halves_are_judged_by_size_ties_attacks_resolution(
    p_found: float, p_memorised: float, high: float | None, smallest: float, tied: float, answer: str
) -> None:
    strongest = None if high is None else attack_row("LiRA", 0.5, 0.49, high)
    evidence = HalvesEvidence(
        row_of_found(p_found),
        row_of_found(p_memorised),
        strongest,
        Resolution(smallest, 1200, HALVES.level, "records", "train more models"),
        HALVES.level,
        HALVES.negligible,
        tied_row(tied, 1200, "record"),
    )
    assert ANSWERING.of(CONFIG).rules.decide(CONFIG, evidence).answer == answer


def test_answer_states_records_found_and_strongest_attack(golden: Golden) -> None:
    areas = [
        attack_row("loss", 0.52, 0.51, 0.525),
        attack_row("LiRA", 0.515, 0.495, 0.5291),
        attack_row("none", 0.9, None, None),
    ]
    rows = pa.Table.from_pylist([row_of_found(0.2), *areas], SUMMARY)
    answer = verdict(CONFIG, rows)
    golden(answer.sentence, "given.sentence")
    assert answer.rows == ((FOUND, '{"level": 0.05}'), (AUC, '{"attack": "LiRA"}'))
    page = certificate(CONFIG, rows, answer)
    (finding,) = page.findings
    assert finding.answer == "not detected"
    assert finding.line == NumberLine("records that can be identified as training data, of 1,200 tested", 0.0, null=0.0)
    golden(finding.sentence, "finding.sentence")
    assert STEPS["cleared"] == page.steps
    assert "at most 5 %" in page.rule
    golden(page.rule, "page.rule")
    found_row = effect(CONFIG).row(CONFIG, rows)
    assert found_row is not None
    assert found_row["metric"] == FOUND
    assert found_row["estimate"] == 0.0
    found_only = pa.Table.from_pylist([row_of_found(0.2)], SUMMARY)
    golden(verdict(CONFIG, found_only).sentence, "sentence")
    assert len(verdict(CONFIG, found_only).rows) == 1
    null = Membership(replace(HALVES, is_null=True))
    control_answer = verdict(null, rows)
    assert (
        control_answer.sentence
        == f"{answer.sentence} This is a control run: no model was trained on the tested records."
    )
    (first_step, second_step) = certificate(null, rows, control_answer).steps
    assert first_step.startswith("Keep this page")
    assert second_step.endswith("(`is_null=false`).")


def test_without_a_tested_record_nothing_is_decided() -> None:
    rows = summary(About(0.05), [])
    answer = verdict(CONFIG, rows)
    assert answer.answer == "undecided"
    assert answer.rows == ()
    assert [finding.line for finding in certificate(CONFIG, rows, answer).findings] == [None]
    assert effect(CONFIG).row(CONFIG, rows) is None
