"""Scores of planted observations, and scores compared with epsilon for private mechanisms with known densities."""

from __future__ import annotations

import itertools
import json
import math
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import integrate, stats
from scipy.special import expit

from tasks.audits.density.config import About, KFold, Memorization, ModelTraining
from tasks.audits.density.log_densities import Folds
from tasks.audits.density.measures.distribution import Distribution, distribution
from tasks.audits.density.measures.losses import losses
from tasks.audits.density.measures.scores import (
    SCORES,
    Check,
    Scores,
    check_epsilon,
    many_runs_bounds,
    privacy,
    rows,
    scores,
)
from tasks.audits.density.memorization import terms
from tasks.audits.density.trainings import trainings
from tasks.contract.job import NoSettings
from tasks.contract.measure import Tables
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.numerics.epsilon import many_runs_bound
from tasks.numerics.ranks import false_discovery_control
from tasks.training.density import fit
from tasks.training.density_config import Fold
from tasks.training.privacy_config import LinkedTraining
from tasks.training.recipe import Privacy
from tests.support.calibration import assert_rate, bounds
from tests.tasks.audits.density import made_up
from tests.tasks.summary_rows import by_name

NAN = float("nan")
INF = float("inf")
MODELS = made_up.folds(200, 5, 4)
CONFIG = Scores(MODELS, 3, permutations=199, draws=8, seed=1)
DISTRIBUTION_CONFIG = Distribution(MODELS, (1, 3), draws=8, seed=1)
MEMORISED = (17, 130)


def plant_memory(seed: int = 0) -> np.ndarray:
    """Noise, in which two observations are likely only to the models that trained on them."""
    log_p = made_up.noise(np.random.default_rng(seed), 200, 5, 4, 3.0, 2.0)
    out = np.arange(4) == made_up.held_out(MODELS)[:, :, None]
    for row in MEMORISED:
        log_p[row] += np.where(out[row], 0.0, 80.0)
    return log_p.astype(np.float32).astype(float)


LOG_P = plant_memory(2)
TABLES = made_up.fold_tables(MODELS, {1: LOG_P - LOG_P, 3: LOG_P})


def column(table: pa.Table, name: str) -> np.ndarray:
    return np.asarray(table[name].cast(pa.float64()).to_numpy(zero_copy_only=False))


def test_observations_have_scores_and_components() -> None:
    table = scores(CONFIG, TABLES)
    log_means = terms(LOG_P, made_up.held_out(MODELS))
    assert table.schema == SCORES
    assert table["row"].to_pylist() == list(range(200))
    assert load(made_up.DIGITS).train_labels[:200].tolist() == table["label"].to_pylist()
    for name, expected in (("log_p_trained", log_means.u), ("log_p_held_out", log_means.v), ("m", log_means.score)):
        assert expected == pytest.approx(column(table, name), rel=1e-12)
    assert set(table["trained_models"].to_pylist()) == {15}
    assert set(table["held_out_models"].to_pylist()) == {5}
    trained_means, held_out_means = log_means.by_repetition
    assert trained_means == pytest.approx(np.array(table["trained"].to_pylist()), rel=1e-6)
    assert held_out_means == pytest.approx(np.array(table["held_out"].to_pylist()), rel=1e-6)
    adjusted = false_discovery_control(column(table, "p_value"))
    assert adjusted.tolist() == column(table, "p_adjusted").tolist()


def test_only_planted_observations_have_high_scores() -> None:
    table = scores(replace(CONFIG, permutations=1024), TABLES)  # one of 4^5 assignments
    assert column(table, "p_value")[list(MEMORISED)].tolist() == [1 / 1024] * 2
    assert set(MEMORISED) == set(np.argsort(column(table, "m_matched"))[-2:].tolist())
    # Two tests of 200 with the smallest p are adjusted to 200 / 1024 / 2.
    assert pytest.approx(column(table, "p_adjusted")[list(MEMORISED)]) == [200 / 1024 / 2] * 2
    assert (column(table, "p_adjusted") < 0.1).sum() == 2


