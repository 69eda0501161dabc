"""Lower bounds on epsilon from canaries: kept and broken promises, and trainings by coin flips."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import special, stats

from orchestrator.planning.plan import Plan
from tasks.audits.membership import PRESETS, Membership, plan
from tasks.audits.membership.answer import RULES, certificate, effect, verdict
from tasks.audits.membership.canary_answer import has_canaries
from tasks.audits.membership.canary_evidence import CanaryEvidence
from tasks.audits.membership.config import About, Canaries, Halves, tiny
from tasks.audits.membership.measures import summary
from tasks.audits.membership.measures.epsilon import EPSILON, MEASURE, AtDelta, epsilon, less_the_others
from tasks.audits.membership.plain_words import certainty
from tasks.audits.membership.trainings import CANARIES, canary_answers, canary_jobs, model_job
from tasks.contract.epsilon_rows import AT_LEAST, BROKEN_MEANING, LEVEL, SPENT, Bound, Spent, epsilon_rows
from tasks.contract.job import Job, marks
from tasks.contract.measure import Tables
from tasks.contract.schemas import MODEL, SUMMARY
from tasks.contract.summaries import Estimate, row
from tasks.contract.verdict import Verdict
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.mixtures import CoinedCanaries, Part
from tasks.models.networks import Architecture, network_row, weight_rows
from tasks.numerics import seeds
from tasks.numerics.epsilon import (
    MANY_RUNS,
    best_of_guesses,
    betting_bound,
    bound_by_scores,
    gaussian_mu,
    gaussian_one_run_bound,
    one_run_bound,
)
from tasks.numerics.one_run_epsilon import decisive_bound, decisive_p_value
from tasks.training.mixed import logits, train
from tasks.training.recipe import Privacy
from tests.support.golden import Golden
from tests.tasks.audits.membership.made_up import make_canaries

LADDER = PRESETS["one_run"]
assert isinstance(LADDER, tuple)
PLAIN, *PRIVATE = LADDER
PROMISED = PRIVATE[-1]


def canaries(config: Membership = PLAIN, **fields: Any) -> Canaries:
    """The question of a preset with other fields and a pinned data set."""
    assert isinstance(config.question, Canaries)
    return replace(config.question, data=pin(config.question.data), **fields)


def plan_canaries(question: Canaries, config: Membership = PLAIN) -> tuple[Job, ...]:
    return canary_jobs(replace(config, question=question), question)


def answer_of(tables: list[pa.Table], config: Membership) -> tuple[pa.Table, Verdict]:
    rows = summary(About(0.05), [epsilon(AtDelta(1e-5), tables)])
    return rows, verdict(config, rows)


def test_kept_promise_is_stated_with_its_bound(golden: Golden) -> None:
    rows, outcome = answer_of(make_canaries(gaussian_mu(4.0, 1e-5), 4.0), PRIVATE[1])
    assert outcome.answer == "memorised"
    golden(outcome.sentence)
    by_bound = {json.loads(row["setting"]).get("bound"): row for row in rows.to_pylist() if "at least" in row["metric"]}
    assert set(by_bound) == {"bets", "one run", "one run, Gaussian"}
    assert all(0 < row["estimate"] < 4 for row in by_bound.values())


def test_bound_above_accountant_is_broken_promise(golden: Golden) -> None:
    rows, outcome = answer_of(make_canaries(3.0, 1.0), PROMISED)
    assert outcome.answer == "promise broken"
    golden(outcome.sentence, "given.sentence")
    (spent,) = [row for row in rows.to_pylist() if row["metric"] == "epsilon by the accountant"]
    assert spent["p_value"] <= 0.05
    page = certificate(PROMISED, rows, outcome)
    golden(page.rule, "page.rule")
    golden(page.error, "page.error")


@pytest.mark.parametrize(
    ("bound", "spent", "answer"),
    [
        (1.01, 1.0, "promise broken"),
        (1.0, None, "memorised"),
        (1.0, 1.0, "memorised"),
        (0.001, None, "memorised"),
        (0.0, 1.0, "undecided"),
    ],
)
def test_bound_is_compared_with_accountant_and_zero(
    golden: Golden, bound: float, spent: float | None, answer: str
) -> None:
    metrics = [(AT_LEAST, bound), (AT_LEAST, 9.0), *([] if spent is None else [(SPENT, spent)])]
    bound_settings = []
    for number, (metric, value) in enumerate(metrics):
        bound_settings.append(({"bound": number}, metric, Estimate(value, None, None, 700)))
    rows = pa.Table.from_pylist(
        [row(metric, setting, value, "canary") for setting, metric, value in bound_settings], SUMMARY
    )
    config = PLAIN if spent is None else PROMISED
    outcome = verdict(config, rows)
    assert outcome.answer == answer
    assert outcome.rows[0] == (AT_LEAST, '{"bound": 0}')
    assert (1 if spent is None else 2) == len(outcome.rows)
    golden(outcome.sentence)
    effect_row = effect(config).row(config, rows)
    page = certificate(config, rows, outcome)
    assert effect_row is not None
    assert bound == effect_row["estimate"]
    ((finding_answer, line),) = [(finding.answer, finding.line) for finding in page.findings]
    assert line is not None
    assert answer == finding_answer
    first_steps = {
        "undecided": "Draw no conclusion yet",
        "memorised": "Treat the training data",
        "promise broken": "Do not rely",
    }
    assert page.steps[0].startswith(first_steps[answer])
    assert line.estimate == certainty(bound)
    golden(page.findings[0].sentence, "finding.sentence")
    golden(page.rule, "page.rule")
    assert ("promise broken" in page.rule) == (spent is not None)
    golden(page.error, "page.error")
    assert certificate(config, pa.Table.from_pylist([], SUMMARY), outcome).findings[0].line is None


def test_promise_kept_to_its_limit_is_rarely_broken() -> None:
    mu = gaussian_mu(1.0, 1e-5)
    answers = []
    for seed in range(40):
        answers.append(answer_of(make_canaries(mu, 1.0, canaries=300, seed=seed), PROMISED)[1].answer)
    assert answers.count("promise broken") <= 5  # of 40 at 5 %: more with a chance of 1 in 70


def test_canary_rules_apply_only_to_canaries() -> None:
    halves = Membership(Halves(models=8), replace(PLAIN.training, privacy=Privacy(8.0)))
    assert (has_canaries(halves), has_canaries(PLAIN)) == (False, True)
    broken = RULES.cases[0]
    assert not broken.applies(halves)
    assert not broken.applies(PLAIN)
    assert broken.applies(PROMISED)
    assert BROKEN_MEANING.tone == "accused"
    assert not CanaryEvidence({"estimate": 9.0}, None).exceeds_promise


def test_training_without_privacy_breaks_no_promise() -> None:
    assert "training was not private" in answer_of(make_canaries(3.0, None), PLAIN)[1].sentence
    assert answer_of(make_canaries(0.0, None), PLAIN)[1].answer == "undecided"
    assert verdict(PLAIN, summary(About(0.05), [])).sentence == "Undecided: no canary was scored."
    assert len(epsilon(AtDelta(1e-5), [])) == 0
    assert epsilon(AtDelta(1e-5), []).schema == EPSILON


def canary_table(inside: list[bool], odds: list[float], spent: float | None, number: int = 0) -> pa.Table:
    constant_columns = []
    for value, kind in ((number, pa.int64()), (spent, pa.float64())):
        constant_columns.append(pa.array([value] * len(odds), kind))
    columns = [
        constant_columns[0],
        np.arange(len(odds)),
        np.zeros(len(odds), np.int64),
        inside,
        odds,
        constant_columns[1],
    ]
    return pa.table(columns, schema=CANARIES)


def test_canaries_of_all_models_are_ranked_together() -> None:
    coins = [
        [canary < 5 for canary in range(10)],
        [canary % 3 > 0 for canary in range(10)],
        [canary > 6 for canary in range(10)],
    ]
    odds = np.random.default_rng(5).normal(np.arange(10), 1, (3, 10)) + 2 * np.array(coins)
    tables = []
    for number, spent in enumerate((1.0, 2.0, 0.5)):
        tables.append(canary_table(coins[number], odds[number].tolist(), spent, number))
    delta = 1e-3
    bound_rows = epsilon(AtDelta(1e-3), tables).to_pylist()
    scored = []
    for model in range(3):
        for canary in range(10):
            scored.append(
                (
                    odds[model, canary]
                    - np.mean([odds[other_model, canary] for other_model in range(3) if other_model != model]),
                    coins[model][canary],
                )
            )
    ranking = np.array([inside for _, inside in sorted(scored, reverse=True)])
    high, low = ([score for score, inside in scored if inside == side] for side in (True, False))
    exposed = np.array(
        [np.log2((len(low) + 1) / (1 + sum(other_model >= score for other_model in low))) for score in high]
    )
    half = stats.t.ppf(0.975, len(high) - 1) * exposed.std(ddof=1) / np.sqrt(len(high))
    null = np.mean([np.log2((len(low) + 1) / rank) for rank in range(1, len(low) + 2)])
    exposures = {"": exposed.mean(), "_low": exposed.mean() - half, "_high": exposed.mean() + half, "_null": null}
    common = {
        **{f"exposure{end}": pytest.approx(value) for end, value in exposures.items()}, "inside": len(high),
        "delta": delta, "canaries": 30, "models": 3, "auc": pytest.approx(np.mean([a > b for a in high for b in low])),
        "p_value": decisive_p_value(0.0, ranking, delta, LEVEL), "spent": 2.0,
        "p_spent": decisive_p_value(2.0, ranking, delta, LEVEL), "tied": 0.0,
    }  # fmt: skip
    assert [
        {"bound": "bets or guesses", "epsilon": decisive_bound(ranking, delta, LEVEL)} | common,
        {"bound": "bets", "epsilon": betting_bound(ranking, delta, LEVEL)} | common,
        {"bound": "one run", "epsilon": best_of_guesses(one_run_bound, ranking, delta, LEVEL)} | common,
        {"bound": "one run, Gaussian", "epsilon": best_of_guesses(gaussian_one_run_bound, ranking, delta, LEVEL)}
        | common,
    ] == bound_rows
    assert common["p_value"] < common["p_spent"]


def test_one_canary_per_model_gives_many_runs() -> None:
    coins = [True, False] * 12
    odds = [float(index % 2 == 0) + 0.01 * index for index in range(24)]
    tables = []
    for index in range(24):
        tables.append(canary_table([coins[index]], [odds[index]], None, index))
    rows_by_bound = {}
    for bound_row in epsilon(AtDelta(1e-5), tables).to_pylist():
        rows_by_bound[bound_row["bound"]] = bound_row
    both_sides = np.array(odds[::2]), np.array(odds[1::2])
    for name, bound in MANY_RUNS.items():
        assert bound_by_scores(bound, *both_sides, 1e-5, LEVEL) == rows_by_bound[name]["epsilon"]
    assert rows_by_bound["many runs"]["epsilon"] > 0
    assert tuple(rows_by_bound["bets"][name] for name in ("models", "auc", "spent", "p_spent")) == (24, 1.0, None, None)


def test_scores_subtract_mean_of_other_models() -> None:
    scores = np.array([[1.0, 4.0], [3.0, 8.0], [5.0, 0.0]])
    assert pytest.approx(less_the_others(scores)) == [[1 - 4, 4 - 4], [3 - 3, 8 - 2], [5 - 2, 0 - 6]]
    assert scores[:1].tolist() == less_the_others(scores[:1]).tolist()


@pytest.mark.parametrize(("inside", "area"), [(0, None), (1, 1.0), (20, None)])
def test_canaries_on_one_side_have_no_curve(inside: int, area: float | None) -> None:
    coins = [canary < inside for canary in range(20)]
    odds = [-0.1 * canary for canary in range(20)]
    (result,) = {
        (bound_row["auc"], bound_row["exposure"])
        for bound_row in epsilon(AtDelta(1e-5), [canary_table(coins, odds, None)]).to_pylist()
    }
    assert (area, None if area is None else pytest.approx(np.log2(20))) == result


def test_p_value_belongs_to_first_bound() -> None:
    common = {"delta": 1e-5, "canaries": 20, "models": 3, "auc": 0.75, "p_value": 0.01, "spent": 2.0, "p_spent": 0.5}
    common |= {"inside": 9, "exposure": 2.0, "exposure_low": 1.5, "exposure_high": 2.5, "exposure_null": 1.25}
    table_rows = [{"bound": "bets", "epsilon": 1.5} | common, {"bound": "one run", "epsilon": 1.0} | common]
    bounds = [Bound("bets", 1.5, 20, "canary", 0.01), Bound("one run", 1.0, 20, "canary")]
    curve = row("AUC of canaries", {}, Estimate(0.75, None, None, 20), "canary", 0.5)
    exposed = row("exposure of canaries in bits", {}, Estimate(2.0, 1.5, 2.5, 9), "canary", 1.25)
    for spent, expected in ((2.0, Spent(2.0, 3, 0.5)), (None, None)):
        table = pa.Table.from_pylist([table_row | {"spent": spent} for table_row in table_rows], EPSILON)
        assert [*epsilon_rows(bounds, expected, 1e-5), curve, exposed] == [*MEASURE.rows(Tables([table]), About(0.05))]
    assert [*MEASURE.rows(Tables([EPSILON.empty_table()]), About(0.05))] == []


def test_epsilon_is_bounded_at_delta_of_training() -> None:
    config = replace(PLAIN, question=canaries(models=2))
    with_delta = replace(config, training=replace(config.training, privacy=Privacy(1.0, delta=1e-4)))
    jobs = [MEASURE.plan(both_configs, ()) for both_configs in (config, with_delta)]
    assert [AtDelta(Privacy.delta), AtDelta(1e-4)] == [job.config for job in jobs if isinstance(job, Job)]
    assert MEASURE.plan(Membership(Halves(models=8)), ()) == ()


def test_models_share_canaries_but_not_coins() -> None:
    question = canaries(models=2, examples=60, canaries=20)
    config = replace(PLAIN, question=question, seed=3)
    jobs = canary_jobs(config, question)
    seed = seeds.derive(3, "canaries")
    expected = []
    for number in (0, 1):
        expected.append(CoinedCanaries(Part(question.data, 0, 60), 20, number, seed, question.mislabelled))
    assert expected == [job.config for job in jobs]
    part = expected[0].part
    models = [model_job(config.training, coined, config.seed, coined.number, part) for coined in expected]
    assert [model.config for model in models] == [job.inputs[0].config for job in jobs]
    with pytest.raises(DatasetError, match="canaries is 99999; only 1437 records"):
        plan_canaries(replace(question, examples=0, canaries=99_999))
    small = replace(question, data=pin(Dataset("digits#2x2")), canary_images="glyph")
    with pytest.raises(ValueError, match="no feature of the family of the letter A fits the images"):
        plan_canaries(small)
    assert len(plan_canaries(replace(small, canary_images="noise"))) == 2


@pytest.mark.parametrize("spent", [None, [1.0, 3.0, 2.0]])
def test_canaries_are_scored_by_their_training_label(
    spent: list[float] | None,
) -> None:
    data = pin(Dataset("digits"))
    coined = CoinedCanaries(Part(data, 0, 60), 20, 1, 5, mislabelled=True, canary_images="noise")
    network = Architecture("mlp1", (28, 28, 1), 10)
    images = load(data)
    weights = network.initial(0)
    model_row = {"seed": 0, "network": network_row(network), "epochs": 1, "best_epoch": 1, "history": []}
    model = pa.Table.from_pylist([model_row | {"weights": weight_rows(weights)}], MODEL)
    model = model if spent is None else model.append_column("epsilons", pa.array([spent]))
    answer_table = canary_answers(coined, [model])
    rows = coined.canary_rows(images)
    labels = coined.alter_canaries(images).train.labels[rows]
    canary_images = coined.alter_canaries(images).train.pixels(rows)
    p = special.softmax(logits(network, weights, canary_images).astype(float), axis=1)
    confidence = p[np.arange(20), labels]
    assert np.log(confidence / (1 - confidence)) == pytest.approx(answer_table["log_odds"].to_numpy(), abs=1e-9)
    assert rows.tolist() == answer_table["row"].to_pylist()
    assert labels.tolist() == answer_table["label"].to_pylist()
    assert coined.is_inside().tolist() == answer_table["inside"].to_pylist()
    assert {1} == {*answer_table["model"].to_pylist()}
    assert {None if spent is None else 3.0} == {*answer_table["spent"].to_pylist()}


def test_other_models_show_a_canarys_difficulty() -> None:
    of_one_model = make_canaries(1.5, None, models=2)[:1]
    of_four_models = make_canaries(1.5, None, models=4)
    single_row = epsilon(AtDelta(1e-5), of_one_model).to_pylist()[0]
    compared_row = epsilon(AtDelta(1e-5), of_four_models).to_pylist()[0]
    assert compared_row["auc"] > single_row["auc"] + 0.1
    assert compared_row["canaries"] == 2800
    assert compared_row["models"] == 4


def test_private_training_reports_its_epsilon() -> None:
    small = tiny(PRIVATE[0])
    training = replace(small.training, privacy=Privacy(8.0), batch=60)
    (job,) = plan_canaries(canaries(small, models=1), replace(small, training=training))
    table = canary_answers(job.config, [train(job.inputs[0].config, [])])
    assert marks(canary_answers).version == 2
    assert table.schema == CANARIES
    assert len(table) == 30
    assert 0 < table["spent"][0].as_py() <= 8


def test_one_run_shares_a_training_with_many() -> None:
    one_run = Plan.from_roots(plan(replace(PLAIN, question=canaries(models=1))))
    many_runs = Plan.from_roots(plan(replace(PLAIN, question=canaries(models=8))))
    assert {"epsilon", "accuracies", "summary"} == set(one_run.roots) == set(many_runs.roots)
    assert len(one_run.jobs.keys() & many_runs.jobs.keys()) == 3
    assert len(one_run.jobs) == 5
    assert len(many_runs.jobs) == 26


def test_contradictory_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="canaries is 700; it must be at most examples, which is 100"):
        canaries(examples=100)
    with pytest.raises(ValueError, match="privacy is set and optimiser is rmsprop"):
        replace(PLAIN.training, optimiser="rmsprop", privacy=Privacy(1.0))
