"""Pairs of models: fair coins, evidence that grows with the pairs, and the answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.membership import AUDIT
from tasks.audits.membership.answer import ANSWERING, certificate, verdict
from tasks.audits.membership.coin_pairs import PAIR, pair_jobs
from tasks.audits.membership.config import About, Membership, ModelPairs, tiny
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.pairs import LARGEST, SignTest, evidence, pair_records, plan_test
from tasks.audits.membership.pairs_evidence import PairsEvidence
from tasks.contract.job import Job
from tasks.contract.looks import Look
from tasks.contract.schemas import make_table
from tasks.contract.summaries import alone, row
from tasks.contract.ties import tied_row
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.mixtures import CoinHalf, Part
from tasks.programs.config import CommandTraining, Returns
from tests.support.golden import Golden

DIGITS = Part(Dataset("digits"), 0, 60)
CONFIG = Membership(ModelPairs(Dataset("digits"), 60, pairs=20, stopping_level=0.05))
TEST = SignTest(0.05)


def make_pairs(pairs: int, records: int, effect: float, seed: int, exposed: int | None = None) -> list[pa.Table]:
    """Return a table for each pair; the first `exposed` records, by default all, gain `effect` nats by training."""
    stream = np.random.default_rng(seed)
    gains = effect * (np.arange(records) < (records if exposed is None else exposed))
    tables = []
    for _ in range(pairs):
        difference = stream.normal(size=records) + gains
        tables.append(make_table(PAIR, row=np.arange(records), difference=difference, correct=True))
    return tables


def summarise(tables: list[pa.Table]) -> pa.Table:
    return summary(About(0.05), [evidence(TEST, tables), pair_records(TEST, tables)])


def test_halves_of_a_pair_divide_the_records_by_coins() -> None:
    images = load(DIGITS.data)
    halves = [CoinHalf(DIGITS, 3, 7).rows(images), CoinHalf(DIGITS, 3, 7, is_complement=True).rows(images)]
    assert sorted(np.concatenate(halves)) == list(range(60))
    shares = np.array([np.isin(np.arange(60), CoinHalf(DIGITS, number, 7).rows(images)) for number in range(400)])
    assert abs(shares.mean() - 0.5) < 0.02  # 6 standard errors
    correlation = np.corrcoef(shares[:-1].ravel(), shares[1:].ravel())[0, 1]
    assert abs(correlation) < 0.04


def test_first_pairs_of_a_longer_run_are_the_same() -> None:
    question = CONFIG.question
    assert isinstance(question, ModelPairs)
    jobs = pair_jobs(question, CONFIG.training, 0)
    assert repr(jobs[:5]) == repr(pair_jobs(replace(question, pairs=5), CONFIG.training, 0))
    seeds = {training.config.seed for job in jobs for training in job.inputs}
    assert len(seeds) == len(jobs)  # both models of a pair have the same seed
    with pytest.raises(DatasetError, match="needs at least 20"):
        pair_jobs(replace(question, examples=19), CONFIG.training, 0)


def test_evidence_of_a_pair_depends_on_earlier_pairs_only() -> None:
    tables = make_pairs(12, 50, 1.0, 0)
    whole = evidence(TEST, tables)
    for pairs in (1, 5, 11):
        assert evidence(TEST, tables[:pairs]).equals(whole.slice(0, pairs))


@pytest.mark.parametrize("change", [0.0, 0.1])
def test_equal_scores_and_small_effects_do_not_accuse(change: float) -> None:
    tables = [make_table(PAIR, row=range(30), difference=[change] * 30, correct=None) for _ in range(30)]
    assert evidence(TEST, tables)["evidence"].to_pylist()[-1] == pytest.approx(1 / 31)
    assert verdict(CONFIG, summarise(tables)).answer == ("undecided" if change else "not assessable")


@pytest.mark.parametrize(("returns", "smallest"), [("samples", 0.0), ("loss", 0.1)])
def test_any_distance_to_a_sample_counts(returns: Returns, smallest: float) -> None:
    data = pin(Dataset("rows:40"))
    config = Membership(ModelPairs(data, pairs=2), CommandTraining(command="true", returns=returns))
    job = plan_test(evidence, config, ())
    assert isinstance(job, Job)
    assert job.config.smallest == smallest


def test_few_exposed_records_are_found(golden: Golden) -> None:
    tables = make_pairs(14, 200, 6.0, 1, exposed=10)
    found = pair_records(TEST, tables)["found"].to_pylist()
    assert found == [True] * 10 + [False] * 190
    rows = summarise(tables)
    answer = verdict(CONFIG, rows)
    assert answer.answer == "memorised"
    golden(answer.sentence, "memorised")
    page = certificate(CONFIG, rows, answer)
    golden(page.findings[0].sentence, "finding")
    golden(page.rule, "rule")


def test_innocent_models_are_undecided_after_all_pairs(golden: Golden) -> None:
    rows = summarise(make_pairs(20, 100, 0.0, 2))
    answer = verdict(CONFIG, rows)
    assert answer.answer == "undecided"
    golden(answer.sentence, "undecided")
    page = certificate(CONFIG, rows, answer)
    golden(page.findings[0].sentence, "finding")
    golden("\n".join(page.steps), "steps")


@pytest.mark.parametrize(
    ("largest", "tied", "answer"),
    [
        (20.0, 0.9, "memorised"),
        (19.9, 0.051, "not assessable"),
        (19.9, 0.05, "undecided"),
    ],
)
def test_pairs_are_judged_by_evidence_then_ties(largest: float, tied: float, answer: str) -> None:
    evidence_row = row(LARGEST, {"level": 0.05, "nats": 0.1}, alone(largest, 9), "pair of trainings", 1.0)
    found = PairsEvidence(evidence_row, None, tied_row(tied, 100, "record"))
    assert ANSWERING.of(CONFIG).rules.decide(CONFIG, found).answer == answer


def test_bets_have_one_error_rate_over_looks() -> None:
    assert AUDIT.summed_error(CONFIG, Look(number=3)) == 5
    assert AUDIT.summed_error(CONFIG, Look(number=3, streams=2)) == 10


def test_control_run_scores_records_that_no_model_saw() -> None:
    config = tiny(replace(CONFIG, question=replace(CONFIG.question, is_null=True)))
    question = config.question
    assert isinstance(question, ModelPairs)
    job = pair_jobs(question, config.training, 0)[0]
    images = load(question.data)
    trained = np.concatenate([training.config.shares[0].rows(images) for training in job.inputs])
    assert not set(job.config.part.rows(images)) & set(trained)