def test_training_order_makes_no_difference() -> None:
    assert scores(CONFIG, TABLES).equals(scores(CONFIG, TABLES[::-1]))
    assert distribution(DISTRIBUTION_CONFIG, TABLES).equals(distribution(DISTRIBUTION_CONFIG, TABLES[::-1]))


def test_another_seed_changes_the_draws() -> None:
    first = scores(CONFIG, TABLES)
    other_seed = scores(replace(CONFIG, seed=2), TABLES)
    assert column(first, "m").tolist() == column(other_seed, "m").tolist()
    for name in ("m_matched", "p_value"):
        assert column(first, name).tolist() != column(other_seed, name).tolist()


def test_missing_trainings_leave_nulls() -> None:
    fold = made_up.held_out(MODELS)
    table = scores(CONFIG, [table_of_fit for index, table_of_fit in enumerate(TABLES) if index not in (0, 5)])
    log_p = LOG_P.copy()
    log_p[:, 0, 0] = log_p[:, 1, 1] = NAN
    assert terms(log_p, fold).score == pytest.approx(column(table, "m"))
    lost_models = (fold[:, 0] == 0).astype(int) + (fold[:, 1] == 1)
    assert (5 - lost_models).tolist() == table["held_out_models"].to_pylist()
    assert (13 + lost_models).tolist() == table["trained_models"].to_pylist()
    assert (fold[:, 0] == 0).tolist() == [table_of_fit[0] is None for table_of_fit in table["held_out"].to_pylist()]
    few_tables = scores(CONFIG, TABLES[:2])
    has_both = fold[:, 0] < 2
    for name in ("m", "m_matched", "p_value", "p_adjusted"):
        assert has_both.tolist() == (~np.isnan(column(few_tables, name))).tolist()
    assert np.isnan(column(few_tables, "log_p_held_out")).sum() == (~has_both).sum()


def test_infinite_score_stays_infinite() -> None:
    log_p = LOG_P.copy()
    log_p[4] = np.where(np.arange(4) == made_up.held_out(MODELS)[4][:, None], -INF, log_p[4])
    table = scores(CONFIG, made_up.fold_tables(MODELS, {3: log_p}))
    assert tuple(table[name][4].as_py() for name in ("m", "m_matched", "log_p_held_out")) == (INF, INF, -INF)
    assert pytest.approx(table["p_value"][4].as_py(), abs=0.01) == 1 / 200
    rows = distribution(DISTRIBUTION_CONFIG, made_up.fold_tables(MODELS, {3: log_p})).to_pylist()
    rows_by_statistic = {}
    for row in rows:
        if row["score"] == "published" and row["label"] is None:
            rows_by_statistic[row["statistic"]] = row
    assert tuple(rows_by_statistic["highest"][name] for name in ("estimate", "low", "observations")) == (INF, None, 200)
    assert rows_by_statistic["mean"]["observations"] == 199
    assert np.isfinite(rows_by_statistic["mean"]["estimate"])
    assert [row["observations"] for row in rows if row["score"] == "gain"] == [200]


def test_data_without_classes_have_no_labels() -> None:
    models = replace(made_up.folds(60, 2, 3), data=Dataset("photos"))
    tables = made_up.fold_tables(models, {1: made_up.noise(np.random.default_rng(0), 60, 2, 3, 1.0)})
    assert scores(Scores(models, 1, 9, 2), tables)["label"].to_pylist() == [None] * 60
    assert set(distribution(Distribution(models, (1,), 2), tables)["label"].to_pylist()) == {None}


def test_epoch_without_evaluation_is_refused() -> None:
    with pytest.raises(ValueError, match="no training was evaluated at epoch 2"):
        scores(replace(CONFIG, epoch=2), TABLES)
    with pytest.raises(ValueError, match="no training was evaluated at epoch 2 or 4"):
        distribution(replace(DISTRIBUTION_CONFIG, epochs=(2, 4)), TABLES)
    assert set(distribution(replace(DISTRIBUTION_CONFIG, epochs=(1, 2)), TABLES)["epoch"].to_pylist()) == {1}


def leave_one_out(seed: int = 0) -> tuple[Sequence[pa.Table], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    of_all_data = rng.normal(-50, 2, (4, 24))
    without_row = rng.normal(-50, 2, (3, 4, 24))
    without_row[1, :, 7] -= 30.0
    return made_up.single_row_tables(made_up.single_row_models(), of_all_data, without_row), of_all_data, without_row


def test_leave_one_out_scores_the_left_out_rows() -> None:
    tables, of_all_data, without_row = leave_one_out()
    table = scores(Scores(made_up.single_row_models(), 2, 99, 8), tables)
    assert table["row"].to_pylist() == [3, 7, 20]
    for position, row in enumerate((3, 7, 20)):
        log_p = np.stack([of_all_data[:, row], without_row[position, :, row]], axis=1)[None]
        expected = terms(log_p, np.ones((1, 4), int)).score[0]
        assert expected == pytest.approx(table["m"][position].as_py(), abs=1e-4)
        assert table["m"][position].as_py() == pytest.approx(table["m_matched"][position].as_py())
    assert table["p_value"][1].as_py() == 1 / 2**4
    rows = distribution(Distribution(made_up.single_row_models(), (2,)), tables).to_pylist()
    (gain,) = (row for row in rows if row["score"] == "gain")
    gains = [of_all_data[:, row] - without_row[position, :, row] for position, row in enumerate((3, 7, 20))]
    assert np.mean(gains) == pytest.approx(gain["estimate"], abs=1e-4)
    assert gain["p_value"] < 0.01
    assert gain["n"] == 4


@pytest.mark.parametrize("link", [0, 1])
def test_tables_of_trainings_are_scored(link: int) -> None:
    density = Memorization(
        made_up.DIGITS,
        ModelTraining(epochs=2, evaluation_interval=1, batch=20, privacy=LinkedTraining(link)),
        KFold(2),
        repetitions=2,
        examples=60,
        samples=4,
    )
    planned_trainings = trainings(density)
    assert planned_trainings is not None
    models = planned_trainings.models
    tables = [fit(job.config, ()) for job in planned_trainings.fits]
    table = scores(Scores(models, 2, 99, 8), tables)
    assert set(table["trained_models"].to_pylist()) == {2}
    assert set(table["held_out_models"].to_pylist()) == {2}
    assert np.isfinite(column(table, "m")).all()
    assert sorted(set(distribution(Distribution(models, (1, 2)), tables)["epoch"].to_pylist())) == [1, 2]
    assert losses(NoSettings(), tables)["n"].to_pylist() == [4] * 6


def test_central_highly_memorised_observations_are_counted() -> None:
    # The 38th and 39th of 40 observations have the largest M; the central 90 % of U are 2 to 37.
    def central(*memorised: int) -> list[Any]:
        m = [9.0 if row_number in memorised else 0.0 for row_number in range(40)]
        table = made_up.scores([float(row_number) for row_number in range(40)], m)
        summary_rows = by_name(rows(Tables([table]), About(planned=0, smallest=0.5)))
        return summary_rows["highly memorised within the central log p", '{"share": 0.9}']

    assert pytest.approx(central(2, 37)) == [1.0, None, None, 0, "repetition", None, None, None]
    assert pytest.approx(central(20, 39)) == [0.5, None, None, 0, "repetition", None, None, None]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the peak is in other units")
def test_peak_memory_is_far_below_all_answers() -> None:
    """Ten by ten models, 5,000 observations, two epochs, in a separate process.

    Beyond their inputs, the tasks need 1.3 and 1.6 times the answers of an epoch; 6.7 and 7 times in a single block.
    """
    n = 5_000
    code = f"import {__name__} as test; test.measure({n})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    bytes_by_task = dict(line.split() for line in done.stdout.splitlines())
    assert set(bytes_by_task) == {"scores", "distribution"}
    assert max(map(int, bytes_by_task.values())) < 3 * n * 100 * np.dtype(np.float64).itemsize


def measure(n: int) -> None:
    """Print the memory that each task needs, one per line."""
    memory_needed(1000)  # loads imported modules before measuring
    for name, byte_count in memory_needed(n).items():
        sys.stdout.write(f"{name} {byte_count}\n")


def memory_needed(n: int) -> dict[str, int]:
    """The number of bytes by which each task raises the peak memory beyond its inputs."""
    models = Folds(Dataset("photos"), n, tuple(range(10)), 10)
    rng = np.random.default_rng(0)
    tables = []
    for seed in range(100):
        log_p = {epoch: rng.standard_normal(n) for epoch in (1, 2)}
        tables.append(made_up.table(Fold(seed // 10, 10, seed % 10), seed, log_p, 2))
    before = peak()
    bytes_by_task = {}
    # Of so many permutations, few observations have a p-value that is computed exactly, which takes longest.
    assert n == scores(Scores(models, 2, 999, 2), tables).num_rows
    bytes_by_task["scores"] = peak() - before
    assert distribution(Distribution(models, (1, 2), 2), tables).num_rows
    bytes_by_task["distribution"] = peak() - before
    return bytes_by_task


def peak() -> int:
    """The peak memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_table_has_effective_sample_counts() -> None:
    models = made_up.folds(60, 1, 3)
    log_p = np.random.default_rng(0).normal(-90, 3, (3, 60))
    effective = np.arange(60.0)
    tables_with_codes = []
    for fold in range(3):
        tables_with_codes.append(
            made_up.table(Fold(100, 3, fold), fold, {2: log_p[fold]}, 2, {2: (fold + 1) * effective} if True else None)
        )
    tables_without_codes = []
    for fold in range(3):
        tables_without_codes.append(
            made_up.table(Fold(100, 3, fold), fold, {2: log_p[fold]}, 2, {2: (fold + 1) * effective} if False else None)
        )
    with_codes = scores(Scores(models, 2, 99, 4), tables_with_codes)
    without_codes = scores(Scores(models, 2, 99, 4), tables_without_codes)
    assert (2 * effective).tolist() == with_codes["effective_samples"].to_pylist()
    assert without_codes["effective_samples"].null_count == 60
    assert with_codes.drop_columns(["effective_samples"]).equals(without_codes.drop_columns(["effective_samples"]))


EPSILON = 0.7


def exact_check(score: float, epsilon: float = EPSILON) -> Check:
    """The check of one row with known densities: every trial gives the same values."""
    return check_epsilon(np.array([5]), np.full((1, 3), score - 100), np.full((1, 3), -100.0), epsilon)


def response_score(high: float, low: float) -> float:
    """The score if a model gives the row the density `high` after the answer yes and `low` after no."""
    odds = math.exp(EPSILON)
    return math.log((high * odds + low) / (high + low * odds))


def test_randomised_response_never_exceeds_epsilon() -> None:
    assert response_score(0.3, 0.0) == pytest.approx(EPSILON, abs=1e-12)
    assert exact_check(response_score(0.3, 0.0), EPSILON + 1e-9).above == 0
    for high, low in ((0.3, 0.1), (0.9, 0.89), (0.2, 0.5)):
        assert response_score(high, low) < EPSILON
        check = exact_check(response_score(high, low))
        assert check.above == 0
        assert check.p_value == 1.0


def laplace_score(count_with: float, count_without: float, step: float) -> float:
    """The score of a 1 for Laplace's mechanism on a count, with and without it.

    A model gives 1 the probability sigmoid((released - 4) / step).
    """

    def density(count: float) -> float:
        noise = stats.laplace(count, 1 / EPSILON)
        return integrate.quad(lambda c: noise.pdf(c) * expit((c - 4) / step), -60, 60, points=[count, 4], limit=500)[0]

    return math.log(density(count_with) / density(count_without))


def test_laplace_count_stays_within_epsilon() -> None:
    # A step at 4, above both counts: the noise densities differ by the factor e^epsilon everywhere above.
    assert laplace_score(3, 2, 0.01) == pytest.approx(EPSILON, abs=1e-3)
    for step in (0.5, 2.0, 10.0):
        score = laplace_score(3, 2, step)
        assert 0 < score < EPSILON
        assert exact_check(score).above == 0


def test_non_private_algorithm_exceeds_epsilon() -> None:
    # Shares of ten rows of three kinds, one added to each: the row's own kind has 2 / 13 with it and 1 / 12 without.
    score = math.log(2 / 13) - math.log(1 / 12)
    check = exact_check(score, epsilon=0.5)
    assert check.row == 5
    assert check.above == 1
    assert check.p_value == 0.0
    assert score == pytest.approx(check.largest.value)
    assert exact_check(score, epsilon=0.7).above == 0


def test_interval_covers_a_score_of_epsilon() -> None:
    # Of all outcomes of twelve trials, weighted by probability, 96.7 % have an interval that covers epsilon, 0.8 %
    # lie above it and 0.8 % have p <= 5 %: twelve trials are too few for 5 %, and the errors are conservative.
    high = 0.9
    low = 0.02
    trials = 12
    score = response_score(high, low)
    right = expit(EPSILON)
    # Randomised response to whether the row is among the data, with the row and without it.
    answers = np.array([(True, False), (True, True), (False, False), (False, True)])
    outcome_counts = stats.multinomial(
        trials, [right * right, right * (1 - right), right * (1 - right), (1 - right) ** 2]
    )
    shares = np.zeros(4)
    for counts in itertools.product(range(trials + 1), repeat=4):
        if sum(counts) != trials:
            continue
        sides = np.log(np.where(answers.repeat(counts, axis=0), high, low)).T[:, None]
        check = check_epsilon(np.array([0]), *sides, epsilon=score)
        assert check.largest.low is not None
        assert check.largest.high is not None
        assert check.p_value is not None
        events = [True, check.largest.low > score, check.largest.high < score, check.p_value <= 0.05]
        shares += outcome_counts.pmf(counts) * np.array(events)
    assert shares.tolist() == pytest.approx([1.0, 0.00792, 0.02526, 0.00792], abs=5e-6)


@pytest.mark.slow  # 2,000 checks
def test_largest_of_20_is_called_in_5_percent() -> None:
    # Normal scores, for which the smallest of 20 p-values is at most 0.05 / 20 in 4.9 % of runs. The row was chosen
    # by its score: the p-value of all rows and the interval are corrected for this. The interval lies above epsilon
    # at most as often as one of 20 intervals with coverage 1 - 0.05 / 20.
    rng = np.random.default_rng(1)
    draws = 2000
    rows = 20
    trials = 10
    counts = Counter[str]()
    for trained, held_out in rng.normal(-100, 0.1, (draws, 2, rows, trials)):
        check = check_epsilon(np.arange(rows), trained + 0.5, held_out, 0.5)
        assert check.p_value is not None
        assert check.largest.low is not None
        counts["rejected"] += check.p_value <= 0.05
        counts["above"] += check.largest.low > 0.5
    assert_rate(1 - (1 - 0.05 / rows) ** rows, counts["rejected"], draws)
    assert counts["above"] <= bounds(0.025, draws)[1]


def test_largest_row_is_corrected_for_selection() -> None:
    rng = np.random.default_rng(1)
    trained, held_out = rng.normal(-100, 1, (2, 50, 20))
    trained[7] += 12
    single_check = check_epsilon(np.array([7]), trained[7:8], held_out[7:8], 3.0, 1e-5)
    check = check_epsilon(np.arange(100, 150), trained, held_out, 3.0, 1e-5)
    assert check.row == 107
    assert check.rows == 50
    assert check.largest.value == single_check.largest.value
    assert single_check.largest.low is not None
    assert check.largest.low is not None
    assert check.largest.low < single_check.largest.low
    assert single_check.p_value is not None
    assert 50 * single_check.p_value == pytest.approx(check.p_value)


def test_interval_agrees_with_jackknife_by_hand() -> None:
    # Scores without each of three trials: logs of means of two.
    trained = np.log([[1.0, 2.0, 6.0]])
    held_out = np.log([[1.0, 1.0, 4.0]])
    check = check_epsilon(np.array([0]), trained, held_out, 0.1)
    scores_without = np.log([(2 + 6) / (1 + 4), (1 + 6) / (1 + 4), (1 + 2) / (1 + 1)])
    half = stats.t.ppf(0.975, 2) * math.sqrt(2 / 3 * ((scores_without - scores_without.mean()) ** 2).sum())
    assert math.log(9 / 6) == pytest.approx(check.largest.value)
    assert math.log(9 / 6) + half == pytest.approx(check.largest.high)
    assert stats.t.sf((math.log(9 / 6) - 0.1) / (half / stats.t.ppf(0.975, 2)), 2) == pytest.approx(check.p_value)


def test_single_trial_has_a_score_without_interval() -> None:
    check = check_epsilon(np.array([3]), np.array([[-90.0]]), np.array([[-100.0]]), 1.0)
    assert check.largest.value == 10.0
    assert check.largest.low is None
    assert check.largest.high is None
    assert check.p_value is None
    trained = np.array([[-90.0, np.nan], [np.nan, np.nan]])
    partial_check = check_epsilon(np.array([3, 4]), trained, np.full((2, 2), -100.0), 1.0)
    assert partial_check.row == 3
    assert partial_check.rows == 1
    assert partial_check.above == 1
    with pytest.raises(ValueError, match="no row has a score"):
        check_epsilon(np.array([4]), trained[1:], np.full((1, 2), -100.0), 1.0)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (math.inf, 0.0), (1.0, 1.0), (1.0, -0.1)])
def test_invalid_privacy_parameters_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="finite and above 0"):
        check_epsilon(np.array([0]), np.zeros((1, 2)), np.zeros((1, 2)), epsilon, delta)


def test_the_summary_names_the_row_and_the_delta() -> None:
    sides = {"trained": [[-90.0, -91.0, -90.5], [-100.0, None, -99.0]], "held_out": [[-100.0, -101.0, -99.0]] * 2}
    columns = {"row": [4, 9], "m": [10.0, 0.5], **sides}
    table = pa.table({name: pa.array(values, SCORES.field(name).type) for name, values in columns.items()})
    largest, above, *_ = privacy(table, Privacy(2.0, 1e-5))
    assert json.loads(largest["setting"]) == {"epsilon": 2.0, "delta": 1e-5, "row": 4}
    assert largest["n"] == 3
    assert largest["unit"] == "trial"
    assert largest["low"] < largest["estimate"] < largest["high"]
    assert above["estimate"] == 0.5
    assert above["n"] == 2
    assert above["null"] == 0.0
    no_scores = table.set_column(1, "m", pa.nulls(2, pa.float64()))
    assert list(privacy(no_scores, Privacy(2.0))) == []


def test_distinguishable_rows_bound_epsilon_jointly() -> None:
    stream = np.random.default_rng(3)
    held_out = stream.normal(size=(2, 40))
    trained = held_out + np.array([[0.0], [20.0]])
    trained[1, 0] = np.nan  # of 39 trials, the last 20 are counted, at 2.5 % for each of two rows
    bounds_by_name = {}
    for bound in many_runs_bounds(trained, held_out, 1e-5):
        bounds_by_name[bound.name] = bound
    assert bounds_by_name["many runs"].epsilon == pytest.approx(many_runs_bound((20, 20), (0, 20), 1e-5, 0.025))
    assert bounds_by_name["many runs"].epsilon == bounds_by_name["many runs"].most
    null_bounds = list(many_runs_bounds(held_out, held_out[:, ::-1], 1e-5))
    assert [bound.epsilon for bound in null_bounds] == [0.0, 0.0]
